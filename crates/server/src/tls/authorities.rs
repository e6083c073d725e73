//! Several CAs, each with its own list of revoked certificates.
//!
//! ```text
//! CAs, lists ─► split: a list belongs to the CA whose key signed it ─► a verifier for each CA
//! certificate ─► the verifiers, one after the other ─► the first that takes it, or the fault
//! ```
//!
//! rustls finds the list of a CA by its name alone. So with one verifier for all, the list of a CA
//! would refuse all certificates of another CA of that name. The next CA of the same owner may be
//! such a one. Of two lists of one CA it would look at the first alone.
//!
//! Invariants
//! 1. A certificate is taken only by the CA that signed it, beside that CA's list.
//! 2. Two lists of one CA are an error and never a configuration.
//!
//! Not here: reading the files (`files.rs`), parts of a list (`certificate.rs`).
//! See: RFC 5280, section 5.

use super::certificate::{RevocationListParts, public_key};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, TrustAnchor, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use std::sync::Arc;

type RevocationLists = Vec<CertificateRevocationListDer<'static>>;

/// Did this CA sign the list?
fn is_signed_by(
    list: &RevocationListParts<'_>,
    ca: &TrustAnchor<'_>,
    provider: &CryptoProvider,
) -> bool {
    let Some((key_algorithm, key)) = public_key(&ca.subject_public_key_info) else {
        return false;
    };
    let known = provider.signature_verification_algorithms.all.iter();
    let mut fitting = known.filter(|known| {
        known.public_key_alg_id().as_ref() == key_algorithm
            && known.signature_alg_id().as_ref() == list.algorithm
    });
    fitting.any(|it| {
        it.verify_signature(key, list.signed, list.signature)
            .is_ok()
    })
}

/// The lists for each CA of `store`. One that none of them signed is given to all CAs of other
/// names: a CA between may have signed it.
fn split(
    store: &RootCertStore,
    lists: &[CertificateRevocationListDer<'static>],
    provider: &CryptoProvider,
) -> Result<Vec<RevocationLists>, String> {
    let mut of_each = Vec::new();
    let mut is_foreign = vec![true; lists.len()];
    for ca in &store.roots {
        let (mut own, mut issuers) = (RevocationLists::new(), Vec::new());
        for (list, of_no_ca) in lists.iter().zip(&mut is_foreign) {
            let parts = RevocationListParts::read(list);
            let parts = parts.ok_or("a list of revoked certificates is no list in DER")?;
            if parts.issuer == ca.subject.as_ref() {
                if !is_signed_by(&parts, ca, provider) {
                    continue;
                }
                *of_no_ca = false;
            }
            if issuers.contains(&parts.issuer) {
                return Err(
                    "the file of --tls-revoked has two lists of one CA: leave the newer one alone \
                     there"
                        .to_owned(),
                );
            }
            issuers.push(parts.issuer);
            own.push(list.clone());
        }
        of_each.push(own);
    }
    let strangers = is_foreign.iter().filter(|it| **it).count();
    if strangers > 0 {
        tracing::warn!(
            lists = strangers,
            "lists of revoked certificates were signed by no CA that this node trusts: they count \
             for certificates of CAs between alone"
        );
    }
    Ok(of_each)
}

/// A verifier for each CA of `store`: `build` makes it of a store of that CA alone and its lists.
fn for_each_ca<V>(
    store: &RootCertStore,
    lists: &[CertificateRevocationListDer<'static>],
    provider: &CryptoProvider,
    build: impl Fn(Arc<RootCertStore>, RevocationLists) -> Result<V, VerifierBuilderError>,
) -> Result<Vec<V>, String> {
    let by_ca = split(store, lists, provider)?;
    let stores = store.roots.iter().map(|ca| RootCertStore {
        roots: vec![ca.clone()],
    });
    let each = stores.zip(by_ca);
    let built = each.map(|(of_one, revoked)| build(Arc::new(of_one), revoked));
    built
        .collect::<Result<_, _>>()
        .map_err(|bad| bad.to_string())
}

/// The first success; or the fault that the CA of the certificate found, where one did.
fn first_of<V: ?Sized, T>(
    each: &[Arc<V>],
    check: impl Fn(&V) -> Result<T, Error>,
) -> Result<T, Error> {
    use CertificateError::{BadSignature, UnknownIssuer};
    let mut told = Error::InvalidCertificate(UnknownIssuer);
    for verifier in each {
        match check(verifier) {
            Ok(done) => return Ok(done),
            Err(Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {}
            Err(fault) => told = fault,
        }
    }
    Err(told)
}

/// Checks certificates of clients.
#[derive(Debug)]
pub(super) struct ClientAuthorities {
    each: Vec<Arc<dyn ClientCertVerifier>>,
    names: Vec<DistinguishedName>,
    want: CertificateWant,
}

/// What becomes of a client that shows no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateWant {
    /// The client's handshake fails.
    Required,
    /// The client gets a session, in which it is known to have shown none.
    Optional,
}

impl ClientAuthorities {
    /// Verifier with the CAs in `store`, at least one.
    pub(super) fn new(
        store: &RootCertStore,
        lists: &[CertificateRevocationListDer<'static>],
        provider: &Arc<CryptoProvider>,
        want: CertificateWant,
    ) -> Result<ClientAuthorities, String> {
        let build = |of_one, revoked| {
            WebPkiClientVerifier::builder_with_provider(of_one, Arc::clone(provider))
                .with_crls(revoked)
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status()
                .build()
        };
        Ok(ClientAuthorities {
            each: for_each_ca(store, lists, provider, build)?,
            names: store.subjects(),
            want,
        })
    }

    /// Verifier with the same CAs, and another answer to a client without a certificate.
    pub(super) fn wanting(&self, want: CertificateWant) -> ClientAuthorities {
        ClientAuthorities {
            each: self.each.clone(),
            names: self.names.clone(),
            want,
        }
    }
}

impl ClientCertVerifier for ClientAuthorities {
    fn client_auth_mandatory(&self) -> bool {
        self.want == CertificateWant::Required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        first_of(&self.each, |ca| ca.verify_client_cert(own, between, now))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.each[0].verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.each[0].verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.each[0].supported_verify_schemes()
    }
}

/// Checks certificates of members.
#[derive(Debug)]
pub(crate) struct MemberAuthorities {
    each: Vec<Arc<WebPkiServerVerifier>>,
}

impl MemberAuthorities {
    /// Verifier with the CAs in `store`, at least one.
    pub(super) fn new(
        store: &RootCertStore,
        lists: &[CertificateRevocationListDer<'static>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<MemberAuthorities, String> {
        let build = |of_one, revoked| {
            WebPkiServerVerifier::builder_with_provider(of_one, Arc::clone(provider))
                .with_crls(revoked)
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status()
                .build()
        };
        let each = for_each_ca(store, lists, provider, build)?;
        Ok(MemberAuthorities { each })
    }
}

impl ServerCertVerifier for MemberAuthorities {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        first_of(&self.each, |ca| {
            ca.verify_server_cert(own, between, name, ocsp, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.each[0].verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.each[0].verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.each[0].supported_verify_schemes()
    }
}
