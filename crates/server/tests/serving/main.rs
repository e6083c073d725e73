//! One node and its clients: each module says in its header which promise it holds.
//!
//! One binary, for each one links the whole server.
//!
//! Not here: tests that fill a gate, bound a time, or use the parts that a process has once: its
//! limits and its profiler.

mod batch;
mod border;
mod contract;
mod explain;
mod half_close;
mod joiner;
mod long_poll;
mod metadata;
mod pipelining;
mod smoke;
mod strictness;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod touch;
