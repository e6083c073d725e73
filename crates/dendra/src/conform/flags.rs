//! The flags of `dendra conform`.
//!
//! Not here: the work of the command (`mod.rs`).
//! See: docs/conformance/README.md.

use crate::access::AccessArgs;
use clap::Args;
use std::path::PathBuf;

/// `dendra conform`
#[derive(Debug, Args)]
pub(crate) struct Conform {
    /// The store's data port
    #[arg(long, env = "DENDRA_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// How this client is let in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Skip the cases with this tag, for a store without that feature; may be repeated
    #[arg(long, value_name = "TAG")]
    pub(crate) without: Vec<String>,
    /// Only cases whose name holds this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// A file of cases; may be repeated [default: the contract's own, docs/conformance]
    #[arg(long, value_name = "FILE")]
    pub(crate) cases: Vec<PathBuf>,
    /// Print names and tags of the cases, without a request
    #[arg(long)]
    pub(crate) list: bool,
}
