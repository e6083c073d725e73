//! Tests that find a planted bug: they fail with it and hold without.
//!
//! ```text
//! sim 18                  seed 18 of the simulator            otherwise its first seeds
//! twin 6738               seed 6738 of the quick twin         otherwise its first seeds
//! moving 33               the same while owners change        otherwise its first seeds
//! forgetting 57           the same while members forget       otherwise its first seeds
//! restored 3              the same while the least successor number rises
//! wide 57                 the same of records with more copies
//! horizons 7              seed 7 of the simulator's horizons  otherwise its first seeds
//! copies 7                the same of records with more copies
//! lowered 7               the same, and the factor falls
//! losses 7                the same of members that are lost beside damage
//! expiring 7              the same of values that end while a clock is wrong
//! watched 7               the same of members that come and go, with clients that watch
//! overloaded 7            the same of members in front of which crowds stand
//! steward 4               seed 4 of the stewards' search      otherwise its first seeds
//! watch 11                seed 11 of the watches' search      otherwise its first seeds
//! test PACKAGE TARGET     all tests of a file of tests
//! test PACKAGE TARGET MODULE        all tests of one of its modules
//! ```
//!
//! Invariants
//! 1. A finder that failed to start is an error, not a bug found: only a test that says that it
//!    failed counts.
//!
//! Not here: which finder belongs to which patch (`patch.rs`).

use crate::built::{self, BuiltTest};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Why a lock is never poisoned.
const NO_PANIC: &str = "no holder panics";

/// A test that notices a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finder {
    /// A seed of a search.
    Seed {
        search: Search,
        seed: u64,
        rule: String,
    },
    /// A file of tests, or one module of it.
    Test {
        package: String,
        target: String,
        module: Option<String>,
    },
}

/// A search through seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    Sim,
    Twin,
    Moving,
    Forgetting,
    Restored,
    Wide,
    Horizons,
    Copies,
    Lowered,
    Losses,
    Expiring,
    Watched,
    Overloaded,
    Steward,
    Watch,
}

impl Search {
    const ALL: [Search; 15] = [
        Search::Sim,
        Search::Twin,
        Search::Moving,
        Search::Forgetting,
        Search::Restored,
        Search::Wide,
        Search::Horizons,
        Search::Copies,
        Search::Lowered,
        Search::Losses,
        Search::Expiring,
        Search::Watched,
        Search::Overloaded,
        Search::Steward,
        Search::Watch,
    ];

    fn word(self) -> &'static str {
        match self {
            Search::Sim => "sim",
            Search::Twin => "twin",
            Search::Moving => "moving",
            Search::Forgetting => "forgetting",
            Search::Restored => "restored",
            Search::Wide => "wide",
            Search::Horizons => "horizons",
            Search::Copies => "copies",
            Search::Lowered => "lowered",
            Search::Losses => "losses",
            Search::Expiring => "expiring",
            Search::Watched => "watched",
            Search::Overloaded => "overloaded",
            Search::Steward => "steward",
            Search::Watch => "watch",
        }
    }

    /// Package, target, test, variables of the first seed and of how many.
    fn test(self) -> [&'static str; 5] {
        match self {
            Search::Sim => [
                "dendra-sim",
                "seeds",
                "a_fixed_set_of_seeds_keeps_every_promise",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Twin => [
                "dendra-node",
                "twin",
                "no_seed_shows_what_one_register_could_not",
                "DENDRA_TWIN_FIRST",
                "DENDRA_TWIN_SEEDS",
            ],
            Search::Moving => [
                "dendra-node",
                "twin",
                "no_seed_shows_a_fault_while_owners_change",
                "DENDRA_TWIN_FIRST",
                "DENDRA_TWIN_SEEDS",
            ],
            Search::Forgetting => [
                "dendra-node",
                "twin",
                "no_seed_shows_a_fault_while_members_forget",
                "DENDRA_TWIN_FIRST",
                "DENDRA_TWIN_SEEDS",
            ],
            Search::Restored => [
                "dendra-node",
                "twin",
                "no_seed_shows_a_fault_while_the_least_successor_number_rises",
                "DENDRA_TWIN_FIRST",
                "DENDRA_TWIN_SEEDS",
            ],
            Search::Wide => [
                "dendra-node",
                "twin",
                "no_seed_shows_a_fault_while_records_have_more_copies",
                "DENDRA_TWIN_FIRST",
                "DENDRA_TWIN_SEEDS",
            ],
            Search::Copies => [
                "dendra-sim",
                "forgetting",
                "no_seed_breaks_a_promise_of_records_with_more_copies",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Lowered => [
                "dendra-sim",
                "forgetting",
                "no_seed_breaks_a_promise_while_the_factor_falls",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Losses => [
                "dendra-sim",
                "losses",
                "no_seed_breaks_a_promise_but_for_what_an_accepted_loss_takes",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Expiring => [
                "dendra-sim",
                "expiring",
                "no_seed_takes_a_value_or_a_lock_away_before_its_end",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Watched => [
                "dendra-sim",
                "watched",
                "no_seed_of_members_that_come_and_go_misleads_a_watcher",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Overloaded => [
                "dendra-sim",
                "overloads",
                "no_seed_of_an_overload_breaks_a_promise_a_bound_or_fairness",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Horizons => [
                "dendra-sim",
                "forgetting",
                "no_seed_breaks_a_promise_while_horizons_rise",
                "DENDRA_SIM_FIRST",
                "DENDRA_SIM_SEEDS",
            ],
            Search::Steward => [
                "dendra-ownership",
                "steward",
                "search::no_seed_breaks_the_stewards",
                "DENDRA_STEWARD_FIRST",
                "DENDRA_STEWARD_SEEDS",
            ],
            Search::Watch => [
                "dendra-watch",
                "world",
                "clients_of_watches_know_what_reads_show",
                "DENDRA_WATCH_FIRST",
                "DENDRA_WATCH_SEEDS",
            ],
        }
    }

    /// Seeds that are tried for one bug.
    fn seeds_max(self) -> u64 {
        match self {
            Search::Sim => 6_000,
            Search::Twin | Search::Moving | Search::Restored | Search::Watch => 20_000,
            Search::Forgetting | Search::Wide => 4_000,
            Search::Steward
            | Search::Horizons
            | Search::Copies
            | Search::Lowered
            | Search::Losses
            | Search::Expiring
            | Search::Watched
            | Search::Overloaded => 600,
        }
    }
}

/// Packages and files of tests that take seconds, and that `--search` tries.
const QUICK: [(&str, &str); 4] = [
    ("dendra-node", "compare"),
    ("dendra-node", "conversations"),
    ("dendra-ownership", "membership"),
    ("dendra-node", "one_node"),
];

/// All finders that `--search` tries.
pub(crate) fn known() -> Vec<Finder> {
    let seeds = Search::ALL.map(|search| Finder::Seed {
        search,
        seed: 0,
        rule: String::new(),
    });
    let tests = QUICK.map(|(package, target)| Finder::Test {
        package: package.to_owned(),
        target: target.to_owned(),
        module: None,
    });
    seeds.into_iter().chain(tests).collect()
}

impl Finder {
    /// Finder in the words after `Found by:`.
    pub(crate) fn parse(words: &str) -> Result<Finder, String> {
        let parts: Vec<&str> = words.split(' ').collect();
        if let ["test", package, target, module @ ..] = parts.as_slice()
            && module.len() <= 1
        {
            return Ok(Finder::Test {
                package: (*package).to_owned(),
                target: (*target).to_owned(),
                module: module.first().map(|name| (*name).to_owned()),
            });
        }
        let search = Search::ALL
            .into_iter()
            .find(|search| search.word() == parts[0]);
        let seed = parts.get(1).and_then(|seed| seed.parse().ok());
        match (search, seed) {
            (Some(search), Some(seed)) => Ok(Finder::Seed {
                search,
                seed,
                rule: parts[2..].join(" "),
            }),
            _ => Err(format!(
                "`{words}` is no finder: sim SEED, twin SEED, moving SEED, forgetting SEED, \
                 restored SEED, wide SEED, horizons SEED, copies SEED, lowered SEED, losses SEED, \
                 expiring SEED, watched SEED, overloaded SEED, steward SEED, watch SEED, test PACKAGE TARGET, test PACKAGE TARGET MODULE"
            )),
        }
    }

    /// Is it the same search or test, with any seed?
    pub(crate) fn is_like(&self, other: &Finder) -> bool {
        match (self, other) {
            (Finder::Seed { search, .. }, Finder::Seed { search: of, .. }) => search == of,
            (own, other) => own == other,
        }
    }

    fn target(&self) -> (&str, &str) {
        match self {
            Finder::Seed { search, .. } => {
                let [package, target, ..] = search.test();
                (package, target)
            }
            Finder::Test {
                package, target, ..
            } => (package, target),
        }
    }
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finder::Seed { search, seed, rule } => {
                let words = format!("{} {seed} {rule}", search.word());
                f.write_str(words.trim_end())
            }
            Finder::Test {
                package,
                target,
                module,
            } => {
                write!(f, "test {package} {target}")?;
                module.iter().try_for_each(|module| write!(f, " {module}"))
            }
        }
    }
}

/// The built tests of the copy.
pub(crate) struct Tests {
    copy: PathBuf,
    /// By package and target.
    executables: BTreeMap<(String, String), PathBuf>,
    /// Finders that have held without any bug: many patches name the same file of tests.
    held: Mutex<BTreeSet<String>>,
}

impl Tests {
    /// Builds the tests that `finders` name.
    pub(crate) fn build(copy: &Path, finders: &[&Finder]) -> Result<Tests, String> {
        let mut wanted: Vec<(&str, &str)> = finders.iter().map(|finder| finder.target()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut packages: Vec<&str> = wanted.iter().map(|(package, _)| *package).collect();
        packages.dedup();
        let packages = packages
            .into_iter()
            .flat_map(|package| ["--package", package]);
        let targets = wanted.iter().flat_map(|(_, target)| ["--test", target]);
        let built = build(copy, &packages.chain(targets).collect::<Vec<_>>())?;
        let executables = built
            .into_iter()
            .map(|test| ((test.package, test.target), test.path));
        let executables = executables.collect();
        Ok(Tests {
            copy: copy.to_owned(),
            executables,
            held: Mutex::default(),
        })
    }

    /// Does `finder` hold without any bug?
    pub(crate) fn hold(&self, finder: &Finder) -> Result<bool, String> {
        let name = finder.to_string();
        if self.held.lock().expect(NO_PANIC).contains(&name) {
            return Ok(true);
        }
        let held = self.find_at(finder, 0)?.is_none();
        if held {
            self.held.lock().expect(NO_PANIC).insert(name);
        }
        Ok(held)
    }

    /// Which finder like `finder` notices the bug `number`: it with its own seed, or the first seed
    /// that does.
    pub(crate) fn find(&self, finder: &Finder, number: u32) -> Result<Option<Finder>, String> {
        match self.find_at(finder, number)? {
            Some(found) => Ok(Some(found)),
            None => self.find_from_zero(finder, number),
        }
    }

    /// Does `finder`, with its own seed, notice the bug `number`?
    pub(crate) fn find_at(&self, finder: &Finder, number: u32) -> Result<Option<Finder>, String> {
        match finder {
            Finder::Seed { search, seed, .. } => self.seeds(*search, *seed, 1, number),
            Finder::Test { module, .. } => {
                let failed = self.fails(finder, number, |command| {
                    command.args(module.as_ref().map(|module| format!("{module}::")));
                })?;
                Ok(failed.map(|_| finder.clone()))
            }
        }
    }

    /// Searches from the first seed on.
    pub(crate) fn find_from_zero(
        &self,
        finder: &Finder,
        number: u32,
    ) -> Result<Option<Finder>, String> {
        match finder {
            Finder::Seed { search, .. } => self.seeds(*search, 0, search.seeds_max(), number),
            Finder::Test { .. } => self.find_at(finder, number),
        }
    }

    fn seeds(
        &self,
        search: Search,
        first: u64,
        seeds: u64,
        number: u32,
    ) -> Result<Option<Finder>, String> {
        let [_, _, test, first_name, seeds_name] = search.test();
        let finder = Finder::Seed {
            search,
            seed: first,
            rule: String::new(),
        };
        let failed = self.fails(&finder, number, |command| {
            command.args(["--exact", test]);
            command.env(first_name, first.to_string());
            command.env(seeds_name, seeds.to_string());
        })?;
        let Some(output) = failed else {
            return Ok(None);
        };
        let (seed, rule) = found(&output)
            .ok_or_else(|| format!("`{finder}` failed without naming a seed:\n{output}"))?;
        Ok(Some(Finder::Seed { search, seed, rule }))
    }

    /// The output of a test that failed; `None` when it held.
    fn fails(
        &self,
        finder: &Finder,
        number: u32,
        options: impl Fn(&mut Command),
    ) -> Result<Option<String>, String> {
        let (package, target) = finder.target();
        let executable = self
            .executables
            .get(&(package.to_owned(), target.to_owned()))
            .ok_or_else(|| format!("{package} has no tests called {target}"))?;
        let name = package.trim_start_matches("dendra-");
        let mut command = Command::new(executable);
        command
            .current_dir(self.copy.join("crates").join(name))
            // That it fails is enough: no shorter input is looked for.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("DENDRA_PLANTED", number.to_string())
            .arg("--include-ignored");
        options(&mut command);
        let output = command
            .output()
            .map_err(|error| format!("`{finder}` does not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match (
            output.status.success(),
            text.contains("test result: FAILED"),
        ) {
            (true, _) if text.contains(" 0 passed") => Err(format!("`{finder}` runs no test")),
            (true, _) => Ok(None),
            (false, true) => Ok(Some(text)),
            (false, false) => Err(format!("`{finder}` ended with {}", output.status)),
        }
    }
}

/// Builds the tests that the options of `cargo test` name, in the copy.
pub(crate) fn build(copy: &Path, options: &[&str]) -> Result<Vec<BuiltTest>, String> {
    let mut command = cargo_in(copy)?;
    command.arg("test").args(options);
    built::build(command)
}

/// Cargo in the copy, building into the target folder that the copy is in.
pub(crate) fn cargo_in(copy: &Path) -> Result<Command, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = copy.parent().ok_or("the copy is in no folder")?;
    let mut command = Command::new(cargo);
    command.current_dir(copy).env("CARGO_TARGET_DIR", target);
    Ok(command)
}

/// The seed and the broken rule in the output of a search that failed.
fn found(output: &str) -> Option<(u64, String)> {
    let line = output.lines().find(|line| line.starts_with("seed "))?;
    let (seed, rest) = line.strip_prefix("seed ")?.split_once(':')?;
    let rule = rest.trim_start().split(':').next().unwrap_or_default();
    let is_rule = !rule.is_empty() && rule.chars().all(char::is_alphanumeric);
    Some((
        seed.parse().ok()?,
        if is_rule {
            rule.to_owned()
        } else {
            String::new()
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finders_are_read_as_they_are_written() {
        for words in [
            "sim 18 VersionOrder",
            "sim 18",
            "twin 6738",
            "moving 33",
            "forgetting 57",
            "wide 57",
            "horizons 7 Lost",
            "copies 7 Lost",
            "losses 7 Unheld",
            "expiring 7 Expiry",
            "overloaded 7 Starved",
            "steward 4",
            "test dendra-node compare",
            "test dendra-node one_node rounds",
        ] {
            assert_eq!(
                Finder::parse(words).map(|f| f.to_string()),
                Ok(words.to_owned())
            );
        }
        for words in [
            "sim",
            "sim x",
            "test dendra-node",
            "test a b c d",
            "dream 3",
        ] {
            assert!(Finder::parse(words).is_err(), "{words}");
        }
    }

    #[test]
    fn the_seed_and_the_rule_are_read_from_a_failed_search() {
        let text = "thread 'a' panicked:\nseed 18: VersionOrder: 3 before 2\nrepeat it\n";
        assert_eq!(found(text), Some((18, "VersionOrder".to_owned())));
        let text = "seed 7:\nEntry { at: 3 }\n";
        assert_eq!(found(text), Some((7, String::new())));
        assert_eq!(found("test a ... FAILED\n"), None);
    }
}
