//! `dendra copy`: moves the records of one store to another one while clients write to the first.
//!
//! ```text
//! look at TO ─► round 0: everything ─► round 1 … n: what changed ─► few changes: done, or --cut-over:
//!               writers of FROM stop ─► last round ─► compare byte by byte ─► last look ─► equal
//! ```
//!
//! Invariants
//! 1. FROM is only read.
//! 2. Exit 0 of `--cut-over` means: all records were compared, and no version of either store has
//!    changed since the last round.
//! 3. Any end, SIGKILL too, leaves a state with which the same command goes on.
//!
//! Not here: one key (`settle.rs`), one round (`round.rs`), the comparison (`compare.rs`).
//! See: docs/moving.md.

mod clock;
mod compare;
pub(crate) mod flags;
mod index;
mod records;
mod round;
mod settle;
mod state;
mod store;

use crate::backup::TransferPace;
use crate::client::BaseUrl;
use crate::console::Console;
use crate::encoding::Encoding;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use bytes::Bytes;
use clock::StoreClock;
use compare::{Comparison, StoreContent};
use dendra_base::limits::KEY_BYTES_MAX;
use dendra_wire::percent;
use flags::CopyFlags;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use records::{CopyRange, RecordFlow, WantedPart};
use round::Unequal;
use settle::CopyStores;
use state::{Begin, CopyIdentity, StateFolder};
use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use store::ContractStore;
use tokio::time::{Instant, timeout_at};

/// Findings that are printed; the rest are counted.
const FINDINGS_SHOWN_MAX: usize = 1000;

/// The begin of the key with which the copy finds out whether both ends are the same store.
const MARK: &[u8] = b"dendra-copy-mark-";

/// A copy under way.
struct Mover<'a> {
    args: &'a CopyFlags,
    shared: Rc<CopyStores>,
    range: CopyRange,
    prefix: Vec<u8>,
    console: Console,
    bar: ProgressBar,
}

/// `dendra copy`
pub(crate) async fn copy(args: &CopyFlags, console: Console) -> ExitResult {
    let from = store::places(&args.from)?;
    let to = store::places(&args.to)?;
    let names = |bases: &[BaseUrl]| -> Vec<String> {
        let name = |base: &BaseUrl| format!("{}{}", base.authority(), base.path());
        bases.iter().map(name).collect()
    };
    let identity = CopyIdentity {
        from: names(&from),
        to: names(&to),
        prefix: prefix(args)?,
    };
    if identity
        .from
        .iter()
        .any(|place| identity.to.contains(place))
    {
        return Err(same_store());
    }
    let store = |name, bases, access| {
        let store = ContractStore::new(
            name,
            bases,
            access,
            args.timeout_ms,
            args.retry_for,
            console,
        );
        store.map(Rc::new)
    };
    let mover = Mover {
        args,
        shared: Rc::new(CopyStores {
            from: store("FROM", from, &args.access)?,
            to: store("TO", to, &args.to_access())?,
            pace: TransferPace::new(args.bytes_per_second),
            is_overwriting: args.overwrite,
            bytes: Cell::new(0),
            clock: StoreClock::default(),
        }),
        range: CopyRange::of(&identity.prefix),
        prefix: identity.prefix.clone(),
        console,
        bar: bar(console),
    };
    let result = mover.run(identity).await;
    mover.bar.finish_and_clear();
    result
}

fn prefix(args: &CopyFlags) -> Result<Vec<u8>, Failure> {
    let encoding = if args.hex {
        Encoding::Hex
    } else {
        Encoding::Raw
    };
    let prefix = encoding
        .decode(args.prefix.as_bytes())
        .map_err(|rest| Failure::usage(format!("--prefix {rest}")))?;
    match prefix.len() {
        0..=KEY_BYTES_MAX => Ok(prefix),
        len => Err(Failure::usage(format!(
            "--prefix has {len} bytes; a key has at most {KEY_BYTES_MAX}"
        ))),
    }
}

fn same_store() -> Failure {
    Failure::usage("FROM and TO are the same store; name another TO")
}

fn bar(console: Console) -> ProgressBar {
    let target = if console.is_quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {bytes}, {bytes_per_sec}") {
        bar.set_style(style);
    }
    bar
}

impl Mover<'_> {
    async fn run(&self, identity: CopyIdentity) -> ExitResult {
        if self.args.compare {
            let found = self.compare().await?;
            return self.conclude(&found);
        }
        let (mut state, begin) = StateFolder::open(&self.args.state, identity)?;
        if state.progress.is_done {
            return Err(Failure::usage(format!(
                "{}: this copy is done and was cut over; TO may hold newer records since. Compare \
                 with --compare, or begin anew with another --state",
                self.args.state.display()
            )));
        }
        match begin {
            Begin::Fresh => {
                self.look_at_to().await?;
                state.save()?;
            }
            Begin::Resumed => {
                let round = state.progress.round;
                self.console.note(&format!("going on in round {round}"));
            }
        }
        // Writers that wait already need the last round alone. A round that was begun before they
        // stopped is not it: the keys that it is through with may have changed.
        let is_at_begin = state.progress.round > 0 && state.progress.position.is_none();
        if !(self.args.sealed && is_at_begin) {
            self.rounds(&mut state).await?;
        }
        if self.args.cut_over {
            self.cut_over(&mut state).await
        } else {
            self.console
                .note("TO follows FROM; run it again with --cut-over when clients can be moved");
            Ok(Exit::OK)
        }
    }

    /// Is TO another store than FROM, and empty?
    async fn look_at_to(&self) -> Result<(), Failure> {
        let CopyStores { from, to, .. } = &*self.shared;
        let marks = [&self.prefix[..], MARK].concat();
        if !self.args.overwrite {
            let mut keys = RecordFlow::new(to, self.range.clone(), WantedPart::Keys);
            while let Some((key, _)) = keys.next().await? {
                // A run that was killed in the middle of this look leaves its mark.
                if key.starts_with(&marks) && from.head(&key).await?.is_none() {
                    to.delete(&key, None).await?;
                    continue;
                }
                let shown = crate::console::show_key(&key);
                return Err(Failure::usage(format!(
                    "TO is not empty: it holds {shown}. Name an empty store or another --prefix, \
                     or add --overwrite: then TO is made equal to FROM, and further records of it \
                     are removed"
                )));
            }
        }
        let id = format!("{:x}-{:x}", store::now_ms(), std::process::id());
        let mark = [&marks, id.as_bytes()].concat();
        if mark.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        to.put(&mark, &Bytes::from(id), || None, None).await?;
        let seen = from.head(&mark).await?;
        to.delete(&mark, None).await?;
        match seen {
            Some(_) => Err(same_store()),
            None => Ok(()),
        }
    }

    /// Rounds, until one changes little or no less than the one before.
    async fn rounds(&self, state: &mut StateFolder) -> Result<(), Failure> {
        let in_flight = self.args.in_flight as usize;
        loop {
            let started = Instant::now();
            round::round(&self.shared, state, &self.range, in_flight, &self.bar).await?;
            let (round, changes) = (state.progress.round, state.progress.changes);
            let before = state.progress.changes_before;
            state.next_round()?;
            self.bar.suspend(|| {
                self.console.note(&format!(
                    "round {round}: {changes} changes in {:.1} s, {} copied so far",
                    started.elapsed().as_secs_f64(),
                    HumanBytes(self.shared.bytes.get()),
                ));
            });
            if round > 0 && changes <= self.args.rest {
                return Ok(());
            }
            if round > 1 && before.is_some_and(|before| changes >= before) {
                self.console.note(&format!(
                    "rounds do not become shorter: FROM changes by {changes} records in one"
                ));
                return Ok(());
            }
        }
    }

    async fn cut_over(&self, state: &mut StateFolder) -> ExitResult {
        if !self.args.sealed {
            self.bar.suspend(confirmation)?;
        }
        let started = Instant::now();
        let sealed = self.sealed(state);
        let Ok(result) = timeout_at(started + self.args.pause_max, sealed).await else {
            return Err(Failure::new(
                Exit::UNAVAILABLE,
                format!(
                    "the pause was longer than --pause-max {}: TO is not proven equal; let \
                     writers go on at FROM, and run the same command again",
                    HumanDuration(self.args.pause_max)
                ),
            ));
        };
        let exit = result?;
        self.console
            .note(&format!("pause: {:.1} s", started.elapsed().as_secs_f64()));
        Ok(exit)
    }

    /// All that happens while writers wait.
    async fn sealed(&self, state: &mut StateFolder) -> ExitResult {
        let in_flight = self.args.in_flight as usize;
        round::round(&self.shared, state, &self.range, in_flight, &self.bar).await?;
        let changes = state.progress.changes;
        state.next_round()?;
        self.bar
            .suspend(|| self.console.note(&format!("last round: {changes} changes")));
        let found = self.compare().await?;
        let (count, findings) = round::last_look(
            &self.shared,
            state,
            &self.range,
            in_flight,
            FINDINGS_SHOWN_MAX,
        )
        .await?;
        if count > 0 && found.count == 0 {
            show(&findings)?;
            return Err(Failure::new(
                Exit::FAILURE,
                format!(
                    "{count} records changed while they were compared (the first are on stdout): \
                     stop all writers of FROM and TO, then run the same command again"
                ),
            ));
        }
        let exit = self.conclude(&found)?;
        if exit == Exit::OK {
            state.progress.is_done = true;
            state.save()?;
            self.console
                .note("TO is equal to FROM: point clients to TO");
        }
        Ok(exit)
    }

    async fn compare(&self) -> Result<Comparison, Failure> {
        self.bar.set_position(0);
        self.bar.set_message("comparing,");
        compare::compare(&self.shared, &self.range, FINDINGS_SHOWN_MAX, &self.bar).await
    }

    /// Prints both sides, and the differences.
    fn conclude(&self, found: &Comparison) -> ExitResult {
        self.bar.finish_and_clear();
        show(&found.findings)?;
        let line = |name: &str, content: &StoreContent| {
            format!(
                "{name}\t{} records\t{} bytes\tsha256 {}\n",
                content.records,
                content.bytes,
                content.digest()
            )
        };
        let text = line("FROM", &found.from) + &line("TO", &found.to);
        ops::print(text.as_bytes())?;
        match found.count {
            0 => Ok(Exit::OK),
            count => Err(Failure::new(
                Exit::FAILURE,
                format!("the stores differ in {count} records; stdout names them"),
            )),
        }
    }
}

/// A line for each finding: key, tab, the finding.
fn show(findings: &[Unequal]) -> Result<(), Failure> {
    let line = |Unequal { key, what }: &Unequal| format!("{}\t{what}\n", percent::encode(key));
    let text: String = findings.iter().map(line).collect();
    ops::print(text.as_bytes())
}

/// Waits until the operator has stopped the writers.
fn confirmation() -> Result<(), Failure> {
    crate::console::error(
        "stop all writers of FROM now (docs/moving.md says how), then type sealed and Enter:",
    );
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    match (read, line.trim()) {
        (Ok(_), "sealed") => Ok(()),
        _ => Err(Failure::usage(
            "the writers of FROM were not said to be stopped: type sealed, or add --sealed; \
             nothing was cut over",
        )),
    }
}
