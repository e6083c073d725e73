//! The flags by which a client is let in: certificates, and the token in a file or a variable.
//!
//! Not here: the use of them (`client/credentials.rs`).
//! See: docs/cli.md.

use clap::Args;
use std::path::PathBuf;

/// The CA that a client trusts, and the credentials that it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct AccessArgs {
    /// Trust the certificates that this CA signed (PEM), for https://
    #[arg(long, global = true, env = "DENDRA_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Show this certificate (PEM), where the node asks for one
    #[arg(
        long,
        global = true,
        env = "DENDRA_CERT",
        value_name = "FILE",
        requires = "key_file"
    )]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert (PEM), open to its owner alone
    #[arg(
        long,
        global = true,
        env = "DENDRA_KEY_FILE",
        value_name = "FILE",
        requires = "cert"
    )]
    pub(crate) key_file: Option<PathBuf>,
    /// Show the token in this file, open to its owner alone; or DENDRA_TOKEN holds the token itself
    #[arg(long, global = true, env = "DENDRA_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
