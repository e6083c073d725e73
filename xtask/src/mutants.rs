//! A sample of mutants: small changes of the hearts, each of which the quick tests of its crate
//! must notice.
//!
//! ```text
//! cargo mutants --list ─► drawn by a seed ─► node and wire: all their tests      ─┐
//!                                            engine: its quick tests alone        ├─► caught, missed
//!                         until the time is over                                 ─┘
//! target/mutants/drawn.txt     the sample
//!                missed.txt    every mutant that was ever missed here
//! ```
//!
//! Invariants
//! 1. A seed draws the same mutants as long as their functions stay; other lines in a file change
//!    nothing.
//! 2. A missed mutant is a result, not a failure: the run fails when a test fails without any
//!    mutant.
//!
//! Not here: which files and changes count (`.cargo/mutants.toml`).
//! See: docs/verification.md, section "Mutants".

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Mutants of one sample, unless it is said otherwise: about what an hour is enough for.
const COUNT: usize = 120;

/// How long a sample may take, unless it is said otherwise.
const MINUTES: u64 = 60;

/// The engine's tests that take seconds. Its crash tests take minutes.
const ENGINE_TESTS: [&str; 7] = [
    "--lib", "--test", "model", "--test", "promises", "--test", "log",
];

/// What cargo-mutants ends with when it did its work: all caught, some missed, some too slow.
const DONE: [i32; 3] = [0, 2, 3];

struct Wanted {
    seed: u64,
    count: usize,
    minutes: u64,
}

/// Draws a sample, judges it and prints what was caught and missed; true when the sample was
/// judged.
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
    };
    let mut rest = options.iter();
    while let Some(name) = rest.next() {
        let number = rest.next().and_then(|text| text.parse::<u64>().ok());
        let number = number.ok_or_else(|| format!("{name} takes a number"))?;
        match name.as_str() {
            "--seed" => wanted.seed = number,
            "--count" => {
                wanted.count =
                    usize::try_from(number).map_err(|_| format!("{number} is too many"))?;
            }
            "--minutes" => wanted.minutes = number,
            _ => return Err(format!("`{name}` is no option: --seed, --count, --minutes")),
        }
    }
    Ok(wanted)
}

fn judge(root: &Path, wanted: &Wanted) -> Result<(), String> {
    let ends = Instant::now() + Duration::from_secs(60 * wanted.minutes);
    let all = list(root)?;
    let drawn = draw(&all, wanted.seed, wanted.count);
    println!(
        "seed {}: {} of {} mutants, {} minutes",
        wanted.seed,
        drawn.len(),
        all.len(),
        wanted.minutes
    );
    let folder = root.join("target/mutants");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    fs::write(folder.join("drawn.txt"), drawn.join("\n") + "\n").map_err(failed)?;
    let mut found = Found::default();
    for (name, tests) in [("hearts", &[][..]), ("engine", &ENGINE_TESTS[..])] {
        let is_its = |mutant: &&String| mutant.starts_with("crates/engine/") == (name == "engine");
        let sample: Vec<&String> = drawn.iter().filter(is_its).collect();
        if sample.is_empty() {
            continue;
        }
        let output = folder.join(name);
        run_cargo_mutants(root, &output, &sample, tests, ends)?;
        found.read(&output.join("mutants.out"), &drawn)?;
    }
    found.keep(&folder.join("missed.txt")).map_err(failed)?;
    println!("{}", found.summary(drawn.len()));
    Ok(())
}

/// The names of all mutants.
fn list(root: &Path) -> Result<Vec<String>, String> {
    let listed = mutants(root)
        .args(["--list"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !listed.status.success() {
        return Err("cargo-mutants lists nothing: is it there? (make mutants-setup)".to_owned());
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

fn mutants(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("mutants").current_dir(root);
    command
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

/// FNV-1a, and the end of murmur3 behind it: near texts would get near ranks.
fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

/// A pattern that matches `name` and nothing else.
fn pattern(name: &str) -> String {
    let mut out = String::from("^");
    for letter in name.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out.push('$');
    out
}

/// Judges `sample` until it is done or the time is over; what was judged by then counts.
fn run_cargo_mutants(
    root: &Path,
    output: &Path,
    sample: &[&String],
    tests: &[&str],
    ends: Instant,
) -> Result<(), String> {
    let mut command = mutants(root);
    command
        .args(["--no-shuffle", "--jobs", "1", "--output"])
        .arg(output);
    let files: BTreeSet<&str> = sample
        .iter()
        .filter_map(|name| name.split(':').next())
        .collect();
    for file in files {
        command.args(["--file", file]);
    }
    for name in sample {
        command.args(["--re", &pattern(name)]);
    }
    command.arg("--").args(tests);
    let mut child = command
        .spawn()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    let pid = child.id();
    let (tell, told) = mpsc::sync_channel(1);
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        // The receiver is there until this thread has ended.
        tell.send(()).is_ok().then_some(status)
    });
    let left = ends.saturating_duration_since(Instant::now());
    let is_over = told.recv_timeout(left).is_err();
    if is_over {
        println!("the time is over");
        let stopped = Command::new("kill")
            .args(["-INT", &pid.to_string()])
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            return Err("cargo-mutants cannot be told to stop".to_owned());
        }
    }
    let status = waiter.join().expect("the thread only waits");
    match status {
        Some(Ok(status)) if is_over || status.code().is_some_and(|code| DONE.contains(&code)) => {
            Ok(())
        }
        Some(Ok(status)) => Err(format!("cargo-mutants failed: {status}")),
        Some(Err(error)) => Err(format!("cargo-mutants cannot be waited for: {error}")),
        None => Err("cargo-mutants ended unseen".to_owned()),
    }
}

/// What came of a sample. Deleted fields are judged in every run, whatever was drawn, and do not
/// count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    caught: usize,
    /// The tests did not end: that is noticed, too.
    slow: usize,
    /// The changed code does not compile.
    unviable: usize,
    missed: Vec<String>,
    /// Missed, and not drawn.
    beside: Vec<String>,
}

impl Found {
    /// Adds what cargo-mutants wrote into `folder`.
    fn read(&mut self, folder: &Path, drawn: &[String]) -> Result<(), String> {
        let names = |file: &str| {
            let path = folder.join(file);
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(text.lines().map(str::to_owned).collect::<Vec<String>>())
        };
        let is_drawn = |name: &String| drawn.contains(name);
        let count = |names: Vec<String>| names.iter().filter(|name| is_drawn(name)).count();
        self.caught += count(names("caught.txt")?);
        self.slow += count(names("timeout.txt")?);
        self.unviable += count(names("unviable.txt")?);
        let (missed, beside) = names("missed.txt")?.into_iter().partition(is_drawn);
        self.missed.extend::<Vec<String>>(missed);
        self.beside.extend::<Vec<String>>(beside);
        Ok(())
    }

    /// Adds the missed mutants to the list of all that were ever missed.
    fn keep(&self, list: &Path) -> std::io::Result<()> {
        let before = if list.exists() {
            fs::read_to_string(list)?
        } else {
            String::new()
        };
        let mut all: BTreeSet<&str> = before.lines().collect();
        all.extend(self.missed.iter().chain(&self.beside).map(String::as_str));
        let lines: Vec<&str> = all.into_iter().collect();
        fs::write(list, lines.join("\n") + "\n")
    }

    fn summary(&self, drawn: usize) -> String {
        let caught = self.caught + self.slow;
        let judged = caught + self.missed.len();
        let mut out = String::new();
        for name in self.missed.iter().chain(&self.beside) {
            out.push_str(&format!("missed: {name}\n"));
        }
        let percent = 100 * caught / judged.max(1);
        let (missed, unviable) = (self.missed.len(), self.unviable);
        let left = drawn - judged - unviable;
        out.push_str(&format!(
            "mutants: {caught} of {judged} caught ({percent} %), {missed} missed, \
             {unviable} do not compile, {left} not judged"
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
    fn a_pattern_matches_the_text_alone() {
        assert_eq!(
            pattern("a.rs:1:2: replace f -> Option<T> with None"),
            "^a\\.rs:1:2: replace f -> Option<T> with None$"
        );
        assert_eq!(pattern("(a|b)[c]"), "^\\(a\\|b\\)\\[c\\]$");
    }

    #[test]
    fn what_was_not_drawn_does_not_count() {
        let folder = std::env::temp_dir().join(format!("dendra-mutants-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for (file, text) in [
            ("caught.txt", "a\nb\nx\n"),
            ("timeout.txt", "c\n"),
            ("unviable.txt", "d\n"),
            ("missed.txt", "e\ny\n"),
        ] {
            fs::write(folder.join(file), text).expect("a file");
        }
        let drawn: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
        let mut found = Found::default();
        found.read(&folder, &drawn).expect("the files are there");
        let list = folder.join("all.txt");
        found.keep(&list).expect("the list is written");
        let summary = found.summary(drawn.len());
        assert!(
            summary.ends_with(
                "mutants: 3 of 4 caught (75 %), 1 missed, 1 do not compile, 1 not judged"
            ),
            "{summary}"
        );
        assert_eq!(fs::read_to_string(&list).expect("a list"), "e\ny\n");
        fs::remove_dir_all(&folder).expect("the folder is removed");
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
