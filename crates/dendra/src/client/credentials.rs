//! The CA that a client trusts, and its own certificate and token.
//!
//! ```text
//! --ca, --cert, --key-file ─► a configuration of TLS ─► every connection to an https:// URL
//! --token-file, DENDRA_TOKEN ─► Authorization of every request
//! ```
//!
//! Invariants
//! 1. An https:// URL without a CA is refused before anything is sent, and http:// is never spoken
//!    in its place.
//! 2. A token comes from a file or a variable, never from a flag: other users see flags. It is
//!    shown nowhere.
//!
//! Not here: sessions (crate `server`, `tls/`).
//! See: docs/cli.md.

use super::{BaseUrl, Trouble};
use crate::access::AccessArgs;
use crate::exit::Failure;
use dendra_server::tls::{ByteStream, ClientConfig, TlsClient, certificate_fault};
use hyper::header::HeaderValue;
use std::sync::Arc;
use tokio::net::TcpStream;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    tls: Option<Arc<ClientConfig>>,
    /// The content of `Authorization`.
    bearer: Option<HeaderValue>,
}

impl Credentials {
    /// The credentials of the flags, for a node at `base`.
    pub(crate) fn read(args: &AccessArgs, base: &BaseUrl) -> Result<Credentials, Failure> {
        let own = args.cert.as_deref().zip(args.key_file.as_deref());
        let tls = match (&args.ca, base.is_tls()) {
            (_, false) => None,
            (Some(ca), true) => Some(TlsClient::read(ca, own).map_err(Failure::usage)?.0),
            (None, true) => {
                return Err(Failure::usage(
                    "an https:// URL needs --ca FILE (or DENDRA_CA): the CA that signed the node's certificate",
                ));
            }
        };
        let bearer = bearer_of(args)?;
        Ok(Credentials { tls, bearer })
    }

    /// The credentials of the flags of `dendra bench`: its targets may be of both schemes.
    ///
    /// # Errors
    /// A sentence about the file that is of no use.
    pub(crate) fn of_bench(args: &AccessArgs) -> Result<Credentials, String> {
        let own = args.cert.as_deref().zip(args.key_file.as_deref());
        let read = |ca| TlsClient::read(ca, own).map(|client| client.0);
        let tls = args.ca.as_deref().map(read);
        Ok(Credentials {
            tls: tls.transpose()?,
            bearer: bearer_of(args).map_err(|failure| failure.sentence)?,
        })
    }

    /// The header lines of the token.
    pub(crate) fn fields(&self) -> Option<String> {
        let value = self.bearer.as_ref()?.to_str().ok()?;
        Some(format!("Authorization: {value}"))
    }

    /// The certificates that TLS trusts and shows.
    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    /// The value of `Authorization`, if there is a token.
    pub(crate) fn bearer(&self) -> Option<&HeaderValue> {
        self.bearer.as_ref()
    }

    /// Seals a connection where the URL says so.
    pub(crate) async fn seal(&self, tcp: TcpStream, base: &BaseUrl) -> Result<ByteStream, Trouble> {
        let Some(config) = &self.tls else {
            return Ok(ByteStream::Clear(tcp));
        };
        let name = dendra_server::tls::server_name(base.host()).map_err(Trouble::Unreachable)?;
        let sealed = ByteStream::connect(tcp, Arc::clone(config), name).await;
        sealed.map_err(|error| match certificate_fault(&error) {
            Some(sentence) => Trouble::NotTrusted(sentence),
            None => Trouble::Unreachable(format!("TLS: {error}")),
        })
    }
}

fn bearer_of(args: &AccessArgs) -> Result<Option<HeaderValue>, Failure> {
    let bearer = token(args)?.map(|token| {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        value.map(|mut value| {
            value.set_sensitive(true);
            value
        })
    });
    bearer.transpose().map_err(|_| {
        Failure::usage(
            "the token holds a byte that no token has: check --token-file and DENDRA_TOKEN",
        )
    })
}

/// A file of a token has a line; a longer one is something else.
const TOKEN_FILE_BYTES_MAX: u64 = 1 << 10;

/// The token that the flags and the environment name, without white space around it.
fn token(args: &AccessArgs) -> Result<Option<String>, Failure> {
    let text = match (&args.token_file, std::env::var("DENDRA_TOKEN")) {
        (Some(path), _) => {
            let bytes = dendra_server::secret(path, "the token", TOKEN_FILE_BYTES_MAX);
            let bytes = bytes.map_err(Failure::usage)?;
            if bytes.trim_ascii().is_empty() {
                return Err(Failure::usage(format!(
                    "the token, {}, is empty: put the token there, or leave --token-file and DENDRA_TOKEN_FILE out",
                    path.display()
                )));
            }
            String::from_utf8_lossy(&bytes).into_owned()
        }
        (None, Ok(text)) => text,
        (None, Err(_)) => return Ok(None),
    };
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
