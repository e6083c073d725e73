//! A process that serves until a signal asks it to stop.
//!
//! Invariants
//! 1. A second signal ends the process at once.
//! 2. A poisoned engine aborts the process, when waiting clients have their answers. A lost folder
//!    ends it without another call to the disk.
//!
//! Not here: how a node starts (`start.rs`) and stops (`running.rs`).
//! See: docs/api.md, section "Exit codes and signals".

use super::running::Running;
use super::start::Server;
use super::starting::Starting;
use crate::front::StorePapers;
use crate::limits;
use crate::phase::{Phase, PhaseCell};
use crate::settings::Settings;
use crate::start_error::{StartError, system};
use dendra_engine::Error;
use dendra_stores::OuterStore;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
/// How a call of `serve` ended.
#[derive(Debug)]
pub enum ExitReason {
    /// A signal asked for it and everything is closed (exit 0).
    Stopped,
    /// The node never served.
    NotStarted(StartError),
    /// Another member does not let the folder in: the member, and why (exit 3).
    Disowned(String),
    /// The data folder is not the node's any more: what has become of it (exit 3).
    Lost(String),
    /// A signal asked for it, but the folder could not be closed (exit 1).
    NotClosed(Error),
}

impl ExitReason {
    /// The exit code of `dendra serve`.
    pub fn exit_code(&self) -> u8 {
        match self {
            ExitReason::Stopped => 0,
            ExitReason::NotStarted(error) => error.exit_code(),
            ExitReason::Disowned(_) | ExitReason::Lost(_) => 3,
            ExitReason::NotClosed(_) => 1,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Stopped => f.write_str("stopped"),
            ExitReason::NotStarted(error) => error.fmt(f),
            ExitReason::Disowned(sentence) | ExitReason::Lost(sentence) => f.write_str(sentence),
            ExitReason::NotClosed(error) => write!(f, "the folder could not be closed: {error}"),
        }
    }
}

enum Wake {
    Signal,
    Ended,
}

/// Serves until SIGTERM or SIGINT, then stops and returns; a second signal ends the process at
/// once. Reads files again at SIGHUP. Stops by itself when another member disowns the folder. Ends
/// at once when its data folder is lost. Aborts the process when the log fails: the durable state
/// is unknown then. `on_serving` is called once, when clients are accepted.
pub fn serve(settings: Settings, on_serving: impl FnOnce(&Running)) -> ExitReason {
    serve_until_signal(settings, None, on_serving)
}

/// Serves like [`serve`], as a front door of `store`, which shows `papers` to it.
pub fn serve_front(
    settings: Settings,
    store: Arc<dyn OuterStore>,
    papers: StorePapers,
    on_serving: impl FnOnce(&Running),
) -> ExitReason {
    serve_until_signal(settings, Some((store, papers)), on_serving)
}

fn serve_until_signal(
    settings: Settings,
    store: Option<(Arc<dyn OuterStore>, StorePapers)>,
    on_serving: impl FnOnce(&Running),
) -> ExitReason {
    let (wake, woken) = mpsc::sync_channel(4);
    let secret_file = settings
        .cluster
        .as_ref()
        .map(|cluster| &cluster.secret_file);
    let has_papers = store.as_ref().is_some_and(|(_, papers)| papers.has_files());
    let has_files =
        settings.tls.is_some() || has_papers || secret_file.is_some_and(Option::is_some);
    let signals = match Signals::catch(has_files) {
        Ok(signals) => signals,
        Err(error) => {
            return ExitReason::NotStarted(system("signals cannot be caught")(error));
        }
    };
    let starting = match Starting::new() {
        Ok(starting) => starting,
        Err(error) => return ExitReason::NotStarted(error),
    };
    let phase = Arc::clone(&starting.phase);
    let watcher = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.watch(&phase, &wake));
    if let Err(error) = watcher {
        return ExitReason::NotStarted(system("a thread could not be started")(error));
    }
    let running = match Server::start_until_asked(settings, store, starting) {
        Ok(running) => running,
        Err(StartError::Asked) => return ExitReason::Stopped,
        Err(error) => return ExitReason::NotStarted(error),
    };
    on_serving(&running);
    let mut why = woken.recv();
    if let Ok(Wake::Signal) = why
        && let Some(delay) = running.turn_unready()
    {
        why = match woken.recv_timeout(delay) {
            Ok(sooner) => Ok(sooner),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(Wake::Signal),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(mpsc::RecvError),
        };
    }
    match why {
        Ok(Wake::Signal) => {}
        Ok(Wake::Ended) if running.phase() != Phase::Poisoned => {
            return ExitReason::Disowned(running.retire());
        }
        Ok(Wake::Ended) | Err(mpsc::RecvError) => {
            // Long enough for the loops to write `outcome=unknown` to the clients that wait.
            std::thread::sleep(limits::POISON_GRACE);
            let Some(sentence) = running.lost() else {
                std::process::abort();
            };
            // A stop would write into a folder that is gone, or is another's.
            let _not_stopped = std::mem::ManuallyDrop::new(running);
            return ExitReason::Lost(sentence);
        }
    }
    match running.stop() {
        Ok(()) => ExitReason::Stopped,
        Err(error) => ExitReason::NotClosed(error),
    }
}

struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    /// Signals without a meaning here, by their names. The system would end the process.
    ignored: [(&'static str, tokio::signal::unix::Signal); 2],
    /// Are there files that are read again?
    has_files: bool,
}

impl Signals {
    fn catch(has_files: bool) -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let _inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        let ignored = [
            ("SIGUSR1", signal(SignalKind::user_defined1())?),
            ("SIGUSR2", signal(SignalKind::user_defined2())?),
        ];
        drop(_inside);
        Ok(Signals {
            runtime,
            terminate,
            interrupt,
            hangup,
            ignored,
            has_files,
        })
    }

    fn watch(mut self, phase: &PhaseCell, wake: &mpsc::SyncSender<Wake>) {
        self.runtime.block_on(async {
            let mut signals = 0;
            let [(first, one), (second, two)] = &mut self.ignored;
            loop {
                let what = tokio::select! {
                    // Those that came in front of the one that stops are in the log.
                    biased;
                    _ = self.hangup.recv() => {
                        hang_up(phase, self.has_files);
                        continue;
                    }
                    _ = one.recv() => {
                        tracing::info!("{first} has no meaning here: the node goes on");
                        continue;
                    }
                    _ = two.recv() => {
                        tracing::info!("{second} has no meaning here: the node goes on");
                        continue;
                    }
                    _ = self.terminate.recv() => (Wake::Signal, 143),
                    _ = self.interrupt.recv() => (Wake::Signal, 130),
                    () = phase.ended.notified() => (Wake::Ended, 0),
                };
                if matches!(what.0, Wake::Signal) {
                    signals += 1;
                    if signals > 1 {
                        tracing::warn!("a second signal: ending without waiting");
                        std::process::exit(what.1);
                    }
                    tracing::info!("a signal asks to stop; a second one ends at once");
                    phase.ask();
                }
                if wake.try_send(what.0).is_err() {
                    return;
                }
            }
        });
    }
}

/// SIGHUP: files are read again. A terminal that was closed sends it, too, and ends nothing.
fn hang_up(phase: &PhaseCell, has_files: bool) {
    if has_files {
        tracing::info!("SIGHUP: certificates, keys and secrets are read again; options are not");
        phase.ask_for_files();
    } else {
        tracing::info!("SIGHUP: there is no file to read again, and the node goes on");
    }
}
