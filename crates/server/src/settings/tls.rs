//! Which files a node does TLS with.
//!
//! ```text
//! --tls-cert, --tls-key   the node's own pair         --tls-client-ca   clients must show a certificate of it
//! --tls-peer-ca           members show one of it      --tls-change-over clear text is taken beside TLS
//! --tls-revoked           certificates of either CA that are rejected
//! ```
//!
//! Invariants
//! 1. These are names of files: their content is read at the start and again when it changes.
//!
//! Not here: reading them (`tls/files.rs`).
//! See: docs/cli.md, docs/operating.md.

use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The node's certificate, and those between it and the CA, as PEM.
    pub cert: PathBuf,
    /// Key of the certificate.
    pub key: PathBuf,
    /// The CA of clients' certificates; `None` = clients show none.
    pub client_ca: Option<PathBuf>,
    /// The CA of members' certificates; `None` = links between members are not sealed.
    pub peer_ca: Option<PathBuf>,
    /// Certificates that their CA took back, as PEM; `None` = none is asked for.
    pub revoked: Option<PathBuf>,
    /// Is clear text taken beside TLS?
    pub change_over: bool,
}

impl TlsSettings {
    /// A node with this pair.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsSettings {
        TlsSettings {
            cert: cert.into(),
            key: key.into(),
            client_ca: None,
            peer_ca: None,
            revoked: None,
            change_over: false,
        }
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let own = [self.cert.as_path(), self.key.as_path()];
        let others = [
            self.client_ca.as_deref(),
            self.peer_ca.as_deref(),
            self.revoked.as_deref(),
        ];
        own.into_iter().chain(others.into_iter().flatten())
    }
}
