//! The binary: one node, and the tools to talk to it and to look at its files.
//!
//! ```text
//! cli.rs       the command line, drawn once
//! config/      options of a node: flag > environment > file > default
//! serve.rs     options -> crate `server`
//! client/      HTTP -> ops.rs (get, put, touch, delete), scan.rs, watch.rs, load/
//! lock.rs      a command under a lease
//! backup/      admin ports -> a folder of backups -> admin ports of an empty cluster
//! conform/     the cases of docs/conformance, against any store
//! copy/        any store of the contract -> any other one, while clients write
//! bench.rs     crate `lab`: load, and the record of a run
//! cluster/     orders about members -> the admin port
//! health.rs    admin ports -> one word, and what is wrong
//! check.rs     a stopped node's folder -> crate `engine`
//! dev/         a cluster of child processes, to be played with
//! exit.rs      exit codes         console.rs   stderr         encoding.rs   hex, base64, JSON
//! output.rs    stdout, and files that are there already
//! ```
//!
//! Invariants
//! 1. stdout carries data only.
//! 2. Every way to end has an exit code of `exit.rs`.
//!
//! Not here: anything that decides about data; this crate parses, prints and calls.
//! See: docs/cli.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

mod access;
mod backup;
mod bench;
mod cert;
mod check;
mod cli;
mod client;
mod cluster;
mod config;
mod conform;
mod console;
mod copy;
mod count;
mod dev;
mod encoding;
mod exit;
mod explain;
mod health;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
mod load;
mod lock;
mod logs;
mod ops;
mod output;
mod profile;
mod renewal;
mod ring;
mod runtime;
mod scan;
mod serve;
mod signals;
mod supervisor;
mod token;
mod watch;

use clap::{ColorChoice, CommandFactory, FromArgMatches};
use cli::{Cli, Command, ConfigVerb};
use console::Console;
use dendra_server::{LargeApart, SampledAlloc};
use exit::{Exit, ExitResult, Failure};
use mimalloc::MiMalloc;
use runtime::runtime;
use signals::on_signals;
use std::process::ExitCode;
use tokio::signal::unix::SignalKind;

/// mimalloc but for large pieces, and above both the sampler of `dendra profile --alloc`.
#[global_allocator]
static ALLOCATOR: SampledAlloc<LargeApart<MiMalloc>> =
    SampledAlloc::over(LargeApart::over(MiMalloc));

fn main() -> ExitCode {
    let matches = Cli::command().color(colour_asked_for()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(said) if said.use_stderr() => said.exit(),
        Err(said) => return ended(output::print_help(&said).map(|()| Exit::OK)),
    };
    let console = Console {
        is_quiet: cli.quiet,
        verbosity: cli.verbose,
    };
    ended(run(&cli, console))
}

/// Says why a command failed, if it did, and gives its code.
fn ended(result: ExitResult) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.sentence.is_empty() {
                console::error(&failure.sentence);
            }
            failure.exit.into()
        }
    }
}

/// `--color` decides how errors of the command line itself look, so it is read before them.
fn colour_asked_for() -> ColorChoice {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let of = |word: &str| match word {
        "always" => ColorChoice::Always,
        "never" => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    for (i, argument) in arguments.iter().enumerate() {
        match argument.strip_prefix("--color") {
            Some("") => return of(arguments.get(i + 1).map_or("", String::as_str)),
            Some(rest) => return of(rest.trim_start_matches('=')),
            None => {}
        }
    }
    ColorChoice::Auto
}

fn run(cli: &Cli, console: Console) -> ExitResult {
    match &cli.command {
        Command::Serve(settings) => serve::serve(settings, cli.color, console),
        Command::Get(args) => client_command(ops::get(args, console)),
        Command::Put(args) => client_command(ops::put(args, console)),
        Command::Delete(args) => client_command(ops::delete(args, console)),
        Command::Touch(args) => client_command(ops::touch(args, console)),
        Command::Lock(args) => runtime()?.block_on(lock::lock(args, console)),
        Command::Scan(args) => client_command(scan::scan(args, console)),
        Command::Count(args) => client_command(count::count(args, console)),
        Command::Watch(args) => client_command(watch::watch(args, console)),
        Command::Backup(args) => client_command(backup::backup(args, console)),
        Command::Restore(args) => client_command(backup::restore(args, console)),
        Command::Copy(args) => client_command(copy::copy(args, console)),
        Command::Load(args) => runtime()?.block_on(load::load(args, console)),
        Command::Bench(args) => bench::bench(args, console),
        Command::Conform(args) => client_command(conform::conform(args, console)),
        Command::Profile(args) => client_command(profile::profile(args, console)),
        Command::Cluster { flags, access } => {
            client_command(cluster::cluster(flags, access, console))
        }
        Command::Health(args) => client_command(health::health(args, console)),
        Command::Dev(args) => dev::dev(args, console),
        Command::Ring(args) => ring::ring(args),
        Command::Cert(args) => cert::cert(args, console),
        Command::Token { verb } => client_command(token::token(verb, console)),
        Command::Check(args) => check::check(args, console),
        Command::Dump(args) => check::dump(args),
        Command::Config {
            verb: ConfigVerb::Print { json, settings },
        } => print_config(*json, settings),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "dendra", &mut script);
            ops::print(&script).map(|()| Exit::OK)
        }
        Command::Man => {
            let mut page = Vec::new();
            manual(&mut page).map_err(|e| Failure::output("the manual page", &e))?;
            ops::print(&page).map(|()| Exit::OK)
        }
    }
}

/// The page of `dendra`, then one section for each command.
fn manual(page: &mut Vec<u8>) -> std::io::Result<()> {
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(page)?;
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        let verb = clap_mangen::Man::new(verb.clone());
        verb.render_synopsis_section(page)?;
        verb.render_description_section(page)?;
        verb.render_options_section(page)?;
    }
    Ok(())
}

/// One request: SIGINT ends the process with 130, also while stdin or stdout make it wait.
fn client_command(command: impl Future<Output = ExitResult>) -> ExitResult {
    let ends = || std::process::exit(Exit::INTERRUPTED.code());
    on_signals(&[SignalKind::interrupt()], ends)
        .map_err(|e| Failure::new(Exit::FAILURE, format!("signals cannot be caught ({e})")))?;
    runtime()?.block_on(command)
}

fn print_config(is_json: bool, settings: &cli::SettingsFlags) -> ExitResult {
    let effective =
        config::ConfigInputs::gather(settings.given.clone(), settings.config.as_deref())
            .and_then(|said| said.resolve())
            .map_err(|problems| Failure::usage(problems.to_string()))?;
    let text = if is_json {
        format!("{:#}\n", effective.to_json())
    } else {
        effective.to_toml()
    };
    ops::print(text.as_bytes()).map(|()| Exit::OK)
}
