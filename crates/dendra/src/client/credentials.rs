//! What a client trusts, and what it shows to be let in.
//!
//! ```text
//! --ca, --cert, --key-file ─► a configuration of TLS ─► every connection to an https:// URL
//! ```
//!
//! Invariants
//! 1. An https:// URL without a CA is refused before anything is sent, and http:// is never spoken in its place.
//!
//! Not here: sessions (crate `server`, `tls/`).
//! See: docs/cli.md.

use super::Base;
use crate::cli::AccessArgs;
use crate::exit::Failure;
use dendra_server::tls::{ByteStream, TlsClient};
use std::sync::Arc;
use tokio::net::TcpStream;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    tls: Option<TlsClient>,
}

impl Credentials {
    /// What the flags say, for a node at `base`.
    pub(crate) fn read(args: &AccessArgs, base: &Base) -> Result<Credentials, Failure> {
        let own = args.cert.as_deref().zip(args.key_file.as_deref());
        let tls = match (&args.ca, base.is_tls()) {
            (_, false) => None,
            (Some(ca), true) => Some(TlsClient::read(ca, own).map_err(Failure::usage)?),
            (None, true) => {
                return Err(Failure::usage(
                    "an https:// URL needs --ca FILE (or DENDRA_CA): the CA that signed the node's certificate",
                ));
            }
        };
        Ok(Credentials { tls })
    }

    /// Seals a connection where the URL says so.
    pub(crate) async fn seal(&self, tcp: TcpStream, base: &Base) -> Result<ByteStream, String> {
        let Some(TlsClient(config)) = &self.tls else {
            return Ok(ByteStream::Clear(tcp));
        };
        let name = dendra_server::tls::server_name(base.host())?;
        let sealed = ByteStream::connect(tcp, Arc::clone(config), name).await;
        sealed.map_err(|error| format!("TLS: {error}"))
    }
}
