//! One HTML file that shows a run, or several over each other, and needs no network.
//!
//! ```text
//! Run ─┬─ words.rs     verdict, headline, tables of facts
//!      ├─ latency.rs   percentile curves, heat map ─┐
//!      ├─ timeline.rs  panels on one time axis     ─┤ chart.rs ─ scale.rs    SVG
//!      ├─ stages.rs    where the time goes         ─┤
//!      ├─ courses.rs   search, overload            ─┤
//!      ├─ beyond.rs    the overload over time      ─┘
//!      └─ dendra_flame flame graphs
//! page.rs puts them together
//! runs ─ sides.rs ─ difference.rs, noise.rs ─┬─ compare.rs   page
//!                                            └─ said.rs      text
//! ```
//!
//! Invariants
//! 1. The page asks no server for anything: styles, script and drawings are inside.
//! 2. Every text of a run is escaped where it enters the page; a hostile server cannot write
//!    markup.
//! 3. An invalid or cut run says so before its first figure.
//! 4. A run that lacks a part gives a page that lacks that part, never an error.
//!
//! Not here: taking the numbers (`driver`), `run.json` (`run.rs`), the summary for terminals.
//! See: docs/lab/README.md.

mod beyond;
mod chart;
mod compare;
mod courses;
mod difference;
mod format;
mod hdr;
mod html;
mod latency;
mod noise;
mod page;
mod said;
mod scale;
mod sides;
mod stages;
mod timeline;
mod words;

pub use compare::{render_compare, render_sides};
pub use page::render_run;
pub use said::say_sides;
pub use sides::{Side, sides};
