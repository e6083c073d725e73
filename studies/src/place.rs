//! Where a measurement happens: the binary, a folder, the cores, programs of others.
//!
//! ```text
//! cores this process may use:  all but the last ─► servers     the last ─► generators
//! one core                  :  shared, and said in the report
//! ```
//!
//! Invariants
//! 1. The folder is `target/lab/<task>` and begins empty.
//! 2. A child has its cores before its first instruction: it inherits them.
//! 3. While the servers' side is held to a share, every server that is started is a member of its
//!    group.
//!
//! Not here: the programs that run there (`store/`, `run.rs`), how a share is held (`share.rs`).

use super::share::Share;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The outcome of a task: did its claim hold? The error is a sentence.
pub(super) type Held = Result<bool, String>;

/// The options on the command line of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// `--binary FILE`: measure this one instead of a fresh build.
    pub(super) binary: Option<PathBuf>,
    /// `--out FOLDER`: where the report goes.
    pub(super) out: Option<PathBuf>,
    /// `--seconds N`: length of one measurement.
    pub(super) seconds: Option<f64>,
    /// `--date YYYY-MM-DD`: name of the report.
    pub(super) date: Option<String>,
    /// Options that only this task has, by their words.
    pub(super) own: BTreeMap<String, String>,
}

impl Options {
    /// Reads the words after a task that has `own` options beside those of all tasks.
    pub(super) fn parse(arguments: &[String], own: &[&str]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut words = arguments.iter();
        let known = [&["--binary", "--out", "--seconds", "--date"], own].concat();
        let known = known.join(", ");
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} has no value; options are {known}"))?;
            match word.as_str() {
                "--binary" => options.binary = Some(value.into()),
                "--out" => options.out = Some(value.into()),
                "--date" => options.date = Some(value.clone()),
                "--seconds" => {
                    let seconds = value.parse().ok().filter(|s| (0.2..=600.0).contains(s));
                    let wrong = || format!("--seconds {value}: a number from 0.2 to 600 is meant");
                    options.seconds = Some(seconds.ok_or_else(wrong)?);
                }
                other if own.contains(&other) => {
                    options.own.insert(word.clone(), value.clone());
                }
                _ => return Err(format!("{word} is not known; options are {known}")),
            }
        }
        Ok(options)
    }

    /// The number after `word`, which only this task has.
    pub(super) fn count(
        &self,
        word: &str,
        without: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, String> {
        let Some(text) = self.own.get(word) else {
            return Ok(without);
        };
        let count = text.parse().ok().filter(|count| range.contains(count));
        count.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("{word} {text}: a number from {least} to {most} is meant")
        })
    }
}

/// Whose cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The program that is measured.
    Server,
    /// The program that measures.
    Generator,
}

/// A place to measure at.
pub(super) struct Place {
    /// The workspace.
    pub(super) root: PathBuf,
    /// `target/lab/<task>`
    pub(super) folder: PathBuf,
    /// The program.
    pub(super) binary: PathBuf,
    /// The words after the task.
    pub(super) options: Options,
    /// The task.
    pub(super) name: String,
    all: CpuSet,
    /// The commit that the binary names in its records, once one was seen.
    built_from: RefCell<Option<String>>,
    /// Runs that were void and made again.
    repeated: Cell<u32>,
    seeds: Cell<u32>,
    share: RefCell<Option<Share>>,
    goes_first: Cell<bool>,
}

impl Place {
    /// Builds the binary and empties the folder.
    pub(super) fn prepare(root: &Path, name: &str, options: Options) -> Result<Place, String> {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => build(root)?,
        };
        let binary = fs::canonicalize(&binary).map_err(|e| format!("{}: {e}", binary.display()))?;
        let folder = root.join("target/lab").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Place {
            root: root.to_owned(),
            folder,
            binary,
            options,
            name: name.to_owned(),
            built_from: RefCell::new(None),
            repeated: Cell::new(0),
            seeds: Cell::new(0),
            share: RefCell::new(None),
            goes_first: Cell::new(false),
            all: sched_getaffinity(None).map_err(|e| format!("the cores of this process: {e}"))?,
        })
    }

    /// Remembers which commit a record names.
    pub(super) fn saw_commit(&self, commit: &str) {
        *self.built_from.borrow_mut() = Some(commit.to_owned());
    }

    /// The commit that the binary was built from, by its own words.
    pub(super) fn commit(&self) -> String {
        let seen = self.built_from.borrow();
        seen.clone().unwrap_or_else(|| "unknown".to_owned())
    }

    /// The seed of the next run.
    pub(super) fn next_seed(&self) -> u32 {
        self.seeds.set(self.seeds.get() + 1);
        self.seeds.get()
    }

    /// Counts a run that was void and is made again.
    pub(super) fn repeats(&self) {
        self.repeated.set(self.repeated.get() + 1);
    }

    /// How many were.
    pub(super) fn repeated(&self) -> u32 {
        self.repeated.get()
    }

    /// Numbers of the cores that this process may use.
    pub(super) fn cores(&self) -> Vec<usize> {
        (0..CpuSet::MAX_CPU)
            .filter(|&core| self.all.is_set(core))
            .collect()
    }

    /// How the cores are shared, for the report.
    pub(super) fn sharing(&self) -> String {
        match self.cores().as_slice() {
            [] | [_] => "one core for everything: the generator takes from the server".to_owned(),
            [first, last] => format!("server on core {first}, generator on core {last}"),
            [first, .., last] => format!(
                "server on cores {first} to {}, generator on core {last}",
                last - 1
            ),
        }
    }

    fn cores_of(&self, side: Side) -> CpuSet {
        let cores = self.cores();
        let Some((last, rest)) = cores.split_last().filter(|(_, rest)| !rest.is_empty()) else {
            return self.all;
        };
        let mut set = CpuSet::new();
        match side {
            Side::Server => rest.iter().for_each(|&core| set.set(core)),
            Side::Generator => set.set(*last),
        }
        set
    }

    /// Lets generators go in front of other programs of the machine, where the system allows it.
    pub(super) fn go_first(&self) -> bool {
        let tried = Command::new("chrt").args(["--fifo", "1", "true"]).output();
        let may = tried.is_ok_and(|output| output.status.success());
        self.goes_first.set(may);
        may
    }

    /// A command for a generator: `program`, and its arguments follow.
    pub(super) fn generator(&self, program: &Path) -> Command {
        if self.goes_first.get() {
            let mut command = Command::new("chrt");
            command.args(["--fifo", "1"]).arg(program);
            command
        } else {
            Command::new(program)
        }
    }

    /// Holds the servers that are started from now on to `share`, together; none: not any more.
    pub(super) fn hold(&self, share: Option<Share>) {
        *self.share.borrow_mut() = share;
    }

    /// The share is all there is while `work` is done.
    pub(super) fn unheld<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let limit = |is_held: bool| match &*self.share.borrow() {
            Some(share) => share.limit(is_held.then_some(share.cores)),
            None => Ok(()),
        };
        limit(false)?;
        let done = work();
        limit(true)?;
        done
    }

    /// The process of `command`, as a member of the share's group when there is one.
    pub(super) fn in_share(&self, command: &Command) -> Option<Command> {
        Some(self.share.borrow().as_ref()?.wrap(command))
    }

    /// Starts a program on the cores of its side.
    pub(super) fn spawn(&self, side: Side, command: &mut Command) -> Result<Child, String> {
        let named = format!("{:?}", command.get_program());
        let child = self.on(side, || command.spawn())?;
        child.map_err(|e| format!("{named} does not start ({e})"))
    }

    /// Does `work` on the cores of this side; threads and processes that it starts stay there.
    pub(super) fn on<T>(&self, side: Side, work: impl FnOnce() -> T) -> Result<T, String> {
        let cores = |set: &CpuSet| {
            sched_setaffinity(None, set).map_err(|e| format!("the cores of the {side:?}: {e}"))
        };
        cores(&self.cores_of(side))?;
        let result = work();
        cores(&self.all)?;
        Ok(result)
    }

    /// Removes files that are not needed again.
    pub(super) fn leave(&self, held: bool) {
        if !held {
            println!("What it did is in {}.", self.folder.display());
        } else if let Err(e) = fs::remove_dir_all(&self.folder) {
            println!("{} could not be removed: {e}", self.folder.display());
        }
    }
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let target = root.join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--package", "dendra", "--target-dir"])
        .arg(&target)
        .current_dir(root)
        .status();
    if built.is_ok_and(|status| status.success()) {
        return Ok(target.join("release/dendra"));
    }
    Err("cargo build failed".to_owned())
}

/// Where a program is, if it is installed: in `more`, or on the path.
pub(super) fn find(name: &str, more: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let folders = more
        .iter()
        .cloned()
        .chain(std::env::split_paths(&path))
        .chain(sbin);
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Runs a program to its end; its stdout, or a sentence with its stderr.
pub(super) fn output(command: &mut Command) -> Result<String, String> {
    let named = format!("{:?}", command.get_program());
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{named} does not start ({e})"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{named} ended with {}: {}",
            output.status,
            said.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line that a program prints about itself.
pub(super) fn version(program: &Path, argument: impl AsRef<OsStr>) -> String {
    let output = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return "unknown".to_owned();
    };
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_pairs_and_nothing_is_ignored() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let parse = |text: &str| Options::parse(&words(text), &["--share"]);
        let options = parse("--seconds 2 --out docs/lab --share off").expect("all are known");
        assert_eq!(options.seconds, Some(2.0));
        assert_eq!(options.out, Some("docs/lab".into()));
        assert_eq!(options.own["--share"], "off");
        for bad in [
            "--seconds",
            "--seconds 0",
            "--second 1",
            "5 5",
            "--shares 1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(Options::parse(&words("--share off"), &[]).is_err());
        assert_eq!(options.count("--rounds", 7, 1..=9), Ok(7));
        assert!(options.count("--share", 7, 1..=9).is_err());
    }
}
