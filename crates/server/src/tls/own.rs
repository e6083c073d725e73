//! A node's client of itself: it trusts the node's own certificate and no other.
//!
//! ```text
//! --tls-cert ─► the certificate that the node shows ── the same bytes? ─► trusted, whatever its CA and its name
//! --tls-client-ca, --tls-peer-ca ── did one sign it? ─► the client shows it, too
//! ```
//!
//! Invariants
//! 1. The server holds the key of the certificate in the file `cert`, or of the one that was there
//!    before it. No other server is trusted.
//! 2. A certificate that the node would not let in is not shown: the handshake would fail.
//!
//! Not here: how the node judges its clients (`authorities.rs`).
//! See: docs/operating.md, section "Backups".

use super::certificate::CertificateFacts;
use super::files::{OnePair, PROTOCOL, certificates, check_signed, pair, provider};
use crate::settings::TlsSettings;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The settings of a client for the node with these files.
///
/// # Errors
/// A sentence about the file that is of no use.
pub fn own_client(settings: &TlsSettings) -> Result<Arc<ClientConfig>, String> {
    let own = own_certificate(&settings.cert)?;
    let is_let_in = lets_in(settings, &own, UnixTime::now().as_secs()).is_ok();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .map_err(|bad| bad.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OwnServer {
            file: settings.cert.clone(),
            shown: Mutex::new([own.clone(), own]),
            provider: provider(),
        }));
    let mut config = if is_let_in {
        let own = OnePair(Arc::new(pair(&settings.cert, &settings.key)?));
        builder.with_client_cert_resolver(Arc::new(own))
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Does this node let itself in? Its certificate may have ended: it is renewed without a restart.
///
/// # Errors
/// A sentence about why it never does.
pub fn check_lets_itself_in(settings: &TlsSettings) -> Result<(), String> {
    if settings.client_ca.is_none() {
        return Ok(());
    }
    let own = own_certificate(&settings.cert)?;
    let facts = CertificateFacts::read(&own)?;
    let [from_s, until_s] = [facts.from_s, facts.until_s].map(|it| u64::try_from(it).unwrap_or(0));
    let at_s = UnixTime::now().as_secs().min(until_s).max(from_s);
    lets_in(settings, &own, at_s)
}

fn own_certificate(file: &Path) -> Result<CertificateDer<'static>, String> {
    let chain = certificates(file, "the certificate")?;
    let first = chain.into_iter().next();
    Ok(first.expect("a file without a certificate is an error"))
}

/// Did the CA of clients or of members sign it? The last reason, if none did.
fn lets_in(settings: &TlsSettings, own: &CertificateDer<'_>, at_s: u64) -> Result<(), String> {
    let mut why = Err("clients show no certificates here".to_owned());
    for ca in [&settings.client_ca, &settings.peer_ca]
        .into_iter()
        .flatten()
    {
        match check_signed(ca, own, at_s) {
            Ok(()) => return Ok(()),
            bad => why = bad,
        }
    }
    why
}

/// Checks that a server is this node.
#[derive(Debug)]
struct OwnServer {
    file: PathBuf,
    /// The certificate that the file had last, and the one before it. The node may read a new file
    /// a moment after this client, or before it.
    shown: Mutex<[CertificateDer<'static>; 2]>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OwnServer {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut shown = self.shown.lock().expect("no holder panics");
        if !shown.contains(own) {
            let now = own_certificate(&self.file).map_err(Error::General)?;
            if now != shown[0] {
                shown.swap(0, 1);
                shown[0] = now;
            }
        }
        if shown.contains(own) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, own, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, own, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}
