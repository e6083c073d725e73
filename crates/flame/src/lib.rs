//! Flame graphs from folded stacks, and of the difference of two: pure functions of text.
//!
//! ```text
//! folded     worker;dendra_server::disk::store_pool::work;dendra_engine::get 128
//!            └ root                                            leaf ┘  └ samples
//! stacks.rs  folded text ─► Stacks, a tree of frames with samples
//! graph.rs   one or two trees ─► SVG: root on top, width = samples, click to zoom, type to search
//! ```
//!
//! Invariants
//! 1. The same stacks give the same bytes.
//! 2. No name of a frame can leave its attribute or its text: all names are escaped.
//! 3. A graph is readable without its script: on paper, in a mail.
//!
//! Not here: taking samples (`crates/server/src/measure/profile`), the page around (`crates/lab`).
//! See: Gregg, "The Flame Graph", 2016, and its section on differential graphs.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

mod graph;
mod stacks;

pub use graph::{Look, SCRIPT, STYLE, difference, graph, standalone};
pub use stacks::{CallNode, Stacks, clean_name};

/// Writes `text` so that it means itself inside an XML attribute or text.
/// Characters that XML does not allow at all become U+FFFD.
pub fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if (c as u32) < 0x20 || matches!(c as u32, 0xFFFE | 0xFFFF) => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
}
