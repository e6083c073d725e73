//! `dendra serve`: options become settings, and the server does the rest.
//!
//! ```text
//! flags, environment, file ─► Effective ─► Settings ─► dendra_server::serve ─► exit code
//! stderr, once it serves:  listening on http://127.0.0.1:8080 admin on http://127.0.0.1:9080
//! ```
//!
//! Invariants
//! 1. The line is printed when clients are accepted, with the ports that port 0 turned into.
//! 2. Settings that are possible and perhaps not meant are in the log before the server starts.
//! 3. A supervisor learns of the start behind the line, and of the stop.
//! 4. A refusal of the server ends with its code: 2 settings, 3 folder, 4 address.
//!
//! Not here: the effect of an option (`config/settings.rs`); signals, threads, sockets (crate
//! `server`).
//! See: docs/cli.md, docs/api.md.

use crate::cli::{Colour, SettingsFlags};
use crate::config::{ConfigInputs, Effective, ValueSource};
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::logs;
use crate::renewal::Renewal;
use crate::supervisor::Supervisor;
use dendra_server::{ExitReason, Running, StorePapers};

/// `dendra serve`
pub(crate) fn serve(flags: &SettingsFlags, colour: Colour, console: Console) -> ExitResult {
    let effective = ConfigInputs::gather(flags.given.clone(), flags.config.as_deref())
        .and_then(|said| said.resolve())
        .map_err(|problems| Failure::usage(problems.to_string()))?;
    let mut settings = effective.node_settings().map_err(Failure::usage)?;
    if let Some(cluster) = &mut settings.cluster {
        cluster.secret = effective.secret().map_err(Failure::usage)?;
        cluster.secret_file = effective.secret_file();
    }
    settings.root_token = effective.root_token().map_err(Failure::usage)?;
    start_log(&effective, colour, console)?;
    let renewal = Renewal::of(settings.tls.as_ref(), effective.renewal())?;
    if let Some(renewal) = renewal {
        renewal.start()?;
    }
    for doubt in effective.doubts(&settings) {
        tracing::warn!("{doubt}");
    }
    let store = effective.store();
    let driver = store.as_ref().map(|place| {
        let papers = StorePapers::open(effective.store_files()?)?;
        dendra_stores::driver(place, &papers.access()).map(|driver| (driver, papers))
    });
    let driver = driver
        .transpose()
        .map_err(|why| Failure::usage(format!("store: {why}")))?;
    let supervisor = Supervisor::of_environment();
    let on_serving = |running: &Running| {
        announce(running, console);
        if let Some(supervisor) = &supervisor
            && let Err(error) = supervisor.ready(running.pulse())
        {
            tracing::error!(%error, "no thread for the supervisor could be started");
        }
    };
    let reason = match driver {
        None => dendra_server::serve(settings, on_serving),
        Some((driver, papers)) => dendra_server::serve_front(settings, driver, papers, on_serving),
    };
    if let Some(supervisor) = &supervisor {
        supervisor.stopping();
    }
    match reason {
        ExitReason::Stopped => Ok(Exit::OK),
        other => Err(Failure::new(Exit::from(&other), other.to_string())),
    }
}

fn start_log(effective: &Effective, colour: Colour, console: Console) -> Result<(), Failure> {
    // `-v` and `--quiet` are for a person in a hurry: a written setting beats them.
    let text = match &effective.setting("log").source {
        ValueSource::Default if console.is_quiet => "warn",
        ValueSource::Default if console.verbosity > 1 => "trace",
        ValueSource::Default if console.verbosity > 0 => "debug",
        _ => &effective.options.log,
    };
    let levels = logs::parse_levels(text).map_err(Failure::usage)?;
    let is_coloured = match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
    };
    logs::start(levels, is_coloured).map_err(|sentence| Failure::new(Exit::FAILURE, sentence))
}

fn announce(running: &Running, console: Console) {
    let scheme = if running.is_sealed() { "https" } else { "http" };
    let urls: Vec<String> = running
        .addrs()
        .iter()
        .map(|a| format!("{scheme}://{a}"))
        .collect();
    let admin = match running.admin_addr() {
        Some(address) => format!("{scheme}://{address}"),
        None => "off".to_owned(),
    };
    console.note(&format!("listening on {} admin on {admin}", urls.join(",")));
}
