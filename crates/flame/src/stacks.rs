//! Stacks as a tree: every frame knows how many samples went through it.
//!
//! ```text
//! a;b 3          root 6
//! a;b;c 2   ─►    └ a 6 ─ b 5 ─ c 2
//! a 1
//! ```
//!
//! Invariants
//! 1. A frame's total is its own samples and those of its children.
//! 2. Children are in the order of their names, so that two runs can be laid over each other by
//!    eye.
//! 3. A stack deeper than `DEPTH_MAX` keeps its root side. A tree holds at most `FRAMES_MAX` frames
//!    and counts the samples that found no room as `lost`.
//!
//! Not here: pixels (`graph.rs`).

use std::collections::BTreeMap;
use std::fmt::Write;

/// Frames of one stack that are kept.
const DEPTH_MAX: usize = 256;
/// Frames of one tree: far above any real profile, so that a hostile file ends somewhere.
const FRAMES_MAX: usize = 1 << 18;

/// One frame and its callees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallNode {
    /// Samples in this frame and in its callees.
    pub total: u64,
    /// Callees by name.
    pub children: BTreeMap<String, CallNode>,
}

/// All samples of one profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    root: CallNode,
    frames: usize,
    lost: u64,
}

impl Stacks {
    /// Reads folded text: `frame;frame;frame count` per line. Lines without a count are left out.
    ///
    /// ```
    /// let stacks = dendra_flame::Stacks::from_folded("loop;read 3\nloop;write 1\nnot a stack\n");
    /// assert_eq!(stacks.samples(), 4);
    /// ```
    pub fn from_folded(text: &str) -> Stacks {
        let mut stacks = Stacks::default();
        for line in text.lines() {
            let Some((frames, count)) = line.trim_end().rsplit_once(' ') else {
                continue;
            };
            if let Ok(count) = count.parse() {
                stacks.add(frames.split(';'), count);
            }
        }
        stacks
    }

    /// Counts a stack, root first.
    pub fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, count: u64) {
        let mut node = &mut self.root;
        node.total = node.total.saturating_add(count);
        for frame in frames.filter(|frame| !frame.is_empty()).take(DEPTH_MAX) {
            if !node.children.contains_key(frame) {
                if self.frames == FRAMES_MAX {
                    self.lost = self.lost.saturating_add(count);
                    return;
                }
                self.frames += 1;
                node.children.insert(frame.to_owned(), CallNode::default());
            }
            node = node.children.get_mut(frame).expect("it was just there");
            node.total = node.total.saturating_add(count);
        }
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.root.total
    }

    /// Samples that are counted at a caller because the tree was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The frame that stands for the whole profile.
    pub fn root(&self) -> &CallNode {
        &self.root
    }

    /// Writes the tree as folded text, in the order of names.
    pub fn to_folded(&self) -> String {
        fn walk(node: &CallNode, path: &mut String, out: &mut String) {
            let below: u64 = node.children.values().map(|child| child.total).sum();
            let own = node.total.saturating_sub(below);
            if own > 0 && !path.is_empty() {
                writeln!(out, "{path} {own}").expect("a string takes all text");
            }
            for (name, child) in &node.children {
                let length = path.len();
                if length > 0 {
                    path.push(';');
                }
                path.push_str(name);
                walk(child, path, out);
                path.truncate(length);
            }
        }
        let mut out = String::new();
        walk(&self.root, &mut String::new(), &mut out);
        out
    }
}

/// A symbol as people say it: without the hash at its end and without characters that folded text
/// cannot hold.
///
/// ```
/// assert_eq!(dendra_flame::clean_name("core::fmt::write::h0123456789abcdef"), "core::fmt::write");
/// ```
pub fn clean_name(symbol: &str) -> String {
    let name = match symbol.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => symbol,
    };
    name.chars()
        .map(|c| match c {
            ';' => ':',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_counts_what_goes_through_it() {
        let stacks = Stacks::from_folded("a;b 3\na;b;c 2\na 1\n\nbroken\nx y\n");
        assert_eq!(stacks.samples(), 6);
        let a = &stacks.root().children["a"];
        assert_eq!(a.total, 6);
        assert_eq!(a.children["b"].total, 5);
        assert_eq!(a.children["b"].children["c"].total, 2);
    }

    #[test]
    fn folded_text_survives_the_tree() {
        let folded = "a 1\na;b 3\na;b;c 2\nz;y 9\n";
        assert_eq!(Stacks::from_folded(folded).to_folded(), folded);
    }

    #[test]
    fn names_with_blanks_keep_them() {
        let stacks = Stacks::from_folded("<A as B>::c;d e 7");
        assert_eq!(
            stacks.root().children["<A as B>::c"].children["d e"].total,
            7
        );
    }

    #[test]
    fn a_bottomless_stack_keeps_its_root_side() {
        let deep = format!("{} 1", vec!["f"; 10_000].join(";"));
        let mut node = Stacks::from_folded(&deep).root().clone();
        let mut depth = 0;
        while let Some(child) = node.children.remove("f") {
            depth += 1;
            node = child;
        }
        assert_eq!(depth, DEPTH_MAX);
    }

    #[test]
    fn a_name_cannot_break_folded_text() {
        assert_eq!(clean_name("a;b\nc"), "a:b c");
        assert_eq!(clean_name("plain::h12"), "plain::h12");
    }
}
