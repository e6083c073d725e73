//! TLS: the bytes of a connection, in clear or sealed, and where certificates come from.
//!
//! ```text
//! files.rs   PEM files ─► configurations of rustls       keeper.rs   the ones in force, renewed on a change
//! stream.rs  one connection: bytes in, bytes out           file_watch.rs   have files changed?
//! faults.rs  what a client is told about a certificate         authorities.rs   several CAs and their lists
//! certificate.rs   names and times of a certificate
//! ```
//!
//! Invariants
//! 1. The provider of the cryptography is named at each configuration (ring): no global one is
//!    installed.
//! 2. No code here falls back to clear text.
//!
//! Not here: which connections get in (`clients/doorway.rs`), deadlines.
//! See: SECURITY.md, docs/operating.md, docs/decisions/0030-the-door.md.

mod authorities;
mod certificate;
mod faults;
pub(crate) mod file_watch;
mod files;
mod keeper;
mod stream;

pub use certificate::CertificateFacts;
pub use faults::certificate_fault;
pub(crate) use faults::link_fault;
pub use files::{TlsClient, certificates, check_signed, server_name};
pub(crate) use keeper::{Opening, Tls, clear_text};
pub use rustls::ClientConfig;
pub use rustls::pki_types::CertificateDer;
pub use rustls::pki_types::PrivateKeyDer;
pub use rustls::pki_types::pem::PemObject;
pub use stream::{ByteStream, SealedStream};
