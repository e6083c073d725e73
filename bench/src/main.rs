//! The yardsticks: what a request costs Dendra, beside servers that do less, in one run.
//!
//! ```text
//! dendra-bench rows --dendra target/release/dendra [--rows get,put-os,put-sync,tail,big] [--out docs/lab]
//!   main.rs      options            server.rs    child processes        window.rs    one measurement
//!   rows/        the questions      load.rs      the generator          procfs.rs    CPU time, memory
//!   keys.rs      keys and values    protocol.rs  HTTP and RESP bytes    counters.rs  instructions, cycles
//!   report.rs    markdown, CSV      echo.rs      the floor              hyper_map.rs hyper and a map
//!   stats.rs     median, ratios
//! ```
//!
//! Invariants
//! 1. Servers run on one core, the generator on another.
//! 2. Data goes to stdout or into `--out`, progress to stderr; the exit code is 0 when every row was
//!    measured, whatever the verdicts are, and 1 when one could not be: the report then says why.
//!
//! Not here: the product. Nothing in the default members depends on this package.
//! See: docs/lab/README.md.

mod counters;
mod echo;
mod hyper_map;
mod keys;
mod load;
mod procfs;
mod protocol;
mod report;
mod rows;
mod server;
mod stats;
mod window;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rows::{Plan, Row};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// An error is a sentence for the person who ran the command.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

// As in the product: hyper must not lose to an allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a request costs Dendra, beside servers that do less.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Measures the rows of the report.
    Rows(RowsOptions),
    /// Serves the floor: receives, sends the same answer, nothing else.
    Echo {
        /// Status of every answer.
        #[arg(long, default_value_t = 200)]
        status: u16,
        /// Length of its body.
        #[arg(long, default_value_t = keys::VALUE_BYTES)]
        body_bytes: usize,
    },
    /// Serves GET and PUT from a hash map behind hyper.
    HyperMap,
}

#[derive(Args)]
struct RowsOptions {
    /// The binary under test; without it only the yardsticks are measured.
    #[arg(long)]
    dendra: Option<PathBuf>,
    /// One more option for every `dendra serve`, for example `--dendra-option=--loops=1`.
    #[arg(long)]
    dendra_option: Vec<String>,
    /// Which rows, separated by commas.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "get,put-os,put-sync,tail,big"
    )]
    rows: Vec<RowName>,
    /// Length of one window.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Windows of each variant.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Connections of the generator.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Keys stored for every row but `big`.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Keys stored for the row `big`.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    big_keys: u64,
    /// Folder for the data of the servers; made, and removed at the end.
    #[arg(long, default_value = "runs/yardsticks")]
    folder: PathBuf,
    /// Folder for the report, named after its date, and for its windows as CSV; without it, stdout.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Date of the report, YYYY-MM-DD; the clock's without it.
    #[arg(long)]
    date: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RowName {
    Get,
    PutOs,
    PutSync,
    Tail,
    Big,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Subcommands::Rows(options) => measure(options),
        Subcommands::Echo { status, body_bytes } => echo::serve(status, body_bytes),
        Subcommands::HyperMap => hyper_map::serve(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dendra-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: RowsOptions) -> Result<()> {
    let cores = server::cores()?;
    let [server_core, generator_core, ..] = cores[..] else {
        return Err("two cores are needed: one for the server, one for the generator".into());
    };
    // A folder of its own for every run: nothing that is there is touched.
    let folder = options.folder.join(std::process::id().to_string());
    fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let setting = report::Setting::here(options.date, &folder)?;
    server::pin_to(generator_core)?;
    let plan = Plan {
        dendra: options.dendra,
        dendra_options: options.dendra_option,
        folder,
        length: Duration::try_from_secs_f64(options.seconds)?,
        rounds: options.rounds.into(),
        connections: options.connections.into(),
        keys: options.keys,
        big_keys: options.big_keys,
        server_core,
    };
    let rows: Vec<Row> = options
        .rows
        .iter()
        .map(|name| {
            row(*name, &plan).unwrap_or_else(|error| Row::failed(name.text(), error.as_ref()))
        })
        .collect();
    fs::remove_dir_all(&plan.folder)?;
    let markdown = report::markdown(&setting, &rows)?;
    match options.out {
        Some(folder) => {
            fs::create_dir_all(&folder)?;
            let file = folder.join(format!("{}-one-node.md", setting.date));
            fs::write(&file, markdown)?;
            fs::write(file.with_extension("csv"), report::csv(&rows)?)?;
            println!("{}", file.display());
        }
        None => print!("{markdown}"),
    }
    match rows.iter().filter(|row| row.failure.is_some()).count() {
        0 => Ok(()),
        count => Err(format!("{count} of {} rows could not be measured", rows.len()).into()),
    }
}

impl RowName {
    /// As in `--rows`.
    fn text(self) -> &'static str {
        match self {
            RowName::Get => "get",
            RowName::PutOs => "put-os",
            RowName::PutSync => "put-sync",
            RowName::Tail => "tail",
            RowName::Big => "big",
        }
    }
}

fn row(name: RowName, plan: &Plan) -> Result<Row> {
    match name {
        RowName::Get => rows::get(plan),
        RowName::PutOs => rows::put_os(plan),
        RowName::PutSync => rows::put_sync(plan),
        RowName::Tail => rows::tail(plan),
        RowName::Big => rows::big(plan),
    }
}
