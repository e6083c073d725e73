//! A CA and certificates of every kind of fault, as files; and clients that speak TLS.

use base64::Engine;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber,
};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Seconds of a day.
pub(crate) const DAY_S: i64 = 86_400;

/// A CA with its files in a folder.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) folder: PathBuf,
    pub(crate) ca: PathBuf,
}

/// The contents of a certificate.
#[derive(Clone, Copy)]
pub(crate) struct Says<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_server: bool,
    /// Seconds from now.
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// A member on this machine, as it should be.
pub(crate) const MEMBER: Says<'_> = Says {
    name: "127.0.0.1",
    is_server: true,
    from: -DAY_S,
    until: DAY_S,
};

/// A client, as it should be.
pub(crate) const CLIENT: Says<'_> = Says {
    name: "app",
    is_server: false,
    ..MEMBER
};

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

fn at(seconds: i64) -> SystemTime {
    let far = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::now() - far
    } else {
        SystemTime::now() + far
    }
}

impl Authority {
    pub(crate) fn new(folder: &Path) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "a CA");
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        let ca = folder.join("ca.crt");
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::write(&ca, pem("CERTIFICATE", cert.der())).expect("written");
        Authority {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            ca,
        }
    }

    /// Signs what `says`, into files called `stem`.
    pub(crate) fn sign(&self, stem: &str, says: Says<'_>) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![says.name.to_owned()]).expect("a name");
        params.extended_key_usages = if says.is_server {
            vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ]
        } else {
            vec![ExtendedKeyUsagePurpose::ClientAuth]
        };
        params.not_before = at(says.from).into();
        params.not_after = at(says.until).into();
        let cert = params.signed_by(&key, &self.issuer).expect("signed");
        let pair = Pair {
            cert: self.folder.join(format!("{stem}.crt")),
            key: self.folder.join(format!("{stem}.key")),
        };
        std::fs::write(&pair.key, pem("PRIVATE KEY", key.serialized_der())).expect("written");
        std::fs::set_permissions(&pair.key, Permissions::from_mode(0o600)).expect("changed");
        std::fs::write(&pair.cert, pem("CERTIFICATE", cert.der())).expect("written");
        pair
    }

    /// Takes these back, in a file whose name is always the same.
    pub(crate) fn revoke(&self, pairs: &[&Pair]) -> PathBuf {
        let revoked = pairs.iter().map(|pair| {
            let pem = std::fs::read(&pair.cert).expect("it is there");
            let der = rustls::pki_types::CertificateDer::from_pem_slice(&pem).expect("PEM");
            let facts = dendra_server::tls::CertificateFacts::read(&der).expect("one");
            RevokedCertParams {
                serial_number: SerialNumber::from(facts.serial),
                revocation_time: at(-DAY_S).into(),
                reason_code: None,
                invalidity_date: None,
            }
        });
        let params = CertificateRevocationListParams {
            this_update: at(-DAY_S).into(),
            next_update: at(DAY_S).into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("signed");
        let path = self.folder.join("ca.crl");
        let beside = self.folder.join("ca.crl.new");
        std::fs::write(&beside, pem("X509 CRL", list.der())).expect("written");
        std::fs::rename(&beside, &path).expect("renamed");
        path
    }

    /// The configuration of a client that trusts this CA.
    pub(crate) fn client(&self, own: Option<&Pair>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let pem = std::fs::read(&self.ca).expect("it is there");
        let ca = rustls::pki_types::CertificateDer::from_pem_slice(&pem).expect("PEM");
        roots.add(ca).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("both versions")
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let cert = std::fs::read(&pair.cert).expect("it is there");
                let key = std::fs::read(&pair.key).expect("it is there");
                let cert = rustls::pki_types::CertificateDer::from_pem_slice(&cert).expect("PEM");
                let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(&key).expect("PEM");
                builder
                    .with_client_auth_cert(vec![cert], key)
                    .expect("a pair")
            }
        };
        Arc::new(config)
    }
}

/// A client that speaks TLS.
pub(crate) struct Sealed(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Sealed {
    pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Sealed {
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
        let tcp = TcpStream::connect(address).expect("it listens");
        tcp.set_read_timeout(Some(super::PATIENCE)).expect("set");
        Sealed(StreamOwned::new(connection, tcp))
    }

    pub(crate) fn send(&mut self, request: &str) -> std::io::Result<()> {
        self.0.write_all(request.as_bytes())?;
        self.0.flush()
    }

    /// All that comes until the other side ends it.
    pub(crate) fn rest(&mut self) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            // The word of the end did not come, and nothing was cut off that we look at.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && !bytes.is_empty() => {}
            Err(error) => return Err(error),
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Asks once, on a connection that ends with the answer.
    pub(crate) fn ask(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        request: &str,
    ) -> std::io::Result<String> {
        let mut client = Sealed::connect(address, config);
        client.send(&format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ))?;
        client.rest()
    }
}
