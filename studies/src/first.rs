//! `make bench`: the figures of this machine with a fresh node, PUT and then GET, as pages to look
//! at.
//!
//! ```text
//! node on an empty folder ─► PUT: knee, 70 % of it, the same with profiles ─► GET: as PUT ─► compare, index.html
//! ```
//!
//! Invariants
//! 1. Under three minutes after the build: 1 s for each step of a search, 8 s for each measurement.
//!    A void measurement is made again once.
//! 2. Measurements are kept in `runs/<time>`, also when a run is void; the index says so.
//!
//! Not here: dated reports for the repository (the other tasks).
//! See: docs/lab/README.md.

use super::place::{Held, Place, find, output};
use super::report::{now, percent, time};
use super::run::{Bench, Figures};
use super::store::Server;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Records: 10 MB of keys and values, more than a memtable of the default size takes at once.
const KEYS: u32 = 100_000;

/// The objective of the search.
const OBJECTIVE: &str = "p99<10ms,errors<0.1%";

/// The measured rate, as a share of the knee: high enough to show queues, low enough to hold.
const SHARE: f64 = 0.7;

/// One operation: its search and its measurement.
struct Measured {
    name: &'static str,
    knee: Figures,
    plateau: Figures,
}

impl Measured {
    /// Was the generator the bottleneck in one of the two?
    fn is_void(&self) -> bool {
        self.knee.invalid.is_some() || self.plateau.invalid.is_some()
    }
}

/// Measures, writes the pages, says where they are.
pub(super) fn run(place: &Place) -> Held {
    let root = place
        .options
        .out
        .clone()
        .unwrap_or_else(|| place.root.join("runs"));
    let runs = root.join(now("%Y-%m-%d-%H%M%S"));
    fs::create_dir_all(&runs).map_err(|e| format!("{}: {e}", runs.display()))?;
    let node = Server::node(place, &place.folder.join("data"), &[])?;
    println!(
        "A node serves {} on an empty folder; {}.",
        node.url,
        place.sharing()
    );
    let mut measured = Vec::new();
    for (name, more) in [("put", ""), ("get", "--preload")] {
        measured.push(one(place, &node, &runs, name, more)?);
    }
    drop(node);
    let compared = runs.join("compare.html");
    let verdict = output(
        Command::new(&place.binary)
            .args(["bench", "compare", "--quiet", "--out"])
            .arg(&compared)
            .args(["put", "get"].map(|name| runs.join(name))),
    );
    // A side without a valid run has its page too, and is told about below.
    let is_void = measured.iter().any(|one| one.plateau.invalid.is_some());
    if let (Err(sentence), false) = (verdict, is_void) {
        println!("PUT and GET over each other: {sentence}");
    }
    let index = runs.join("index.html");
    fs::write(&index, index_page(place, &measured))
        .map_err(|e| format!("{}: {e}", index.display()))?;
    tell(&measured, &runs);
    open(&index);
    Ok(true)
}

fn one(
    place: &Place,
    node: &Server,
    runs: &Path,
    name: &'static str,
    more: &str,
) -> Result<Measured, String> {
    let seconds = place.options.seconds.unwrap_or(8.0);
    let common = format!("--workload {name} --keys {KEYS} --connections 256");
    println!(
        "\n{}: looking for the highest rate that holds {OBJECTIVE}",
        name.to_uppercase()
    );
    let knee = Bench::new(place, &node.url, &runs.join(format!("{name}-knee")))
        .with(&common)
        .with(more)
        .with(&format!(
            "--rate 4000 --duration {}s --warmup 200ms --find-max --slo {OBJECTIVE}",
            seconds / 8.0
        ))
        .word("--admin")
        .word(&node.admin)
        .shown()
        .attempts(1)
        .run()?;
    let rate = (knee.knee.unwrap_or(0.0) * SHARE).max(1000.0);
    println!(
        "{}: {seconds} s at {rate:.0} a second, and once more with profiles",
        name.to_uppercase()
    );
    let plateau = Bench::new(place, &node.url, &runs.join(name))
        .with(&common)
        .with(&format!(
            "--rate {rate:.0} --duration {seconds}s --profile cpu,wall,alloc,lock"
        ))
        .word("--admin")
        .word(&node.admin)
        .shown()
        .attempts(2)
        .run()?;
    Ok(Measured {
        name,
        knee,
        plateau,
    })
}

fn tell(measured: &[Measured], runs: &Path) {
    println!();
    for one in measured {
        let figures = &one.plateau;
        println!(
            "{}: {}\n     at {:.0}/s: p50 {}, p99 {}, p99.9 {}, refused {}{}",
            one.name.to_uppercase(),
            one.knee.knee_words,
            figures.planned_rate,
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.p999_us),
            percent(figures.refused),
            figures.mark()
        );
    }
    if measured.iter().any(Measured::is_void) {
        println!(
            "\nThe generator did not have its core to itself: what is marked invalid, or not known, must not be used.\n\
             Stop what else runs on this machine, and run `make bench` again."
        );
    }
    println!("\nThe pages, all of them whole files that need no network:");
    for page in [
        "index.html",
        "put/report.html",
        "get/report.html",
        "put-knee/report.html",
        "get-knee/report.html",
        "compare.html",
    ] {
        println!("  {}", runs.join(page).display());
    }
}

/// Shows the page where there is a desktop, or says how.
fn open(page: &Path) {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let opener: Option<PathBuf> = find("xdg-open", &[]).filter(|_| has_desktop);
    let shown = opener.is_some_and(|opener| {
        Command::new(opener)
            .arg(page)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if shown {
        println!("The first one is open in your browser.");
    } else {
        println!(
            "Open {} in a browser. There is no desktop here: from another machine, copy the folder\n  scp -r THIS-MACHINE:{} .",
            page.display(),
            page.parent().unwrap_or(page).display()
        );
    }
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}\
table{border-collapse:collapse;width:100%}th,td{padding:.4rem .7rem;border-bottom:1px solid #8884;text-align:right}\
th:first-child,td:first-child{text-align:left}li{margin:.3rem 0}";

fn index_page(place: &Place, measured: &[Measured]) -> String {
    let mut rows = String::new();
    let mut links = String::new();
    for one in measured {
        let (name, upper, figures) = (one.name, one.name.to_uppercase(), &one.plateau);
        let invalid = match &figures.invalid {
            Some(reason) => format!(" INVALID: {}", escape(reason)),
            None => String::new(),
        };
        write!(
            rows,
            "<tr><td>{upper}{invalid}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            one.knee.knee.map_or("–".to_owned(), |knee| format!("{knee:.0}")),
            figures.planned_rate,
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.p999_us),
            percent(figures.refused)
        )
        .expect("a string takes all text");
        write!(
            links,
            "<li><a href=\"{name}/report.html\">{upper} at {:.0} % of the knee</a>: percentiles, time, stages, flame graphs</li>\
             <li><a href=\"{name}-knee/report.html\">{upper}: the search for the knee</a>: {}</li>",
            SHARE * 100.0,
            escape(&one.knee.knee_words)
        )
        .expect("a string takes all text");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>make bench</title><style>{STYLE}</style></head>\
         <body><h1>One node, PUT and GET</h1><p>{KEYS} records of 100 bytes, 256 connections over loopback, {}. The knee is the highest \
         rate that held {}; the percentiles are response times from the planned instant.</p>\
         <table><thead><tr><th>operation</th><th>knee, a second</th><th>measured at</th><th>p50</th><th>p99</th><th>p99.9</th><th>refused</th></tr></thead>\
         <tbody>{rows}</tbody></table><ul>{links}<li><a href=\"compare.html\">GET laid over PUT</a>: curves and a differential flame graph</li></ul></body></html>\n",
        escape(&place.sharing()),
        escape(OBJECTIVE)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
