//! One chart as SVG: axes, lines, areas, cells, marks, and the values under a pointer.
//!
//! ```text
//!  title            legend: ── response  ╌╌ service
//!  y ┤        ╭──       plot area: everything is placed by the two scales
//!    ┤  ──────╯         bands stand behind, lines in front, marks on top
//!    └──┬────┬────┬ x   hover: for each x, the lines of text to show
//! ```
//!
//! Invariants
//! 1. Colour never speaks alone: each line has its own dashes and its name in the legend.
//! 2. Every text goes through `escape`; every coordinate is finite.
//! 3. Without its script the chart lacks only the pointer's reading.
//!
//! Not here: which numbers (`latency.rs`, `timeline.rs`, `courses.rs`), colours (`style.css`).

use super::scale::Scale;
use dendra_flame::escape;
use std::fmt::{Display, Write};

/// Left and right of the plot area: the same in every chart, so that charts under each other share
/// their time axis.
const LEFT: f64 = 74.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 40.0;
const LEGEND_ROW: f64 = 18.0;
/// Advance of one character of the page's face at 12 pixels, on the safe side.
const CHARACTER: f64 = 7.6;

/// Text that grows: writing to it cannot fail.
#[derive(Debug, Default)]
pub(crate) struct Svg(pub(crate) String);

impl Svg {
    /// Appends the text of `format_args!`. Requires: no letter in it needs escaping.
    pub(crate) fn raw(&mut self, text: impl Display) {
        write!(self.0, "{text}").expect("a string takes all text");
    }

    /// Appends text that means itself.
    pub(crate) fn text(&mut self, text: &str) {
        escape(text, &mut self.0);
    }

    /// Opens a drawing of this size, which `title` tells in words.
    pub(crate) fn open(&mut self, width: f64, height: f64, title: &str) {
        self.raw(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" \
             width=\"100%\" role=\"img\" aria-label=\""
        ));
        self.text(title);
        self.raw("\">");
    }

    /// Words that begin, end or stand in the middle (`anchor`) at a place.
    pub(crate) fn words(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        self.raw(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">"
        ));
        self.text(text);
        self.raw("</text>");
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.raw(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A box whose element stays open: its attributes and content follow.
    fn area(&mut self, class: &str, (x0, y0): (f64, f64), (x1, y1): (f64, f64)) {
        self.raw(format_args!(
            "<rect class=\"{class}\" x=\"{x0:.1}\" y=\"{y0:.1}\" width=\"{:.1}\" height=\"{:.1}\"",
            x1 - x0,
            y1 - y0
        ));
    }

    fn dot(&mut self, class: &str, (x, y): (f64, f64)) {
        self.raw(format_args!(
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
        ));
    }
}

/// A scale with its words.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) scale: Scale,
    /// The quantity and its unit; may be empty.
    pub(crate) label: String,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis with about `wanted` ticks, written by `say`.
    pub(crate) fn new(
        scale: Scale,
        label: &str,
        wanted: usize,
        say: impl Fn(f64) -> String,
    ) -> Axis {
        let ticks = scale.ticks(wanted);
        Axis {
            scale,
            label: label.to_owned(),
            ticks: ticks.into_iter().map(|v| (v, say(v))).collect(),
        }
    }

    /// From zero to `high` bytes, with ticks that are round in powers of 1024.
    pub(crate) fn for_bytes(high: f64) -> Axis {
        let power = (high.max(1.0).log2() / 10.0).floor().clamp(0.0, 4.0) as i32;
        let unit = 1024f64.powi(power);
        let scale = Scale::from_zero(high / unit);
        let ticks = scale.ticks(4).into_iter().map(|v| v * unit);
        Axis {
            scale: Scale::exact(0.0, scale.high() * unit),
            label: String::new(),
            ticks: ticks.map(|v| (v, super::format::bytes(v))).collect(),
        }
    }
}

/// A line through points; a gap where a point is missing.
#[derive(Clone, Debug)]
pub(crate) struct ChartLine {
    pub(crate) name: String,
    /// Class of colour and dashes in `style.css`: `s0` to `s7`, `plan`.
    pub(crate) class: &'static str,
    pub(crate) points: Vec<Option<(f64, f64)>>,
    pub(crate) form: Form,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// A line as `Steps`, the area below tinted.
    FilledSteps,
    /// Each value holds half of the way to its neighbours.
    Steps,
    /// Dots, not joined.
    Dots,
}

/// A tinted stretch of x, from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) class: &'static str,
    pub(crate) text: String,
}

/// A horizontal or vertical line with a word.
#[derive(Clone, Debug)]
pub(crate) enum RuledLine {
    At { y: f64, text: String },
    Up { x: f64, text: String },
}

/// A cell of a heat map: left, right, low, high, strength 0…1.
pub(crate) type HeatCell = (f64, f64, f64, f64, f64);

/// Everything of one chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The content, in words, for people that do not see it.
    pub(crate) title: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) bands: Vec<Band>,
    pub(crate) cells: Vec<HeatCell>,
    pub(crate) lines: Vec<ChartLine>,
    pub(crate) rules: Vec<RuledLine>,
    /// Where a pointer can read, and the lines it reads.
    pub(crate) hover: Vec<(f64, String)>,
}

impl Chart {
    /// An empty chart of the page's full width.
    pub(crate) fn new(title: &str, height: f64, x: Axis, y: Axis) -> Chart {
        Chart {
            title: title.to_owned(),
            width: 1120.0,
            height,
            x,
            y,
            bands: Vec::new(),
            cells: Vec::new(),
            lines: Vec::new(),
            rules: Vec::new(),
            hover: Vec::new(),
        }
    }

    /// Takes those axes of `other` that reach further, so that its lines fit in here.
    pub(crate) fn take_larger_axes(&mut self, other: &Chart) {
        for (own, theirs) in [(&mut self.x, &other.x), (&mut self.y, &other.y)] {
            if let (Scale::Linear { high: own_high, .. }, Scale::Linear { high, .. }) =
                (own.scale, theirs.scale)
                && high > own_high
            {
                *own = theirs.clone();
            }
        }
    }

    /// Draws it.
    pub(crate) fn svg(&self) -> String {
        let legend = self.legend();
        let top = 14.0 + legend.last().map_or(0.0, |(_, (_, row))| row + 1.0) * LEGEND_ROW;
        let plot = Plot {
            left: LEFT,
            top,
            right: self.width - RIGHT,
            bottom: top + self.height,
            x: self.x.scale,
            y: self.y.scale,
        };
        let mut svg = Svg::default();
        svg.open(self.width, plot.bottom + BOTTOM, &self.title);
        for (line, (x, row)) in legend {
            let y = 12.0 + row * LEGEND_ROW;
            match line.form {
                Form::Dots => svg.dot(line.class, (x + 11.0, y)),
                _ => svg.line(&format!("line {}", line.class), (x, y), (x + 22.0, y)),
            }
            svg.words("legend", (x + 28.0, y + 4.0), "start", &line.name);
        }
        self.draw_behind(&plot, &mut svg);
        self.draw_axes(&plot, &mut svg);
        for line in &self.lines {
            draw_line(line, &plot, &mut svg);
        }
        self.draw_rules(&plot, &mut svg);
        self.draw_hover(&plot, &mut svg);
        svg.raw("</svg>");
        svg.0
    }

    /// The named lines, each with its place in the legend: x, and the number of its row.
    fn legend(&self) -> Vec<(&ChartLine, (f64, f64))> {
        let (mut x, mut row) = (LEFT, 0.0);
        let named = self.lines.iter().filter(|line| !line.name.is_empty());
        let placed = named.map(|line| {
            let room = 46.0 + line.name.chars().count() as f64 * CHARACTER;
            if x > LEFT && x + room > self.width - RIGHT {
                (x, row) = (LEFT, row + 1.0);
            }
            let place = (x, row);
            x += room;
            (line, place)
        });
        placed.collect()
    }

    fn draw_behind(&self, plot: &Plot, svg: &mut Svg) {
        for band in &self.bands {
            let (from, to) = (plot.px(band.from), plot.px(band.to));
            let class = format!("band {}", band.class);
            svg.area(&class, (from, plot.top), (to.max(from + 0.5), plot.bottom));
            svg.raw("><title>");
            svg.text(&band.text);
            svg.raw("</title></rect>");
        }
        for &(left, right, low, high, strength) in &self.cells {
            let (x0, x1) = (plot.px(left), plot.px(right));
            let (y0, y1) = (plot.py(high), plot.py(low));
            // A little larger, so that no seam shows between neighbours.
            let end = ((x1 + 0.15).max(x0 + 0.3), (y1 + 0.15).max(y0 + 0.3));
            svg.area("cell", (x0, y0), end);
            svg.raw(format_args!(
                " fill-opacity=\"{:.2}\"/>",
                strength.clamp(0.0, 1.0)
            ));
        }
        for band in &self.bands {
            let (from, to) = (plot.px(band.from), plot.px(band.to));
            let room = band.text.chars().count() as f64 * CHARACTER + 8.0;
            let y = plot.top + 13.0;
            // A band that is too narrow for its words keeps them as a title.
            if room <= to - from {
                svg.words("note", (from + 5.0, y), "start", &band.text);
            } else if band.class == "lost" && room < from - plot.left {
                svg.words("note", (from - 5.0, y), "end", &band.text);
            }
        }
    }

    fn draw_axes(&self, plot: &Plot, svg: &mut Svg) {
        for (value, label) in &self.y.ticks {
            let y = plot.py(*value);
            svg.line("grid", (plot.left, y), (plot.right, y));
            svg.words("tick", (plot.left - 7.0, y + 4.0), "end", label);
        }
        for (value, label) in &self.x.ticks {
            let x = plot.px(*value);
            svg.line("grid up", (x, plot.top), (x, plot.bottom));
            svg.words("tick", (x, plot.bottom + 16.0), "middle", label);
        }
        svg.line("axis", (plot.left, plot.bottom), (plot.right, plot.bottom));
        if !self.x.label.is_empty() {
            svg.words(
                "label",
                (plot.right, plot.bottom + 33.0),
                "end",
                &self.x.label,
            );
        }
        if !self.y.label.is_empty() {
            let middle = f64::midpoint(plot.top, plot.bottom);
            svg.raw(format_args!("<g transform=\"rotate(-90 13 {middle:.1})\">"));
            svg.words("label", (13.0, middle), "middle", &self.y.label);
            svg.raw("</g>");
        }
    }

    fn draw_rules(&self, plot: &Plot, svg: &mut Svg) {
        for rule in &self.rules {
            match rule {
                RuledLine::At { y, text } => {
                    let y = plot.py(*y);
                    svg.line("rule", (plot.left, y), (plot.right, y));
                    svg.words("note strong", (plot.left + 6.0, y - 5.0), "start", text);
                }
                RuledLine::Up { x, text } => {
                    let x = plot.px(*x);
                    svg.line("rule", (x, plot.top), (x, plot.bottom));
                    let is_far = x > plot.left + (plot.right - plot.left) * 0.7;
                    let (x, anchor) = if is_far {
                        (x - 6.0, "end")
                    } else {
                        (x + 6.0, "start")
                    };
                    svg.words("note strong", (x, plot.bottom - 7.0), anchor, text);
                }
            }
        }
    }

    fn draw_hover(&self, plot: &Plot, svg: &mut Svg) {
        if self.hover.is_empty() {
            return;
        }
        let places = self
            .hover
            .iter()
            .map(|(x, _)| format!("{:.1}", plot.px(*x)));
        let places = places.collect::<Vec<_>>().join(",");
        svg.raw(format_args!(
            "<g class=\"hover\" data-x=\"{places}\" data-t=\""
        ));
        // Lines of one reading are parted by `~`, readings by `|`.
        let texts = self.hover.iter();
        let texts = texts.map(|(_, text)| text.replace('|', "¦").replace('\n', "~"));
        svg.text(&texts.collect::<Vec<_>>().join("|"));
        svg.raw("\">");
        svg.area("catch", (plot.left, plot.top), (plot.right, plot.bottom));
        svg.raw("/></g>");
    }
}

struct Plot {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl Plot {
    fn px(&self, value: f64) -> f64 {
        self.left + self.x.at(value).clamp(0.0, 1.0) * (self.right - self.left)
    }

    fn py(&self, value: f64) -> f64 {
        self.bottom - self.y.at(value).clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}

fn draw_line(line: &ChartLine, plot: &Plot, svg: &mut Svg) {
    let is_number = |p: &(f64, f64)| p.0.is_finite() && p.1.is_finite();
    for part in line.points.split(|p| !p.as_ref().is_some_and(is_number)) {
        let points = part.iter().flatten();
        let points: Vec<(f64, f64)> = points.map(|&(x, y)| (plot.px(x), plot.py(y))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            continue;
        };
        if line.form == Form::Dots || points.len() == 1 {
            points.iter().for_each(|&point| svg.dot(line.class, point));
            continue;
        }
        let mut path = format!("{:.1},{:.1}", first.0, first.1);
        for pair in points.windows(2) {
            let ((x0, y0), (x, y)) = (pair[0], pair[1]);
            if matches!(line.form, Form::Steps | Form::FilledSteps) {
                let middle = f64::midpoint(x0, x);
                path.push_str(&format!(" {middle:.1},{y0:.1} {middle:.1},{y:.1}"));
            }
            path.push_str(&format!(" {x:.1},{y:.1}"));
        }
        if line.form == Form::FilledSteps {
            svg.raw(format_args!(
                "<polygon class=\"fill {}\" points=\"{:.1},{bottom:.1} {path} {:.1},{bottom:.1}\"/>",
                line.class,
                first.0,
                last.0,
                bottom = plot.bottom
            ));
        }
        svg.raw(format_args!(
            "<polyline class=\"line {}\" points=\"{path}\"/>",
            line.class
        ));
    }
}
