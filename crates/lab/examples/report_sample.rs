//! Renders the page of a made-up run, an invalid one and a comparison into a folder, to be looked
//! at: `cargo run -p dendra-lab --example report_sample -- FOLDER`.

#[path = "../tests/sample/mod.rs"]
mod sample;

use dendra_lab::report::{render_compare, render_run};
use dendra_lab::run::Validity;
use sample::{Taste, run};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(
        std::env::args()
            .nth(1)
            .unwrap_or_else(|| "report-look".to_owned()),
    );
    std::fs::create_dir_all(&folder)?;
    let good = run(Taste::default());
    std::fs::write(folder.join("run.html"), render_run(&good))?;
    let mut bad = good.clone();
    bad.verdict = Validity::Invalid {
        reason: "the generator was the bottleneck: its send lag p99 was 14 ms, above 1 ms"
            .to_owned(),
    };
    bad.is_cut = true;
    std::fs::write(folder.join("invalid.html"), render_run(&bad))?;
    let runs: Vec<_> = (0..6)
        .map(|n| {
            let is_new = n % 2 == 1;
            let median_us = if is_new { 560.0 } else { 420.0 } + n as f64 * 4.0;
            let mut run = run(Taste {
                seed: n,
                median_us,
                frozen: None,
                ..Taste::default()
            });
            run.tool.commit = Some(if is_new { "c0ffee1" } else { "ba0d573" }.to_owned());
            run.phases.truncate(2);
            run
        })
        .collect();
    std::fs::write(folder.join("compare.html"), render_compare(&runs))?;
    println!("{}", folder.display());
    Ok(())
}
