//! The flags of `dendra dev`.
//!
//! Invariants
//! 1. Nodes count from 1, and there are at most nine at the start.
//!
//! Not here: the work of the command (`mod.rs`), the socket by which a verb reaches it
//! (`control.rs`).
//! See: docs/cli.md.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `dendra dev`
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// How many nodes [default: 3, or as many as the folder has]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) nodes: Option<u8>,
    /// Keep data and logs in this folder; without it a temporary one, which is removed at the end
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) folder: Option<PathBuf>,
    /// Flags for every `dendra serve`, behind `--`
    #[arg(last = true, value_name = "FLAGS")]
    pub(crate) flags: Vec<String>,
    /// The order for the running cluster
    #[command(subcommand)]
    pub(crate) verb: Option<DevVerb>,
}

/// An order for a running cluster; nodes count from 1.
#[derive(Debug, Subcommand)]
pub(crate) enum DevVerb {
    /// End a node at once, as a crash does
    Kill {
        /// Which
        node: usize,
    },
    /// Flip bits of tables on a node's disk
    Rot {
        /// Which
        node: usize,
    },
    /// End a node and remove all that its folder holds, as a lost disk does
    Wipe {
        /// Which
        node: usize,
    },
    /// Freeze a node
    Pause {
        /// Which
        node: usize,
    },
    /// Let a frozen node go on
    Resume {
        /// Which
        node: usize,
    },
    /// Start a node that is down
    Start {
        /// Which
        node: usize,
    },
    /// Add a node to the cluster
    Add,
    /// Let a node leave the cluster, when the others have its copies
    Remove {
        /// Which
        node: usize,
    },
    /// End a node, remove its data, and let a new one take its place
    Replace {
        /// Which
        node: usize,
    },
    /// Cut the links between two nodes
    Cut {
        /// One
        a: usize,
        /// The other
        b: usize,
    },
    /// Let everything between two nodes wait, connections open, until the links are mended
    Stall {
        /// One
        a: usize,
        /// The other
        b: usize,
    },
    /// Make the way between two nodes longer
    Slow {
        /// One
        a: usize,
        /// The other
        b: usize,
        /// By how many milliseconds each way
        ms: u64,
    },
    /// Mend all links
    Heal,
    /// End the cluster
    Stop,
}
