//! One tree, or the difference of two, as SVG.
//!
//! ```text
//! ┌ all 1000 ──────────────────────────────┐   y: depth, root on top
//! ├ loop 600 ──────────────┬ wal 400 ──────┤   x: share of the samples, names in order
//! ├ parse 80 ┬ get 500 ────┼ fdatasync 390 ┤   a frame below PIXELS_MIN is left out, and so is all below it
//! ```
//!
//! Invariants
//! 1. Width stands for samples only; colour only groups, or tells more from less.
//! 2. In a difference both profiles are shares of their own total: a longer run is not a slower
//!    one.
//! 3. Every frame carries its whole name, samples and share as a title, for readers and for no
//!    script.
//!
//! Not here: the tree (`stacks.rs`).

use crate::escape;
use crate::stacks::{CallNode, Stacks};
use std::fmt::Write;

/// Style rules of every graph, to stand once in a page.
pub const STYLE: &str = include_str!("style.css");
/// Zoom and search, to stand once in a page.
pub const SCRIPT: &str = include_str!("script.js");

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const FOOT: f64 = 24.0;
/// Frames narrower than this cannot be hit with a mouse and would make most of the file.
const PIXELS_MIN: f64 = 0.6;
/// Advance of one character of the monospaced face at 11 pixels.
const CHARACTER: f64 = 6.7;

/// How a graph is presented.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The `id` of the `svg` element: letters, digits and hyphens.
    pub id: &'a str,
    /// The content of the drawing, in words, for people that do not see it.
    pub title: &'a str,
    /// The unit of the counts: "samples", "bytes", "µs".
    pub unit: &'a str,
}

struct FrameBox<'a> {
    name: &'a str,
    depth: usize,
    /// Left edge and width as shares of the whole.
    x: f64,
    width: f64,
    total: u64,
    /// Share before and share after, in a difference.
    shares: Option<(f64, f64)>,
}

/// Draws `stacks`; the page around must hold `STYLE`, and `SCRIPT` to be interactive.
pub fn graph(stacks: &Stacks, look: Look<'_>) -> String {
    let mut frames = Vec::new();
    let all = stacks.samples();
    if all > 0 {
        lay(stacks.root(), "all", 0, 0.0, all, &mut frames);
    }
    let idle = format!(
        "{all} {}; click a frame to zoom, double-click for all",
        look.unit
    );
    draw(&frames, look, &idle)
}

/// Draws how the shares of `after` differ from those of `before`: widths are those of `after`. The
/// caller, which knows both trees, tells frames that only `before` had in words below it.
pub fn difference(before: &Stacks, after: &Stacks, look: Look<'_>) -> String {
    let mut frames = Vec::new();
    if after.samples() > 0 {
        lay(after.root(), "all", 0, 0.0, after.samples(), &mut frames);
    }
    let mut path: Vec<Option<&CallNode>> = Vec::new();
    for frame in &mut frames {
        path.truncate(frame.depth);
        let twin = match path.last() {
            None => Some(before.root()),
            Some(parent) => parent.and_then(|parent| parent.children.get(frame.name)),
        };
        path.push(twin);
        let was = twin.map_or(0.0, |node| share(node.total, before.samples()));
        frame.shares = Some((was, frame.width));
    }
    let idle = "orange: a larger share than before; blue: a smaller one; grey: within half a point";
    draw(&frames, look, idle)
}

/// A graph as a file of its own.
pub fn standalone(svg: &str) -> String {
    let script = SCRIPT.replace("]]>", "]] >");
    let (head, body) = svg.split_at(svg.find('>').map_or(0, |at| at + 1));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{head}<style>\
         svg {{ background: #fff; }} @media (prefers-color-scheme: dark) {{ svg {{ background: #14181d; }} }}\n\
         {STYLE}</style><script><![CDATA[\n{script}]]></script>{body}"
    )
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn lay<'a>(
    node: &'a CallNode,
    name: &'a str,
    depth: usize,
    x: f64,
    all: u64,
    frames: &mut Vec<FrameBox<'a>>,
) {
    let width = share(node.total, all);
    if width * WIDTH < PIXELS_MIN {
        return;
    }
    frames.push(FrameBox {
        name,
        depth,
        x,
        width,
        total: node.total,
        shares: None,
    });
    let mut left = x;
    for (callee, child) in &node.children {
        lay(child, callee, depth + 1, left, all, frames);
        left += share(child.total, all);
    }
}

fn draw(frames: &[FrameBox<'_>], look: Look<'_>, idle: &str) -> String {
    let rows = frames
        .iter()
        .map(|frame| frame.depth + 1)
        .max()
        .unwrap_or(1);
    let height = rows as f64 * ROW + FOOT;
    let mut out = String::with_capacity(256 * frames.len() + 1024);
    write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" id=\"{}\" data-width=\"{WIDTH}\" \
         viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" role=\"img\" aria-label=\"",
        look.id
    )
    .expect("a string takes all text");
    escape(look.title, &mut out);
    out.push_str("\">");
    for frame in frames {
        write_frame(frame, look.unit, &mut out);
    }
    if frames.is_empty() {
        out.push_str("<text x=\"3\" y=\"12\">no samples</text>");
    }
    write!(out, "<text class=\"f-say\" x=\"3\" y=\"{}\">", height - 7.0)
        .expect("a string takes all text");
    escape(idle, &mut out);
    out.push_str("</text></svg>");
    out
}

fn write_frame(frame: &FrameBox<'_>, unit: &str, out: &mut String) {
    let (left, width) = (frame.x * WIDTH, frame.width * WIDTH);
    let top = frame.depth as f64 * ROW;
    write!(
        out,
        "<g class=\"f\" tabindex=\"{}\" data-x=\"{:.6}\" data-w=\"{:.6}\" data-d=\"{}\" data-n=\"",
        if width > 40.0 { 0 } else { -1 },
        frame.x,
        frame.width,
        frame.depth
    )
    .expect("a string takes all text");
    escape(frame.name, out);
    out.push_str("\"><title>");
    escape(frame.name, out);
    match frame.shares {
        None => write!(
            out,
            ": {} {unit}, {:.2} %",
            frame.total,
            100.0 * frame.width
        ),
        Some((was, is)) => write!(
            out,
            ": {:.2} % now, {:.2} % before, {:+.2} points",
            100.0 * is,
            100.0 * was,
            100.0 * (is - was)
        ),
    }
    .expect("a string takes all text");
    let paint = match frame.shares {
        None => format!("class=\"{}\"", kind(frame.name, frame.depth)),
        Some((was, is)) => tint(is - was),
    };
    write!(
        out,
        "</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{}\" rx=\"1.5\" {paint}/>",
        ROW - 0.5
    )
    .expect("a string takes all text");
    let text = fitted(frame.name, width);
    if !text.is_empty() {
        write!(out, "<text x=\"{:.2}\" y=\"{}\">", left + 3.0, top + 12.0)
            .expect("a string takes all text");
        escape(&text, out);
        out.push_str("</text>");
    }
    out.push_str("</g>");
}

/// The end of a name that fits: the end of a path says more than its start.
fn fitted(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).floor();
    if room < 3.0 {
        return String::new();
    }
    let room = room as usize;
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(length - room + 1).collect();
    format!("…{tail}")
}

/// Half a point of difference is grey; ten points are the full colour.
fn tint(points: f64) -> String {
    let strength = (points.abs() / 0.10).clamp(0.15, 1.0);
    if points.abs() < 0.005 {
        return "class=\"k-same\"".to_owned();
    }
    let side = if points > 0.0 { "more" } else { "less" };
    format!("style=\"fill: rgba(var(--f-{side}), {strength:.2})\"")
}

/// Which colour a frame has: whose code it is.
fn kind(name: &str, depth: usize) -> &'static str {
    let path = name.trim_start_matches(['<', '&', '*', '(']);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
    if depth <= 1 && !name.contains("::") {
        "k-kind"
    } else if starts(&[
        "dendra_engine",
        "quick_cache",
        "lz4_flex",
        "zstd",
        "crc32fast",
    ]) {
        "k-engine"
    } else if starts(&["dendra"]) {
        "k-app"
    } else if starts(&["tokio", "mio", "hyper", "axum", "futures"]) {
        "k-async"
    } else if starts(&["std::", "core::", "alloc::"]) {
        "k-std"
    } else if !name.contains("::") {
        "k-sys"
    } else {
        "k-other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look<'static> = Look {
        id: "t",
        title: "a <test>",
        unit: "samples",
    };

    #[test]
    fn widths_are_shares_of_the_samples() {
        let svg = graph(&Stacks::from_folded("a;b 3\na;c 1\n"), LOOK);
        assert!(svg.contains("data-x=\"0.000000\" data-w=\"0.750000\" data-d=\"2\" data-n=\"b\""));
        assert!(svg.contains("data-x=\"0.750000\" data-w=\"0.250000\" data-d=\"2\" data-n=\"c\""));
        assert!(svg.contains("b: 3 samples, 75.00 %"));
    }

    #[test]
    fn a_hostile_name_stays_text() {
        let svg = graph(&Stacks::from_folded("</title><script>\"&' 9"), LOOK);
        assert!(!svg.contains("<script>"));
        assert!(svg.contains("&lt;/title&gt;&lt;script&gt;&quot;&amp;&#39;"));
    }

    #[test]
    fn frames_too_narrow_to_see_are_left_out() {
        let svg = graph(&Stacks::from_folded("wide 100000\nthin 1\n"), LOOK);
        assert!(svg.contains("data-n=\"wide\""));
        assert!(!svg.contains("data-n=\"thin\""));
    }

    #[test]
    fn no_samples_say_so() {
        assert!(graph(&Stacks::default(), LOOK).contains("no samples"));
    }

    #[test]
    fn a_difference_compares_shares_and_not_lengths_of_runs() {
        let before = Stacks::from_folded("a 50\nb 50\n");
        let same = difference(&before, &Stacks::from_folded("a 500\nb 500\n"), LOOK);
        assert!(!same.contains("--f-more"), "{same}");
        let moved = difference(&before, &Stacks::from_folded("a 500\nb 1500\n"), LOOK);
        assert!(moved.contains("b: 75.00 % now, 50.00 % before, +25.00 points"));
        assert!(moved.contains("a: 25.00 % now, 50.00 % before, -25.00 points"));
        assert!(moved.contains("--f-more") && moved.contains("--f-less"));
    }

    #[test]
    fn a_frame_of_another_parent_is_no_twin() {
        let before = Stacks::from_folded("a;x 50\nb 50\n");
        let after = Stacks::from_folded("a 50\nb;x 50\n");
        let svg = difference(&before, &after, LOOK);
        assert!(svg.contains("x: 50.00 % now, 0.00 % before"), "{svg}");
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(fitted("abcdefghij", 6.0 + 6.7 * 5.0), "…ghij");
        assert_eq!(fitted("abc", 200.0), "abc");
        assert_eq!(fitted("abc", 10.0), "");
    }

    #[test]
    fn a_file_of_its_own_holds_style_and_script() {
        let file = standalone(&graph(&Stacks::from_folded("a 1"), LOOK));
        assert!(file.starts_with("<?xml"));
        assert!(file.contains("k-engine") && file.contains("flameSearch"));
        assert!(file.ends_with("</svg>"));
    }
}
