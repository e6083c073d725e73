//! Planted bugs: patches that break the product on purpose, each of which a test must notice.
//!
//! ```text
//! NN-name.patch of crates/sim/planted ┐
//! crates/*/src ─────────────────────┴─► merge.rs: one copy of the crates, one switch a function
//!                                       copy.rs: target/planted, built once
//!                                       finders.rs: its tests with DENDRA_PLANTED=NN must fail,
//!                                                   and hold without it
//! ```
//!
//! Invariants
//! 1. A patch that no longer applies is an error that names it; no patch is ever skipped.
//! 2. The product's source holds no planted bug and no switch for one.
//!
//! Not here: bugs of the simulated world (`crates/sim/src/planted.rs`).
//! See: docs/verification.md, "Planted bugs".

mod copy;
mod finders;
mod merge;
mod patch;
mod patches;
mod record;

pub(crate) use patches::{FOLDER, stale};

use finders::{Finder, Tests};
use patch::Plant;
use patches::{merge, plants, read};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Searches at once: each keeps two threads busy only while it looks through many seeds.
const AT_ONCE: usize = 2;

/// Looks for one finder that notices each patch, of all or of those whose names hold one of the
/// words. With `--each` every finder has to. With `--search` it looks for finders and writes them
/// into the patches. With `--reseed` it writes the seeds that find them now. With `--record NAME`
/// it makes a patch of the changes that are not committed. True when every bug was found.
pub(crate) fn run(root: &Path, options: &[String]) -> bool {
    let (flags, words): (Vec<&String>, Vec<&String>) =
        options.iter().partition(|option| option.starts_with("--"));
    let flags: Vec<&str> = flags.into_iter().map(String::as_str).collect();
    let done = match flags.as_slice() {
        [] => all(root, &words, Goal::One),
        ["--each"] => all(root, &words, Goal::Each),
        ["--reseed"] => all(root, &words, Goal::Reseed),
        ["--search"] => all(root, &words, Goal::Search),
        ["--record"] if words.len() == 1 => record::record(root, words[0]),
        _ => Err(
            "options: NAME…, --each NAME…, --search NAME…, --reseed NAME…, --record NAME"
                .to_owned(),
        ),
    };
    if let Err(why) = &done {
        eprintln!("planted: {why}");
    }
    done.is_ok()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// One finder of each patch finds it.
    One,
    /// Each finder of each patch does.
    Each,
    /// Each finder finds its patch, perhaps with another seed, which is written into the patch.
    Reseed,
    /// The finders of each patch are written anew.
    Search,
}

fn all(root: &Path, words: &[&String], goal: Goal) -> Result<(), String> {
    let started = Instant::now();
    let plants = plants(read(root)?.into_iter())?;
    let source_of = |path: &str| fs::read_to_string(root.join(path)).ok();
    let merged = merge(&plants, source_of).map_err(|reasons| reasons.join("\n"))?;
    let copy = copy::write(root, &merged)?;
    let wanted = |plant: &&Plant| {
        words.is_empty() || words.iter().any(|word| plant.name.contains(word.as_str()))
    };
    let wanted: Vec<&Plant> = plants.iter().filter(wanted).collect();
    if wanted.is_empty() {
        return Err(format!("no patch is called {words:?}"));
    }
    let mut finders: Vec<&Finder> = wanted.iter().flat_map(|plant| &plant.finders).collect();
    let known = finders::known();
    if goal == Goal::Search {
        finders.extend(&known);
    }
    let tests = Tests::build(&copy, &finders)?;
    println!("built after {:.0} s", started.elapsed().as_secs_f64());

    let next = AtomicUsize::new(0);
    let missed: Mutex<Vec<String>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(plant) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = match goal {
                        Goal::One => check_one(&tests, plant),
                        Goal::Each => check(&tests, plant).map(drop),
                        Goal::Reseed => check(&tests, plant)
                            .and_then(|found| write_finders(root, plant, &found)),
                        Goal::Search => search(&tests, &known, plant, root),
                    };
                    if let Err(why) = ended {
                        println!("{}: {why}", plant.name);
                        let why = format!("{}: {why}", plant.name);
                        missed.lock().expect("no holder panics").push(why);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no holder panics");
    println!(
        "planted: {} of {} bugs found, {:.0} s",
        wanted.len() - missed.len(),
        wanted.len(),
        started.elapsed().as_secs_f64()
    );
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not as it should be:\n{}", missed.join("\n")))
    }
}

/// A finder of a patch finds it, and no fault without it. Seeds are asked before whole files of
/// tests, and those that the patch names before all others.
fn check_one(tests: &Tests, plant: &Plant) -> Result<(), String> {
    let mut finders = some_finders(plant)?.to_vec();
    finders.sort_by_key(|finder| matches!(finder, Finder::Test { .. }));
    let as_named = finders
        .iter()
        .map(|finder| tests.find_at(finder, plant.number));
    let by_others = finders
        .iter()
        .map(|finder| tests.find_from_zero(finder, plant.number));
    for found in as_named.chain(by_others) {
        if let Some(by) = found?
            && tests.hold(&by)?
        {
            println!("{}: {by}", plant.name);
            return Ok(());
        }
    }
    Err("none of its finders finds it".to_owned())
}

fn some_finders(plant: &Plant) -> Result<&[Finder], String> {
    if plant.finders.is_empty() {
        return Err(format!(
            "no line says `Found by:`; cargo xtask planted --search {} looks for one",
            plant.name
        ));
    }
    Ok(&plant.finders)
}

/// The finders of a patch with the seeds that find it; none finds a fault without it.
fn check(tests: &Tests, plant: &Plant) -> Result<Vec<Finder>, String> {
    some_finders(plant)?;
    let (mut found, mut words) = (Vec::new(), Vec::new());
    for finder in &plant.finders {
        let Some(by) = tests.find(finder, plant.number)? else {
            return Err(format!("`{finder}` does not find it"));
        };
        if !tests.hold(&by)? {
            return Err(format!("`{by}` fails without any bug"));
        }
        words.push(by.to_string());
        if by != *finder {
            words.push(format!("(the patch says {finder})"));
        }
        found.push(by);
    }
    println!("{}: {}", plant.name, words.join(" "));
    Ok(found)
}

/// Tries every finder from its first seed on, and writes those that find the bug into its patch.
fn search(tests: &Tests, known: &[Finder], plant: &Plant, root: &Path) -> Result<(), String> {
    let mut finders = known.to_vec();
    for finder in &plant.finders {
        if !finders.iter().any(|other| other.is_like(finder)) {
            finders.push(finder.clone());
        }
    }
    let mut found = Vec::new();
    for finder in &finders {
        found.extend(tests.find_from_zero(finder, plant.number)?);
    }
    if found.is_empty() {
        return Err("nothing finds it".to_owned());
    }
    let words: Vec<String> = found.iter().map(Finder::to_string).collect();
    println!("{}: {}", plant.name, words.join(", "));
    write_finders(root, plant, &found)
}

fn write_finders(root: &Path, plant: &Plant, found: &[Finder]) -> Result<(), String> {
    let path = root.join(FOLDER).join(format!("{}.patch", plant.name));
    let text = plant.with_finders(found);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
