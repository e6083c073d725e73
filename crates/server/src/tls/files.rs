//! Certificates, keys and secrets from files.
//!
//! ```text
//! --tls-cert, --tls-key ─► a pair that fits ─┬─► data port; --tls-client-ca: clients show certificates
//!                                            ├─► admin port, likewise; health without one
//!                                            └─► the own side of links, with --tls-peer-ca
//! --tls-revoked ─► certificates of either CA that do not count
//! ```
//!
//! Invariants
//! 1. A pair that does not fit, and a file that is not whole, is an error and never a
//!    configuration.
//! 2. A file of a key or a secret that others than its owner may open is refused.
//! 3. The other side's certificate is always checked: there is no option against it.
//!
//! Not here: when files are read again (`keeper.rs`).
//! See: docs/operating.md, section "Certificates".

use super::authorities::{CertificateWant, ClientAuthorities, MemberAuthorities};
use super::certificate::CertificateFacts;
use crate::secret_file::{content, secret, too_long};
use crate::settings::TlsSettings;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file of certificates or of a key: a longer one is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The node's own certificate, as terms and metrics name it.
pub(crate) const OWN_FILE: &str = "certificate";
/// Both sides speak only this inside.
const PROTOCOL: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates in a file, as PEM; `what` names it in sentences.
///
/// # Errors
/// When it cannot be read, or holds none that is whole.
pub fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    pem_items(
        path,
        what,
        "no certificate: it begins with -----BEGIN CERTIFICATE-----",
    )
}

/// The items in a file, as PEM; `lacks` is the end of the sentence about a file without one.
fn pem_items<T: PemObject>(path: &Path, what: &str, lacks: &str) -> Result<Vec<T>, String> {
    let name = path.display();
    let read = File::open(path).and_then(|file| content(file, FILE_BYTES_MAX));
    let bytes = read
        .map_err(|e| format!("{what}, {name}, cannot be read ({e}): check its path"))?
        .ok_or_else(|| too_long(path, what, FILE_BYTES_MAX))?;
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{what}, {name}, holds {lacks}")),
        Err(bad) => Err(not_whole(what, path, &bad)),
    }
}

/// A sentence about a file that is not PEM from its first line to its last one.
fn not_whole(what: &str, path: &Path, bad: &pem::Error) -> String {
    let name = path.display();
    match bad {
        pem::Error::MissingSectionEnd { .. } => format!(
            "{what}, {name}, is cut, or still being written (its -----END line is missing): put \
             the whole file there"
        ),
        pem::Error::NoItemsFound => format!(
            "{what}, {name}, holds nothing of its kind: it begins with a line of -----BEGIN"
        ),
        _ => format!("{what}, {name}, is no PEM ({bad}): check its path"),
    }
}

/// Adds the CAs in a file to `store`, and returns their certificates.
fn roots(
    path: &Path,
    what: &str,
    store: &mut RootCertStore,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = certificates(path, what)?;
    for certificate in &found {
        store
            .add(certificate.clone())
            .map_err(|bad| format!("{what}, {}, cannot be trusted: {bad}", path.display()))?;
    }
    Ok(found)
}

fn pair(cert: &Path, key: &Path) -> Result<Arc<OnePair>, String> {
    let chain = certificates(cert, "the certificate")?;
    let bytes = secret(key, "the key", FILE_BYTES_MAX)?;
    let parsed = PrivateKeyDer::from_pem_slice(&bytes);
    let parsed = parsed.map_err(|bad| not_whole("the key", key, &bad))?;
    let pair = CertifiedKey::from_der(chain, parsed, &provider()).map_err(|bad| {
        format!(
            "the certificate {} and the key {} do not fit together ({bad}): name the pair that was \
             made at one time",
            cert.display(),
            key.display()
        )
    })?;
    Ok(Arc::new(OnePair(Arc::new(pair))))
}

/// Always the same pair: a node has one name.
#[derive(Debug)]
struct OnePair(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for OnePair {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl rustls::client::ResolvesClientCert for OnePair {
    fn resolve(
        &self,
        _roots: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The certificates and keys of a node.
#[derive(Debug)]
pub(crate) struct Configs {
    /// For the data port.
    pub(crate) server: Arc<ServerConfig>,
    /// For the admin port: a client may show no certificate. The session tells it from others.
    pub(crate) admin: Arc<ServerConfig>,
    /// For links to other members.
    pub(crate) links: Option<LinkConfigs>,
    /// How long the files hold.
    pub(crate) terms: Vec<FileTerm>,
    /// The node's own certificate and those between it and the CA.
    pub(crate) own: Arc<CertifiedKey>,
    /// Is a certificate one of a client or a member? `None` = none is asked for.
    clients: Option<Arc<ClientAuthorities>>,
}

impl Configs {
    /// Would this node, as another member, take its own certificate from the member at `host`? Its
    /// term is not judged: a certificate that has ended is checked at its last second.
    ///
    /// # Errors
    /// The fault of the certificate.
    pub(crate) fn check_own(&self, host: &str, now_s: i64) -> Result<(), OwnFault> {
        let Some(links) = &self.links else {
            return Ok(());
        };
        let name = server_name(host).map_err(OwnFault::Unreadable)?;
        let (own, between) = self.own.cert.split_first().expect("a pair has one");
        let facts = CertificateFacts::read(own).map_err(OwnFault::Unreadable)?;
        let at_s = now_s.min(facts.until_s).max(facts.from_s);
        let at_s = u64::try_from(at_s).unwrap_or(0);
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at_s));
        let serves = links
            .members
            .verify_server_cert(own, between, &name, &[], at);
        serves.map_err(OwnFault::Refused)?;
        if let Some(clients) = &self.clients {
            let asks = clients.verify_client_cert(own, between, at);
            asks.map_err(OwnFault::Refused)?;
        }
        Ok(())
    }
}

/// Why other members do not take the certificate of this one.
#[derive(Debug)]
pub(crate) enum OwnFault {
    /// TLS says why.
    Refused(rustls::Error),
    /// The certificate cannot be checked, and why.
    Unreadable(String),
}

impl OwnFault {
    /// Was it taken back?
    pub(crate) fn is_revoked(&self) -> bool {
        let revoked = rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked);
        matches!(self, OwnFault::Refused(bad) if *bad == revoked)
    }
}

/// The term of the certificate in a file that ends first, in seconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileTerm {
    /// `certificate`, `client-ca`, `peer-ca`.
    pub(crate) file: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) from_s: i64,
    pub(crate) until_s: i64,
    /// When the file is of no use any more: its own certificate ends, or the last of its
    /// authorities.
    pub(crate) of_use_until_s: i64,
}

impl FileTerm {
    /// `None` = no certificate of the file says how long it holds.
    fn of(
        file: &'static str,
        path: &Path,
        certificates: &[CertificateDer<'_>],
    ) -> Option<FileTerm> {
        let facts = certificates
            .iter()
            .filter_map(|it| CertificateFacts::read(it).ok());
        let facts: Vec<CertificateFacts> = facts.collect();
        let first = facts.iter().min_by_key(|facts| facts.until_s)?;
        let last = if file == OWN_FILE {
            facts.first()
        } else {
            facts.iter().max_by_key(|facts| facts.until_s)
        };
        Some(FileTerm {
            of_use_until_s: last.map_or(first.until_s, |it| it.until_s),
            file,
            path: path.to_owned(),
            from_s: first.from_s,
            until_s: first.until_s,
        })
    }
}

/// Certificates that were taken back.
fn revoked(path: Option<&Path>) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let what = "the list of revoked certificates";
    let lacks = "none: it begins with -----BEGIN X509 CRL-----";
    path.map_or(Ok(Vec::new()), |path| pem_items(path, what, lacks))
}

/// The certificates by which members know each other.
#[derive(Clone, Debug)]
pub(crate) struct LinkConfigs {
    pub(crate) client: Arc<ClientConfig>,
    /// Is a certificate one of a member?
    pub(crate) members: Arc<MemberAuthorities>,
}

/// Reads all files that `settings` names.
///
/// # Errors
/// A sentence about the first that is of no use.
pub(crate) fn read(settings: &TlsSettings) -> Result<Configs, String> {
    let unusable = |bad: &dyn std::fmt::Display| format!("TLS cannot be used: {bad}");
    let own = pair(&settings.cert, &settings.key)?;
    let revoked = revoked(settings.revoked.as_deref())?;
    let (members, member_term) = authority(&settings.peer_ca, "peer-ca", "the CA of the members")?;
    let links = (!members.is_empty())
        .then(|| links(&members, &own, &revoked).map_err(|bad| unusable(&bad)))
        .transpose()?;
    let ca = authority(&settings.client_ca, "client-ca", "the CA of the clients")?;
    // A member is a client, too: it shows its certificate where clients show theirs.
    let (mut store, client_term) = ca;
    store.roots.extend(members.roots);
    let want = match settings.client_ca {
        Some(_) => CertificateWant::Required,
        None => CertificateWant::Optional,
    };
    let clients = if store.is_empty() {
        None
    } else {
        let clients = ClientAuthorities::new(&store, &revoked, &provider(), want);
        Some(Arc::new(clients.map_err(|bad| unusable(&bad))?))
    };
    let optional = clients
        .as_ref()
        .map(|clients| Arc::new(clients.wanting(CertificateWant::Optional)));
    let server = server_of(&own, clients.as_ref()).map_err(|bad| unusable(&bad))?;
    let admin = server_of(&own, optional.as_ref()).map_err(|bad| unusable(&bad))?;
    let own_term = FileTerm::of(OWN_FILE, &settings.cert, &own.0.cert);
    let terms = [own_term, client_term, member_term].into_iter().flatten();
    Ok(Configs {
        server: Arc::new(server),
        admin: Arc::new(admin),
        links,
        terms: terms.collect(),
        own: Arc::clone(&own.0),
        clients,
    })
}

/// The CAs in a file, and the term of the one that ends first; none where no file is named.
fn authority(
    path: &Option<PathBuf>,
    file: &'static str,
    what: &str,
) -> Result<(RootCertStore, Option<FileTerm>), String> {
    let mut store = RootCertStore::empty();
    let Some(path) = path else {
        return Ok((store, None));
    };
    let found = roots(path, what, &mut store)?;
    Ok((store, FileTerm::of(file, path, &found)))
}

/// The server's side of a port. Each has keys of tickets of its own, so that a session that was
/// made without a certificate on one port is not resumed on the other.
fn server_of(
    own: &Arc<OnePair>,
    clients: Option<&Arc<ClientAuthorities>>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients) as Arc<_>),
    };
    let mut server = builder.with_cert_resolver(Arc::clone(own) as Arc<_>);
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    // New keys of tickets with each configuration: a session does not outlive the CA that let it
    // in.
    server.ticketer = ring::Ticketer::new()?;
    Ok(server)
}

fn links(
    store: &RootCertStore,
    own: &Arc<OnePair>,
    revoked: &[CertificateRevocationListDer<'static>],
) -> Result<LinkConfigs, String> {
    let members = Arc::new(MemberAuthorities::new(store, revoked, &provider())?);
    let client = client_of(Arc::clone(&members) as Arc<_>, Some(Arc::clone(own)))?;
    Ok(LinkConfigs {
        client: Arc::new(client),
        members,
    })
}

/// The client's side of a connection: `servers` checks the certificates of servers, `own` is shown.
fn client_of(
    servers: Arc<dyn ServerCertVerifier>,
    own: Option<Arc<OnePair>>,
) -> Result<ClientConfig, String> {
    // rustls calls each verifier that is not its own dangerous: one here asks several of its own.
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .map_err(|bad| bad.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(servers);
    let mut client = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(own),
    };
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(client)
}

/// The TLS settings of a node's client: a CA that it trusts, and a pair of its own where the node
/// asks for one.
#[derive(Clone, Debug)]
pub struct TlsClient(
    /// All of it.
    pub Arc<ClientConfig>,
    /// How it checks the certificates of servers.
    pub Arc<WebPkiServerVerifier>,
);

impl TlsClient {
    /// Trusts the certificates in `ca` alone; shows `pair`, a certificate and its key.
    ///
    /// # Errors
    /// A sentence about the file that is of no use.
    pub fn read(ca: &Path, own: Option<(&Path, &Path)>) -> Result<TlsClient, String> {
        let mut store = RootCertStore::empty();
        roots(ca, "the CA", &mut store)?;
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
            .build()
            .map_err(|bad| bad.to_string())?;
        let own = own.map(|(cert, key)| pair(cert, key)).transpose()?;
        let config = client_of(Arc::clone(&servers) as Arc<_>, own)?;
        Ok(TlsClient(Arc::new(config), servers))
    }
}

/// Would a node that trusts the CA in `ca` let in the holder of this certificate, at a second of
/// Unix time?
///
/// # Errors
/// A sentence about why not.
pub fn check_signed(ca: &Path, certificate: &CertificateDer<'_>, at_s: u64) -> Result<(), String> {
    let mut store = RootCertStore::empty();
    roots(ca, "the CA", &mut store)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider())
        .build()
        .map_err(|bad| bad.to_string())?;
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at_s));
    let checked = verifier.verify_client_cert(certificate, &[], at);
    checked
        .map(|_| ())
        .map_err(|bad| format!("the CA, {}, did not sign it: {bad}", ca.display()))
}

/// The name in the certificate of a server at `host`, which may have a port.
///
/// # Errors
/// When no certificate can hold it.
pub fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let name = match host.parse::<std::net::IpAddr>() {
        Ok(_) => host,
        Err(_) => dendra_wire::hosts::name_of_authority(host),
    };
    ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{name:?} is no name that a certificate can hold"))
}
