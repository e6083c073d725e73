//! A sample of mutants: small changes of the hearts, each of which tests must notice.
//!
//! ```text
//! cargo mutants --list ─► drawn by a seed ─► one copy with a switch a function ─► judge.rs: by
//!                                            (planted/merge.rs), built once        tests that
//!                                                                                  reach it
//! target/mutants/       the copy, and its builds: the planted bugs have packages of the same names
//! target/mutants-*.txt  caught, missed, unviable, unfit: the lists of the last run
//! ```
//!
//! Invariants
//! 1. A seed draws the same mutants as long as their functions stay; other lines in a file make no
//!    difference.
//! 2. A missed mutant is a result. The run fails when a test fails without any mutant, or when less
//!    than `--least` percent of the judged ones are caught.
//! 3. A mutant that does not compile is taken out by the error that names its line, and counted.
//!
//! Not here: which files and changes count (`.cargo/mutants.toml`).
//! See: docs/verification.md, section "Mutants".

mod at_once;
mod judge;
mod listed;

use crate::planted::copy;
use crate::planted::finders::cargo_in;
use crate::planted::merge::{Change, Merged, merge};
use at_once::at_once;
use judge::{Judges, Verdict};
use listed::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Mutants of one sample, unless it is said otherwise.
const COUNT: usize = 300;

/// How long a sample may take, unless it is said otherwise.
const MINUTES: u64 = 60;

struct Wanted {
    seed: u64,
    count: usize,
    minutes: u64,
    /// So many of the sample were judged before.
    from: usize,
    /// Mutants of files whose paths hold this alone.
    file: String,
    /// The run fails when fewer of the judged ones are caught, in percent.
    least: usize,
}

/// Draws a sample, judges it and prints the mutants that were caught and missed; true when the
/// sample was judged.
pub(crate) fn run(root: &Path, options: &[String]) -> bool {
    let judged = parse(options).and_then(|wanted| judge(root, &wanted));
    if let Err(why) = &judged {
        eprintln!("mutants: {why}");
    }
    judged.is_ok()
}

fn parse(options: &[String]) -> Result<Wanted, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut wanted = Wanted {
        // Another sample every day.
        seed: since.map_or(0, |since| since.as_secs() / 86_400),
        count: COUNT,
        minutes: MINUTES,
        from: 0,
        file: String::new(),
        least: 0,
    };
    let mut rest = options.iter();
    while let Some(name) = rest.next() {
        if name == "--file" {
            let file = rest.next().ok_or("--file takes a part of a path")?;
            wanted.file.clone_from(file);
            continue;
        }
        let number = rest.next().and_then(|text| text.parse::<u64>().ok());
        let number = number.ok_or_else(|| format!("{name} takes a number"))?;
        match name.as_str() {
            "--seed" => wanted.seed = number,
            "--count" | "--from" | "--least" => {
                let many = usize::try_from(number).map_err(|_| format!("{number} is too many"))?;
                match name.as_str() {
                    "--count" => wanted.count = many,
                    "--least" => wanted.least = many,
                    _ => wanted.from = many,
                }
            }
            "--minutes" => wanted.minutes = number,
            _ => {
                return Err(format!(
                    "`{name}` is no option: --seed, --count, --from, --minutes, --file, --least"
                ));
            }
        }
    }
    Ok(wanted)
}

fn judge(root: &Path, wanted: &Wanted) -> Result<(), String> {
    let ends = Instant::now() + Duration::from_secs(60 * wanted.minutes);
    let mut all = listed::list(root)?;
    all.retain(|mutant| mutant.file.contains(&wanted.file));
    let names: Vec<String> = all.iter().map(|mutant| mutant.name.clone()).collect();
    let drawn: BTreeSet<String> = draw(&names, wanted.seed, wanted.count)
        .into_iter()
        .collect();
    all.retain(|mutant| drawn.contains(&mutant.name));
    println!(
        "seed {}: {} of {} mutants, {} minutes",
        wanted.seed,
        all.len(),
        names.len(),
        wanted.minutes
    );
    let mut found = Found::default();
    let copy = viable(root, &mut all, &mut found)?;
    let packages: BTreeSet<&str> = all.iter().map(|mutant| mutant.package.as_str()).collect();
    let judges = Judges::build(&copy, &packages)?;

    let shared = Mutex::new(found);
    at_once(|next| {
        let at = wanted.from + next;
        let Some(mutant) = all.get(at).filter(|_| Instant::now() < ends) else {
            return Ok(false);
        };
        let verdict = judges.judge(number_at(at))?;
        println!("{at} {verdict}: {}", mutant.name);
        let mut found = shared.lock().expect("no holder panics");
        found.add(&mutant.name, verdict);
        Ok(true)
    })?;
    let found = shared.into_inner().expect("no holder panics");
    found.keep(&root.join("target"))?;
    println!("{}", found.summary(drawn.len()));
    found.enough(wanted.least)
}

/// The number that switches on the mutant at `at` of the sample.
fn number_at(at: usize) -> u32 {
    u32::try_from(at + 1).expect("a sample is small")
}

/// The copy with all of `mutants` in it that compile; the others are taken out and counted.
fn viable(root: &Path, mutants: &mut Vec<Mutant>, found: &mut Found) -> Result<PathBuf, String> {
    let source_of = |path: &str| fs::read_to_string(root.join(path)).ok();
    loop {
        let mut changes = Vec::new();
        for (at, mutant) in mutants.iter().enumerate() {
            let text = source_of(&mutant.file).unwrap_or_default();
            changes.push(Change {
                number: number_at(at),
                path: mutant.file.clone(),
                edits: mutant.edit(&text).into_iter().collect(),
            });
        }
        let (merged, unfit) = merge(changes, source_of);
        if !unfit.is_empty() {
            let numbers = unfit.into_iter().map(|(number, _)| number).collect();
            found.unfit.extend(taken_out(mutants, &numbers));
            continue;
        }
        let copy = copy::write(root, "mutants/copy", &merged)?;
        let wrong = wrong(&copy, &merged)?;
        if wrong.is_empty() {
            return Ok(copy);
        }
        found.unviable.extend(taken_out(mutants, &wrong));
    }
}

/// Takes the mutants with these numbers out; their names.
fn taken_out(mutants: &mut Vec<Mutant>, numbers: &BTreeSet<u32>) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    mutants.retain(|mutant| {
        let is_out = numbers.contains(&number_at(at));
        at += 1;
        if is_out {
            names.push(mutant.name.clone());
        }
        !is_out
    });
    names
}

/// The numbers of the mutants that the compiler refuses.
fn wrong(copy: &Path, merged: &Merged) -> Result<BTreeSet<u32>, String> {
    let mut command = cargo_in(copy)?;
    command.args(["check", "--keep-going", "--message-format", "json"]);
    let checked = command.stderr(Stdio::null()).output();
    let checked = checked.map_err(|error| format!("cargo does not start: {error}"))?;
    if checked.status.success() {
        return Ok(BTreeSet::new());
    }
    let text = String::from_utf8_lossy(&checked.stdout);
    let mut numbers = BTreeSet::new();
    for error in text.lines().filter_map(error_places) {
        let owners = error.iter().filter_map(|(file, line)| {
            let owner = *merged.get(file)?.owners.get(line.checked_sub(1)?)?;
            (owner != 0).then_some(owner)
        });
        numbers.extend(owners);
    }
    if numbers.is_empty() {
        return Err(format!(
            "the copy in {} does not compile, and no error names a mutant",
            copy.display()
        ));
    }
    Ok(numbers)
}

/// The files and lines that an error of the compiler names, of one line that cargo writes.
fn error_places(line: &str) -> Option<Vec<(String, usize)>> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let message = &message["message"];
    if message["level"] != "error" {
        return None;
    }
    let place = |span: &serde_json::Value| {
        let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
        Some((span["file_name"].as_str()?.to_owned(), line))
    };
    Some(
        message["spans"]
            .as_array()?
            .iter()
            .filter_map(place)
            .collect(),
    )
}

/// `count` of `all`, the same for the same seed.
fn draw(all: &[String], seed: u64, count: usize) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut ranked: Vec<(u64, &String)> = all
        .iter()
        .map(|name| {
            let place = without_line(name);
            let times = seen.entry(place.clone()).or_default();
            let rank = hash(format!("{seed} {place} {times}").as_bytes());
            *times += 1;
            (rank, name)
        })
        .collect();
    ranked.sort();
    ranked.truncate(count);
    ranked.into_iter().map(|(_, name)| name.clone()).collect()
}

/// `FILE:LINE:COLUMN: change` without line and column.
fn without_line(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    let (file, change) = (parts.next(), parts.nth(2));
    match (file, change) {
        (Some(file), Some(change)) => format!("{file}:{change}"),
        _ => name.to_owned(),
    }
}

/// FNV-1a, and the end of murmur3 after it: near texts would get near ranks.
fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

/// The findings of a sample.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    caught: BTreeMap<String, String>,
    missed: Vec<String>,
    /// The changed code does not compile.
    unviable: Vec<String>,
    /// The change is in a constant function, which has no switch.
    unfit: Vec<String>,
}

impl Found {
    fn add(&mut self, name: &str, verdict: Verdict) {
        match verdict {
            Verdict::Caught { by } => {
                self.caught.insert(name.to_owned(), by);
            }
            Verdict::Missed => self.missed.push(name.to_owned()),
            Verdict::NotReached => self.missed.push(format!("{name} (not reached)")),
        }
    }

    /// Writes the lists into `folder`.
    fn keep(&self, folder: &Path) -> Result<(), String> {
        let caught = self.caught.iter().map(|(name, by)| format!("{name}: {by}"));
        let lists = [
            ("caught", caught.collect()),
            ("missed", self.missed.clone()),
            ("unviable", self.unviable.clone()),
            ("unfit", self.unfit.clone()),
        ];
        for (name, lines) in lists {
            let path = folder.join(format!("mutants-{name}.txt"));
            let text = lines.join("\n") + "\n";
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// How many of the judged ones were caught.
    fn percent(&self) -> usize {
        let caught = self.caught.len();
        100 * caught / (caught + self.missed.len()).max(1)
    }

    /// A sample of which no mutant was judged is not enough either.
    fn enough(&self, least: usize) -> Result<(), String> {
        let percent = self.percent();
        if percent < least {
            return Err(format!(
                "{percent} % are caught, and --least asks for {least} %"
            ));
        }
        Ok(())
    }

    fn summary(&self, drawn: usize) -> String {
        let (caught, missed) = (self.caught.len(), self.missed.len());
        let judged = caught + missed;
        let mut out = String::new();
        for name in &self.missed {
            out.push_str(&format!("missed: {name}\n"));
        }
        let percent = self.percent();
        let (unviable, unfit) = (self.unviable.len(), self.unfit.len());
        let left = drawn - judged - unviable - unfit;
        out.push_str(&format!(
            "mutants: {caught} of {judged} caught ({percent} %), {missed} missed, \
             {unviable} do not compile, {unfit} in constant functions, {left} not judged"
        ));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        let name = |n: usize| {
            format!(
                "crates/node/src/a.rs:{n}:9: replace + with - in f{}",
                n % 50
            )
        };
        (0..200).map(name).collect()
    }

    #[test]
    fn a_seed_draws_the_same_and_another_seed_draws_others() {
        let (first, again) = (draw(&names(), 1, 20), draw(&names(), 1, 20));
        assert_eq!(first, again);
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 20);
        assert_ne!(first, draw(&names(), 2, 20));
        assert_eq!(draw(&names(), 1, 500).len(), 200);
    }

    #[test]
    fn lines_above_do_not_change_what_is_drawn() {
        let moved = |name: &String| without_line(name);
        let lower: Vec<String> = (0..200)
            .map(|n| {
                format!(
                    "crates/node/src/a.rs:{}:9: replace + with - in f{}",
                    n + 7,
                    n % 50
                )
            })
            .collect();
        let drawn = |all: &[String]| draw(all, 1, 20).iter().map(moved).collect::<Vec<_>>();
        assert_eq!(drawn(&names()), drawn(&lower));
    }

    #[test]
    fn a_summary_counts_what_was_judged() {
        let mut found = Found {
            unviable: vec!["d".to_owned()],
            unfit: vec!["e".to_owned()],
            ..Found::default()
        };
        for name in ["a", "b", "c"] {
            let by = "lib".to_owned();
            found.add(name, Verdict::Caught { by });
        }
        found.add("f", Verdict::Missed);
        found.add("g", Verdict::NotReached);
        let summary = found.summary(8);
        assert!(summary.contains("missed: g (not reached)\n"), "{summary}");
        assert!(
            summary.ends_with(
                "mutants: 3 of 5 caught (60 %), 2 missed, 1 do not compile, \
                 1 in constant functions, 1 not judged"
            ),
            "{summary}"
        );
        assert_eq!(found.enough(60), Ok(()));
        assert!(found.enough(61).is_err());
        assert!(Found::default().enough(1).is_err());
    }

    #[test]
    fn an_error_names_its_lines_and_a_warning_none() {
        let line = r#"{"message":{"level":"error","spans":[{"file_name":"crates/node/src/a.rs","line_start":7}]}}"#;
        assert_eq!(
            error_places(line),
            Some(vec![("crates/node/src/a.rs".to_owned(), 7)])
        );
        assert_eq!(error_places(&line.replace("error", "warning")), None);
    }

    #[test]
    fn options_are_numbers_with_known_names() {
        let options =
            |words: &[&str]| parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        let wanted = options(&["--seed", "3", "--minutes", "5"]).expect("both are options");
        assert_eq!((wanted.seed, wanted.count, wanted.minutes), (3, COUNT, 5));
        assert!(options(&["--seed"]).is_err());
        assert!(options(&["--speed", "3"]).is_err());
    }
}
