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
    /// As `Steps`, the area below tinted.
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
        let legend = self.legend_rows();
        let plot = Plot {
            left: LEFT,
            top: 14.0 + legend.len() as f64 * LEGEND_ROW,
            width: self.width - LEFT - RIGHT,
            height: self.height,
            x: self.x.scale,
            y: self.y.scale,
        };
        let height = plot.top + plot.height + BOTTOM;
        let mut svg = Svg::default();
        svg.raw(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {} {height}\" \
             width=\"100%\" role=\"img\" aria-label=\"",
            self.width
        ));
        svg.text(&self.title);
        svg.raw("\">");
        for (row, entries) in legend.iter().enumerate() {
            draw_legend(entries, 12.0 + row as f64 * LEGEND_ROW, &mut svg);
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

    fn legend_rows(&self) -> Vec<Vec<(&ChartLine, f64)>> {
        let mut rows: Vec<Vec<(&ChartLine, f64)>> = Vec::new();
        let mut x = f64::INFINITY;
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let room = 46.0 + line.name.chars().count() as f64 * CHARACTER;
            if x + room > self.width - RIGHT {
                rows.push(Vec::new());
                x = LEFT;
            }
            if let Some(row) = rows.last_mut() {
                row.push((line, x));
            }
            x += room;
        }
        rows
    }

    fn draw_behind(&self, plot: &Plot, svg: &mut Svg) {
        for band in &self.bands {
            let (from, to) = (plot.px(band.from), plot.px(band.to));
            svg.raw(format_args!(
                "<rect class=\"band {}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>",
                band.class,
                plot.top,
                (to - from).max(0.5),
                plot.height
            ));
            svg.text(&band.text);
            svg.raw("</title></rect>");
        }
        for &(left, right, low, high, strength) in &self.cells {
            let (x0, x1) = (plot.px(left), plot.px(right));
            let (y0, y1) = (plot.py(high), plot.py(low));
            svg.raw(format_args!(
                "<rect class=\"cell\" x=\"{x0:.1}\" y=\"{y0:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"{:.2}\"/>",
                (x1 - x0 + 0.15).max(0.3),
                (y1 - y0 + 0.15).max(0.3),
                strength.clamp(0.0, 1.0)
            ));
        }
        for band in &self.bands {
            let (from, to) = (plot.px(band.from), plot.px(band.to));
            let room = band.text.chars().count() as f64 * CHARACTER;
            // A band that is too narrow for its words keeps them as a title.
            let (x, anchor) = if room + 8.0 <= to - from {
                (from + 5.0, "start")
            } else if band.class == "lost" && room + 8.0 < from - plot.left {
                (from - 5.0, "end")
            } else {
                continue;
            };
            svg.raw(format_args!(
                "<text class=\"note\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">",
                plot.top + 13.0
            ));
            svg.text(&band.text);
            svg.raw("</text>");
        }
    }

    fn draw_axes(&self, plot: &Plot, svg: &mut Svg) {
        let (right, bottom) = (plot.left + plot.width, plot.top + plot.height);
        for (value, label) in &self.y.ticks {
            let y = plot.py(*value);
            svg.raw(format_args!(
                "<line class=\"grid\" x1=\"{}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">",
                plot.left,
                plot.left - 7.0,
                y + 4.0
            ));
            svg.text(label);
            svg.raw("</text>");
        }
        for (value, label) in &self.x.ticks {
            let x = plot.px(*value);
            svg.raw(format_args!(
                "<line class=\"grid up\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">",
                plot.top,
                bottom + 16.0
            ));
            svg.text(label);
            svg.raw("</text>");
        }
        svg.raw(format_args!(
            "<line class=\"axis\" x1=\"{}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>",
            plot.left
        ));
        if !self.x.label.is_empty() {
            svg.raw(format_args!(
                "<text class=\"label\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">",
                bottom + 33.0
            ));
            svg.text(&self.x.label);
            svg.raw("</text>");
        }
        if !self.y.label.is_empty() {
            let middle = plot.top + plot.height / 2.0;
            svg.raw(format_args!(
                "<text class=\"label\" x=\"13\" y=\"{middle:.1}\" text-anchor=\"middle\" \
                 transform=\"rotate(-90 13 {middle:.1})\">"
            ));
            svg.text(&self.y.label);
            svg.raw("</text>");
        }
    }

    fn draw_rules(&self, plot: &Plot, svg: &mut Svg) {
        for rule in &self.rules {
            let (x1, x2, y1, y2) = match rule {
                RuledLine::At { y, .. } => {
                    let y = plot.py(*y);
                    (plot.left, plot.left + plot.width, y, y)
                }
                RuledLine::Up { x, .. } => {
                    let x = plot.px(*x);
                    (x, x, plot.top, plot.top + plot.height)
                }
            };
            svg.raw(format_args!(
                "<line class=\"rule\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
            ));
            let (x, y, anchor, text) = match rule {
                RuledLine::At { text, .. } => (x1 + 6.0, y1 - 5.0, "start", text),
                RuledLine::Up { text, .. } if x1 > plot.left + plot.width * 0.7 => {
                    (x1 - 6.0, y2 - 7.0, "end", text)
                }
                RuledLine::Up { text, .. } => (x1 + 6.0, y2 - 7.0, "start", text),
            };
            svg.raw(format_args!(
                "<text class=\"note strong\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">"
            ));
            svg.text(text);
            svg.raw("</text>");
        }
    }

    fn draw_hover(&self, plot: &Plot, svg: &mut Svg) {
        if self.hover.is_empty() {
            return;
        }
        svg.raw("<g class=\"hover\" data-x=\"");
        for (at, (x, _)) in self.hover.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            svg.raw(format_args!("{comma}{:.1}", plot.px(*x)));
        }
        svg.raw("\" data-t=\"");
        for (at, (_, text)) in self.hover.iter().enumerate() {
            if at > 0 {
                svg.raw("|");
            }
            // Lines of one reading are parted by `~`, readings by `|`.
            svg.text(&text.replace('|', "¦").replace('\n', "~"));
        }
        svg.raw(format_args!(
            "\"><rect class=\"catch\" x=\"{}\" y=\"{:.1}\" width=\"{}\" height=\"{}\"/></g>",
            plot.left, plot.top, plot.width, plot.height
        ));
    }
}

struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: Scale,
    y: Scale,
}

impl Plot {
    fn px(&self, value: f64) -> f64 {
        self.left + self.x.at(value).clamp(0.0, 1.0) * self.width
    }

    fn py(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.at(value).clamp(0.0, 1.0)) * self.height
    }
}

fn draw_legend(entries: &[(&ChartLine, f64)], y: f64, svg: &mut Svg) {
    for (line, x) in entries {
        if line.form == Form::Dots {
            svg.raw(format_args!(
                "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{y}\" r=\"3.5\"/>",
                line.class,
                x + 11.0
            ));
        } else {
            svg.raw(format_args!(
                "<line class=\"line {}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>",
                line.class,
                x + 22.0
            ));
        }
        svg.raw(format_args!(
            "<text class=\"legend\" x=\"{:.1}\" y=\"{:.1}\">",
            x + 28.0,
            y + 4.0
        ));
        svg.text(&line.name);
        svg.raw("</text>");
    }
}

fn draw_line(line: &ChartLine, plot: &Plot, svg: &mut Svg) {
    let is_number = |p: &(f64, f64)| p.0.is_finite() && p.1.is_finite();
    for part in line.points.split(|p| !p.as_ref().is_some_and(is_number)) {
        let points: Vec<(f64, f64)> = part
            .iter()
            .flatten()
            .map(|&(x, y)| (plot.px(x), plot.py(y)))
            .collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            continue;
        };
        if line.form == Form::Dots || points.len() == 1 {
            for (x, y) in &points {
                svg.raw(format_args!(
                    "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>",
                    line.class
                ));
            }
            continue;
        }
        let mut path = Svg::default();
        let mut before: Option<(f64, f64)> = None;
        for (x, y) in &points {
            if let (Form::Steps | Form::FilledSteps, Some(before)) = (line.form, before) {
                let middle = f64::midpoint(before.0, *x);
                path.raw(format_args!(
                    "{middle:.1},{:.1} {middle:.1},{y:.1} ",
                    before.1
                ));
            }
            path.raw(format_args!("{x:.1},{y:.1} "));
            before = Some((*x, *y));
        }
        if line.form == Form::FilledSteps {
            let floor = plot.top + plot.height;
            svg.raw(format_args!(
                "<polygon class=\"fill {}\" points=\"{:.1},{floor:.1} {}{:.1},{floor:.1}\"/>",
                line.class, first.0, path.0, last.0
            ));
        }
        svg.raw(format_args!(
            "<polyline class=\"line {}\" points=\"{}\"/>",
            line.class,
            path.0.trim_end()
        ));
    }
}
