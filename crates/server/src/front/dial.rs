//! Sealed connections to the servers of an engine.
//!
//! ```text
//! dial   a connection that is opened here     the certificate is for the name of its server
//! seal   those that a driver opens itself     it is for the address, or for a name in `--store`
//! ```
//!
//! Invariants
//! 1. A connection that is open stays as it is; the next one uses the newest files.
//! 2. No byte of a request is sent to a server with a certificate that the CA did not sign, or that
//!    is for another name.
//!
//! Not here: connections in clear, and the protocols on them (crate `stores`).

use crate::tls::{ByteStream, TlsClient, server_name};
use arc_swap::ArcSwap;
use dendra_stores::{Dialing, EngineDial, EngineLink};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Opens connections of TLS.
#[derive(Debug)]
pub(super) struct SealedDial(ArcSwap<TlsClient>);

impl SealedDial {
    /// With the CA that this client trusts, and the certificate that it shows.
    pub(super) fn new(client: &TlsClient) -> SealedDial {
        SealedDial(ArcSwap::from_pointee(engine_client(client)))
    }

    /// Dials with the papers of another client from now on.
    pub(super) fn renew(&self, client: &TlsClient) {
        self.0.store(Arc::new(engine_client(client)));
    }
}

fn engine_client(TlsClient(config, servers): &TlsClient) -> TlsClient {
    let mut config = ClientConfig::clone(config);
    // Engines have protocols of their own, and none of them asks for its name.
    config.alpn_protocols.clear();
    TlsClient(Arc::new(config), Arc::clone(servers))
}

impl EngineDial for SealedDial {
    fn dial<'a>(&'a self, server: &'a str) -> Dialing<'a> {
        Box::pin(async move {
            let name = server_name(server).map_err(io::Error::other)?;
            let tcp = TcpStream::connect(server).await?;
            tcp.set_nodelay(true)?;
            let config = Arc::clone(&self.0.load().0);
            let sealed = ByteStream::connect(tcp, config, name).await?;
            Ok(Box::new(sealed) as Box<dyn EngineLink>)
        })
    }

    fn seal(&self, servers: &[String]) -> io::Result<Option<Arc<ClientConfig>>> {
        let names = servers.iter().map(|server| server_name(server));
        let names = names.collect::<Result<_, _>>().map_err(io::Error::other)?;
        let client = self.0.load();
        let mut config = ClientConfig::clone(&client.0);
        let signed = Arc::clone(&client.1);
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(NamedServers { signed, names }));
        Ok(Some(Arc::new(config)))
    }
}

/// Checks certificates of servers. The CA has to sign one for the server's address, or for a name
/// in `--store`. A driver that finds further servers knows their addresses alone.
#[derive(Debug)]
struct NamedServers {
    signed: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
}

impl ServerCertVerifier for NamedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let check = |name: &ServerName<'_>| {
            let signed = &self.signed;
            signed.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
        };
        match check(server_name) {
            Err(Error::InvalidCertificate(
                error @ (CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. }),
            )) => {
                let mut named = self.names.iter().filter_map(|name| check(name).ok());
                named.next().ok_or(Error::InvalidCertificate(error))
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let signed = &self.signed;
        signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let signed = &self.signed;
        signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::RootCertStore;
    use rustls::crypto::ring;

    fn authority() -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        (own.der().clone(), Issuer::new(params, key))
    }

    fn sign(issuer: &Issuer<'static, KeyPair>, name: &str) -> CertificateDer<'static> {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, issuer).expect("signed");
        signed.der().clone()
    }

    #[test]
    fn a_certificate_counts_for_the_address_or_for_a_named_server() {
        let (root, issuer) = authority();
        let mut store = RootCertStore::empty();
        store.add(root).expect("a CA");
        let provider = Arc::new(ring::default_provider());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
        let servers = NamedServers {
            signed: signed.build().expect("a verifier"),
            names: vec![server_name("db.example:9042").expect("a name")],
        };
        let found = server_name("10.0.0.2:9042").expect("an address");
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        let check = |shown: &CertificateDer<'_>| {
            let checked = servers.verify_server_cert(shown, &[], &found, &[], now);
            checked.map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(check(&sign(&issuer, "10.0.0.2")), Ok(()));
        assert_eq!(check(&sign(&issuer, "db.example")), Ok(()));
        let strange = check(&sign(&issuer, "other.example")).expect_err("it is for another name");
        assert!(strange.contains("10.0.0.2"), "{strange}");
        // The right name is of no use if another CA signed it.
        let (_, foreign) = authority();
        let strange = check(&sign(&foreign, "db.example")).expect_err("it is not signed");
        assert!(!strange.contains("10.0.0.2"), "{strange}");
    }
}
