//! The page of one run.
//!
//! ```text
//! title, command ─ banners ─ tiles ─ percentiles ─ over time ─ search ─ overload ─ stages ─ profiles
//! ─ generator ─ facts
//! ```
//!
//! Invariants
//! 1. The facts that a reader must know before believing a figure stand above it.
//! 2. A part without data is left out, heading included.
//!
//! Not here: pages of several runs (`compare.rs`).

use super::chart::Chart;
use super::format::significant;
use super::html::{below, figure, safe, section};
use super::timeline::Panel;
use super::{beyond, courses, latency, stages, timeline, words};
use crate::run::{PhaseKind, PhaseResult, Run};
use dendra_flame::{Look, Stacks};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// Puts the frame of a page around `body`.
pub(crate) fn shell(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{}</title>\n<style>\n{STYLE}{}</style></head>\n<body><main>\n{body}</main>\n\
         <div id=\"reading\" role=\"status\" hidden></div>\n<script>\n{}{}</script></body></html>\n",
        safe(title),
        dendra_flame::STYLE,
        dendra_flame::SCRIPT,
        SCRIPT
    )
}

/// The page of one run: one HTML file that needs no other one.
pub fn render_run(run: &Run) -> String {
    let title = title(run);
    let mut body = String::new();
    writeln!(
        body,
        "<header><p class=\"kicker\">Dendra lab</p><h1>{}</h1><pre class=\"command\">{}</pre></header>",
        safe(&title),
        unbroken(&command(run))
    )
    .expect("a string takes all text");
    body.push_str(&words::banners(run));
    body.push_str(&words::tiles(run));
    if let Some(phase) = run.headline() {
        body.push_str(&section("latency", "Latency", &latency_part(run, phase)));
    }
    body.push_str(&section("time", "Over time", &time_part(run)));
    body.push_str(&section(
        "search",
        "The saturation point",
        &search_part(run),
    ));
    body.push_str(&section("overload", "Beyond it", &overload_part(run)));
    body.push_str(&section("stages", "Inside the server", &stages_part(run)));
    body.push_str(&section("profiles", "Profiles", &profiles_part(run)));
    let generator =
        "The load generator is part of the measurement: how late it sent, and how busy it was.";
    let generator = format!("<p>{generator}</p>{}", words::generator(run).html());
    body.push_str(&section(
        "generator",
        "The instrument's own error",
        &generator,
    ));
    body.push_str(&section("facts", "To repeat it", &words::facts(run).html()));
    shell(&title, &body)
}

/// A name for a run: its kind, its rate, its targets.
pub(crate) fn title(run: &Run) -> String {
    let targets: Vec<&str> = run.targets.iter().map(|t| t.url.as_str()).collect();
    let name = if run.workload.name.is_empty() {
        "run"
    } else {
        run.workload.name.as_str()
    };
    match run.settings.rate {
        rate if rate > 0.0 => format!(
            "{name} at {} a second, {} connections, {}",
            super::format::short(rate),
            run.settings.connections,
            targets.join(", ")
        ),
        _ => format!(
            "{name}, {} connections, {}",
            run.settings.connections,
            targets.join(", ")
        ),
    }
}

/// The command line as one would type it.
pub(crate) fn command(run: &Run) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@{}<>".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) && !word.contains(['<', '>', '{']) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    run.command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A command whose words do not break at their hyphens.
fn unbroken(command: &str) -> String {
    let words = command
        .split(' ')
        .map(|word| format!("<span>{}</span>", safe(word)));
    words.collect::<Vec<_>>().join(" ")
}

/// The name of a target.
fn target(run: &Run, at: usize) -> &str {
    let target = run.targets.get(at);
    target.map_or("a server", |target| target.url.as_str())
}

fn draw(chart: &Chart, below: &str) -> String {
    figure(&chart.title, &chart.svg(), below)
}

fn latency_part(run: &Run, phase: &PhaseResult) -> String {
    let mut out = String::new();
    let curves = latency::curves_of(phase);
    if !curves.is_empty() {
        let lost = latency::lost_words(phase);
        let below = if lost.is_some() {
            "The axis counts every planned request. The tinted part had no good answer, so the curves end there; \
             what was given up after the timeout is in the response time with the time it had waited."
        } else {
            "The axis counts every planned request: all of them were answered as asked."
        };
        let title = format!("Percentiles of “{}”", phase.name);
        out.push_str(&draw(&latency::curves_chart(&title, &curves, lost), below));
    }
    let by_op = latency::curves_by_op(phase);
    if by_op.len() > 1 {
        out.push_str(&draw(
            &latency::curves_chart("By operation", &by_op, None),
            "Each curve counts the planned requests of its own operation.",
        ));
    }
    out.push_str(&words::operations(phase).html());
    out += &below(words::statuses(phase));
    out.push_str(&words::targets(run, phase).html());
    out
}

fn time_part(run: &Run) -> String {
    let mut out = String::new();
    let mut panels: Vec<Panel> = timeline::throughput(run).into_iter().collect();
    let errors = timeline::errors(run);
    let is_clean = errors.is_none() && !panels.is_empty();
    panels.extend(errors);
    panels.extend(timeline::waiting(run));
    let counted: Vec<&PhaseResult> = run
        .phases
        .iter()
        .filter(|p| p.kind != PhaseKind::Preload)
        .collect();
    let length_s = timeline::span_s(run);
    let heat = latency::heat_chart(
        "Response time, by the second in which a request was due",
        &counted,
        length_s,
    );
    for (at, panel) in panels.iter().enumerate() {
        out.push_str(&figure(&panel.caption, &panel.chart.svg(), ""));
        if at == 0 {
            if is_clean {
                out += &below("No request was refused, failed, timed out or lost its connection.");
            }
            if let Some(heat) = &heat {
                let below = "Stronger means more requests, on a logarithmic scale; each row is a quarter of an octave.";
                out.push_str(&draw(heat, below));
            }
        }
    }
    for server in &run.servers {
        let own_panels = timeline::server(run, server);
        if own_panels.is_empty() {
            continue;
        }
        let name = safe(target(run, server.target));
        out += &format!("<h3>What {name} said of itself, on the same axis</h3>");
        for panel in own_panels {
            out.push_str(&figure(&panel.caption, &panel.chart.svg(), ""));
        }
        if server.failures > 0 {
            let failures = server.failures;
            out += &below(format!("{failures} samples could not be taken."));
        }
    }
    out
}

fn search_part(run: &Run) -> String {
    let Some(search) = &run.search else {
        return String::new();
    };
    let mut out = format!("<p class=\"lead\">{}</p>", safe(&search.sentence));
    if !search.steps.is_empty() {
        out.push_str(&draw(&courses::search_chart(search), ""));
    }
    out.push_str(&courses::search_table(search).html());
    out
}

fn overload_part(run: &Run) -> String {
    let Some(overload) = &run.overload else {
        return String::new();
    };
    let level =
        "A server that keeps its head goes on level beyond the knee; one that loses it falls.";
    let mut out = draw(&courses::overload_chart(run, overload), level);
    out.push_str(&courses::overload_table(overload).html());
    for sentence in beyond::sentences(run, overload) {
        out += &below(sentence);
    }
    for panel in beyond::panels(run, overload) {
        out.push_str(&figure(&panel.caption, &panel.chart.svg(), ""));
    }
    out
}

fn stages_part(run: &Run) -> String {
    let mut out = String::new();
    for server in &run.servers {
        let stages = stages::stages(server);
        if stages.is_empty() {
            continue;
        }
        let name = target(run, server.target);
        let caption = format!("Mean time in each stage of a request, by {name} itself");
        let below = "From the server's own histograms over the whole run, preload included: \
                     percentiles are bounds of buckets.";
        out.push_str(&figure(&caption, &stages::svg(&stages), below));
    }
    out
}

fn profiles_part(run: &Run) -> String {
    let mut out = String::new();
    for (at, profile) in run.profiles.iter().enumerate() {
        let name = target(run, profile.target);
        let caption = format!(
            "{}: {name}, {} s from second {}",
            profile_words(&profile.kind),
            significant(profile.length_s),
            significant(profile.start_s)
        );
        out.push_str(&flame(
            &format!("flame-{at}"),
            &caption,
            |look| dendra_flame::graph(&Stacks::from_folded(&profile.folded), look),
            unit_of(&profile.kind),
        ));
    }
    out
}

/// A flame graph with its search field.
pub(crate) fn flame(
    id: &str,
    caption: &str,
    graph: impl FnOnce(Look<'_>) -> String,
    unit: &str,
) -> String {
    let svg = graph(Look {
        id,
        title: caption,
        unit,
    });
    format!(
        "<figure class=\"flames\"><figcaption>{}<input type=\"search\" data-flame=\"{id}\" \
         placeholder=\"find a function\" aria-label=\"find a function\"></figcaption>\
         <div class=\"scroll tall\">{svg}</div></figure>\n",
        safe(caption)
    )
}

/// The content of a kind of profile.
pub(crate) fn profile_words(kind: &str) -> String {
    match kind {
        "cpu" => "CPU time".to_owned(),
        "wall" => "Wall time of all threads, at work and waiting".to_owned(),
        "alloc" => "Allocated bytes".to_owned(),
        "lock" => "Time spent waiting for locks".to_owned(),
        other => format!("Profile “{other}”"),
    }
}

/// The unit of a kind of profile.
pub(crate) fn unit_of(kind: &str) -> &'static str {
    match kind {
        "alloc" => "bytes",
        "lock" => "µs",
        _ => "samples",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = [
            "dendra",
            "bench",
            "http://a:1",
            "--slo",
            "p99<10ms",
            "--note",
            "it's",
        ];
        let run = Run {
            command: words.map(str::to_owned).to_vec(),
            ..sample()
        };
        assert_eq!(
            command(&run),
            "dendra bench http://a:1 --slo 'p99<10ms' --note 'it'\\''s'"
        );
    }

    fn sample() -> Run {
        let text = br#"{"format":1,"tool":{"name":"","version":""},"command":[],"started_unix_ms":0,"length_s":0,
            "machine":{"cpus":0,"cpu_model":"","memory_bytes":0,"kernel":"","system":""},
            "settings":{"mode":"open","schedule":"","rate":0,"duration_s":0,"warmup_s":0,"connections":0,
            "threads":0,"pipeline":0,"timeout_ms":0,"seed":0},
            "workload":{"name":"","mix":{},"keys":0,"distribution":"","values":"","miss_ratio":0},
            "targets":[],"verdict":{"verdict":"valid"},"is_cut":false,"notes":[],"phases":[],"servers":[]}"#;
        Run::parse(text).expect("it has every field")
    }

    #[test]
    fn a_run_that_measured_nothing_says_so() {
        let page = render_run(&sample());
        assert!(page.contains("NOTHING WAS MEASURED"));
        assert!(!page.contains("id=\"latency\""));
    }
}
