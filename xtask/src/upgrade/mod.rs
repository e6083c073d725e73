//! `make upgrade-check`: a loaded cluster of three members is upgraded, downgraded and finalized.
//!
//! ```text
//! builds.rs    the release before, from a work tree of git in target/upgrade; this tree as the next one
//! members.rs   three processes, restarted one after the other, each when the one before is ready
//! load.rs      clients that write, read and count all the time, and know what was acknowledged
//!
//! before ×3 ─► one by one ─► next ×3 ─► one by one ─► before ×3 ─► one by one ─► next ×3 ─► finalize ─►
//! the release before does not start any more ─► next ×3 ─► every acknowledged write is there
//! ```
//!
//! This tree is built with the feature `next-version`: it knows one version of a cluster more than
//! it does as a release. So the check means something although both sides may be one commit.
//!
//! Invariants
//! 1. No acknowledged write is missing at any member, and no count is below the acknowledged one.
//! 2. Before the order no version is finalized, and the release before starts on all folders.
//! 3. Exit 0 means that every step held. A failure keeps the folders.
//!
//! Not here: bytes of formats (docs/format/).
//! See: docs/operating.md, "Upgrades"; docs/decisions/0036-one-version-for-a-cluster.md.

mod builds;
mod load;
mod members;

use builds::Builds;
use load::Load;
use members::Trio;
use std::path::Path;
use std::time::Instant;

/// The cluster is under load for so many acknowledged writes, at least, at each stage.
const WRITES_A_STAGE: u64 = 300;

/// Runs the check; true when everything held.
pub(crate) fn run(root: &Path) -> bool {
    let started = Instant::now();
    match check(root) {
        Ok(summary) => {
            println!(
                "\nupgrade-check: all held in {:.0} s: {summary}",
                started.elapsed().as_secs_f64()
            );
            true
        }
        Err(sentence) => {
            eprintln!("\nupgrade-check: {sentence}");
            eprintln!("folders and logs are in {}", place(root).display());
            false
        }
    }
}

fn place(root: &Path) -> std::path::PathBuf {
    root.join("target/upgrade")
}

fn check(root: &Path) -> Result<String, String> {
    let builds = Builds::make(root, &place(root))?;
    let mut trio = Trio::found(&builds.before, &place(root).join("members"))?;
    let load = Load::start(&trio.hosts());
    let said = roll_and_finalize(&builds, &mut trio, &load);
    let told = load.end();
    said?;
    let told = told?;
    told.verify(&trio.hosts())?;
    trio.stop()?;
    Ok(told.summary())
}

fn roll_and_finalize(builds: &Builds, trio: &mut Trio, load: &Load) -> Result<(), String> {
    let in_force = trio.version(0)?;
    stage("the release before, under load", load)?;
    for place in 0..3 {
        trio.restart(place, &builds.next)?;
        stage(&format!("member {place} runs the next release"), load)?;
        if place < 2 {
            let refused = trio.finalize(place)?;
            if refused.is_ok() {
                return Err("a cluster of two releases was finalized".to_owned());
            }
        }
    }
    for place in 0..3 {
        trio.restart(place, &builds.before)?;
        stage(
            &format!("member {place} is back at the release before"),
            load,
        )?;
    }
    for place in [1, 2, 0] {
        trio.restart(place, &builds.next)?;
        stage(&format!("member {place} runs the next release again"), load)?;
    }
    if trio.version(1)? != in_force {
        return Err("a version is in force that no operator ordered".to_owned());
    }
    // All links are up some moments after the last member is ready.
    let epoch = trio.finalize_until(1)?;
    for place in 0..3 {
        trio.wait_for_version_above(place, in_force)?;
    }
    stage(&format!("finalized by epoch {epoch}"), load)?;
    let sentence = trio.refuses(2, &builds.before)?;
    stage("the release before does not start any more", load)?;
    println!("    it says: {sentence}");
    trio.start(2, &builds.next)?;
    stage("the next release starts on that folder", load)
}

fn stage(name: &str, load: &Load) -> Result<(), String> {
    let started = Instant::now();
    let writes = load.wait_for(WRITES_A_STAGE)?;
    println!(
        "  ok  {name}: {writes} acknowledged writes in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
