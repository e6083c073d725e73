//! `dendra cert`: a private CA, and the certificates of members and clients.
//!
//! ```text
//! FOLDER/ca.crt, ca.key            the CA: made when it is not there; ca.key belongs off the members
//! FOLDER/HOST.crt, HOST.key        a member: server and client, its names are hosts
//! FOLDER/client-NAME.crt, .key     a client: client alone, its name is no host
//! FOLDER/revoked/, ca.crl          certificates that were taken back, and the CA's list of them
//! ```
//!
//! Invariants
//! 1. A key has mode 0600 from its first byte on, and no file is replaced unless --renew says so.
//!    The CA never is.
//! 2. A client's certificate is of no use to a member: it does not say that it may serve.
//! 3. A pair is whole or not there: each file is renamed into its place, the key first.
//! 4. All names of new pairs are checked before anything is written.
//!
//! Not here: using them (crate `server`, `tls/`).
//! See: docs/operating.md, section "Certificates".

use crate::cli::Cert;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::output;
use base64::Engine;
use dendra_server::tls::CertificateFacts;
use dendra_server::tls::{PemObject, PrivateKeyDer};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Clocks of members differ: a certificate holds from a little before it is made.
pub(crate) const BACKDATED: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Ten years.
const CA_DAYS: u32 = 3_650;

/// The purpose of a certificate.
enum CertPurpose<'a> {
    Member(Vec<&'a str>),
    Client(&'a str),
}

/// A pair that is asked for, under names that can be its own.
struct WantedPair {
    stem: String,
    params: CertificateParams,
}

/// `dendra cert`
pub(crate) fn cert(args: &Cert, console: Console) -> ExitResult {
    let folder = &args.folder;
    let members = args.member.iter().map(|names| {
        let names = names.split(',').map(str::trim).collect();
        CertPurpose::Member(names)
    });
    let clients = args.client.iter().map(|name| CertPurpose::Client(name));
    let wanted: Vec<WantedPair> = members
        .chain(clients)
        .map(|purpose| wanted(&purpose))
        .collect::<Result<_, _>>()?;
    check_free(&wanted, args)?;
    fs::create_dir_all(folder).map_err(|e| cannot("make", folder, &e))?;
    let ca = match authority(folder)? {
        Some(ca) => ca,
        None => found_authority(folder, console)?,
    };
    for name in &args.revoke {
        revoke(folder, &ca, name, console)?;
    }
    if wanted.is_empty() && args.revoke.is_empty() {
        console.note(&format!(
            "{} is the CA: --member HOST and --client NAME make certificates, --revoke NAME takes \
             one back",
            folder.join("ca.crt").display()
        ));
    }
    for it in wanted {
        sign(folder, &ca, it, args, console)?;
    }
    Ok(Exit::OK)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let sentence = format!(
        "cannot {what} {} ({error}): check its path and rights",
        path.display()
    );
    Failure::new(Exit::FAILURE, sentence)
}

fn failed(error: rcgen::Error) -> Failure {
    Failure::new(
        Exit::FAILURE,
        format!("the certificate cannot be made ({error})"),
    )
}

fn dated(params: &mut CertificateParams, time: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + time).into();
}

pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The CA of the folder, if it has one.
pub(crate) fn authority(folder: &Path) -> Result<Option<Issuer<'static, KeyPair>>, Failure> {
    let (cert_path, key_path) = (folder.join("ca.crt"), folder.join("ca.key"));
    if !key_path.exists() && !cert_path.exists() {
        return Ok(None);
    }
    let key = dendra_server::secret(&key_path, "the key of the CA", 1 << 20);
    let key = PrivateKeyDer::from_pem_slice(&key.map_err(Failure::usage)?);
    let key = key.ok().and_then(|der| KeyPair::try_from(&der).ok());
    match key {
        Some(key) => Ok(Some(Issuer::new(of_authority(), key))),
        None => Err(Failure::usage(format!(
            "{} is no key: name another folder, and dendra cert makes a CA there",
            key_path.display()
        ))),
    }
}

/// A new CA in the folder.
fn found_authority(folder: &Path, console: Console) -> Result<Issuer<'static, KeyPair>, Failure> {
    let (cert_path, key_path) = (folder.join("ca.crt"), folder.join("ca.key"));
    let params = of_authority();
    let key = KeyPair::generate().map_err(failed)?;
    let cert = params.self_signed(&key).map_err(failed)?;
    write(&key_path, &pem("PRIVATE KEY", key.serialized_der()), 0o600)?;
    write(&cert_path, &pem("CERTIFICATE", cert.der()), 0o644)?;
    console.note(&format!(
        "a new CA: {}; keep {} off the members",
        cert_path.display(),
        key_path.display()
    ));
    Ok(Issuer::new(of_authority(), key))
}

/// Base64 in lines of 64, between its two marks.
fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {what}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {what}-----\n"));
    pem
}

/// The properties of every CA of ours, so that its key alone signs in its name.
fn of_authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
        .distinguished_name
        .push(DnType::CommonName, "Dendra CA");
    dated(&mut params, DAY * CA_DAYS);
    params
}

/// Takes a certificate back: it goes to the folder of those, and the list of them is made anew.
/// The certificate leaves its place last: a call that fails can be repeated, and does the rest.
fn revoke(
    folder: &Path,
    ca: &Issuer<'static, KeyPair>,
    name: &str,
    console: Console,
) -> Result<(), Failure> {
    let aside = folder.join("revoked");
    fs::create_dir_all(&aside).map_err(|e| cannot("make", &aside, &e))?;
    let is_file_name = !name.is_empty() && !name.contains('/') && name != "ca";
    let cert_path = folder.join(format!("{name}.crt"));
    if !is_file_name || !cert_path.exists() {
        return Err(Failure::usage(format!(
            "{} is not there: name a certificate of the folder as its file is called, without .crt",
            cert_path.display()
        )));
    }
    let serial = facts(&cert_path)?.serial;
    let digits: String = serial.iter().map(|byte| format!("{byte:02x}")).collect();
    let kept = aside.join(format!("{name}-{digits}.crt"));
    match fs::hard_link(&cert_path, &kept) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(cannot("make", &kept, &error));
        }
        // It is the same certificate: its number is in the name.
        Ok(()) | Err(_) => {}
    }
    let list = folder.join("ca.crl");
    let count = write_list(&list, &aside, ca)?;
    let key_path = folder.join(format!("{name}.key"));
    match fs::remove_file(&key_path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(cannot("remove", &key_path, &error));
        }
        Ok(()) | Err(_) => {}
    }
    fs::remove_file(&cert_path).map_err(|e| cannot("remove", &cert_path, &e))?;
    console.note(&format!(
        "{name} is revoked: {} has {count}; give it to the nodes with --tls-revoked",
        list.display()
    ));
    Ok(())
}

/// Makes the list of all certificates in `aside`, and says how many they are.
fn write_list(list: &Path, aside: &Path, ca: &Issuer<'static, KeyPair>) -> Result<usize, Failure> {
    let now = SystemTime::now();
    let mut revoked_certs = Vec::new();
    for entry in fs::read_dir(aside).map_err(|e| cannot("read", aside, &e))? {
        let path = entry.map_err(|e| cannot("read", aside, &e))?.path();
        revoked_certs.push(RevokedCertParams {
            serial_number: SerialNumber::from(facts(&path)?.serial),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
    }
    let count = revoked_certs.len();
    let params = CertificateRevocationListParams {
        this_update: (now - BACKDATED).into(),
        next_update: (now + DAY * CA_DAYS).into(),
        crl_number: SerialNumber::from(count as u64),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let made = params.signed_by(ca).map_err(failed)?;
    write(list, &pem("X509 CRL", made.der()), 0o644)?;
    Ok(count)
}

/// The facts in the first certificate of a file.
pub(crate) fn facts(path: &Path) -> Result<CertificateFacts, Failure> {
    let found =
        dendra_server::tls::certificates(path, "the certificate").map_err(Failure::usage)?;
    CertificateFacts::read(&found[0])
        .map_err(|reason| Failure::usage(format!("the certificate, {}: {reason}", path.display())))
}

/// The name of the pair's files, and the contents of the certificate.
fn wanted(purpose: &CertPurpose<'_>) -> Result<WantedPair, Failure> {
    let (stem, params) = match purpose {
        CertPurpose::Member(names) => (names[0].replace(':', "_"), of_member(names)?),
        CertPurpose::Client(name) => {
            check_client(name)?;
            let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            (format!("client-{name}"), of_holder(name, usages))
        }
    };
    let is_member = matches!(purpose, CertPurpose::Member(_));
    let owner = match stem.as_str() {
        "ca" => Some("of the CA"),
        name if name.starts_with("client-") => Some("of a client"),
        _ => None,
    };
    match owner.filter(|_| is_member) {
        Some(owner) => Err(Failure::usage(format!(
            "--member {stem}: {stem}.crt and {stem}.key are the names {owner}: put another host of \
             the member first, as in --member 10.0.0.1,{stem}"
        ))),
        None => Ok(WantedPair { stem, params }),
    }
}

impl WantedPair {
    /// Certificate and key.
    fn paths(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let file = |kind: &str| folder.join(format!("{}.{kind}", self.stem));
        (file("crt"), file("key"))
    }
}

/// Is each pair asked for once, and is its place free, or may it be replaced?
fn check_free(wanted: &[WantedPair], args: &Cert) -> Result<(), Failure> {
    let mut stems = BTreeSet::new();
    for pair in wanted {
        let (cert_path, key_path) = pair.paths(&args.folder);
        if !stems.insert(pair.stem.as_str()) {
            return Err(Failure::usage(format!(
                "{} is asked for twice: write all hosts of a member behind one --member, with \
                 commas",
                cert_path.display()
            )));
        }
        // A revoked pair leaves its place first.
        let may_replace = args.renew || args.revoke.contains(&pair.stem);
        if !may_replace && (cert_path.exists() || key_path.exists()) {
            return Err(Failure::usage(format!(
                "{} is there already: say --renew to replace it",
                cert_path.display()
            )));
        }
    }
    Ok(())
}

fn sign(
    folder: &Path,
    ca: &Issuer<'static, KeyPair>,
    wanted: WantedPair,
    args: &Cert,
    console: Console,
) -> Result<(), Failure> {
    let (cert_path, key_path) = wanted.paths(folder);
    let time = DAY * args.days;
    write_pair(folder, ca, wanted.params, time, (&cert_path, &key_path))?;
    console.note(&format!(
        "{} and {}, for {} days",
        cert_path.display(),
        key_path.display(),
        args.days
    ));
    Ok(())
}

/// The contents of a member's certificate: its first name is its name.
pub(crate) fn of_member<N: AsRef<str>>(names: &[N]) -> Result<CertificateParams, Failure> {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let first = names.first().map_or("", |name| name.as_ref());
    let mut params = of_holder(first, vec![ServerAuth, ClientAuth]);
    for name in names {
        params.subject_alt_names.push(host(name.as_ref())?);
    }
    Ok(params)
}

fn of_holder(name: &str, usages: Vec<ExtendedKeyUsagePurpose>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.extended_key_usages = usages;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params
}

/// Signs a new key for `time` from now on, and puts the pair into its place.
pub(crate) fn write_pair(
    folder: &Path,
    ca: &Issuer<'static, KeyPair>,
    mut params: CertificateParams,
    time: Duration,
    (cert_path, key_path): (&Path, &Path),
) -> Result<(), Failure> {
    dated(&mut params, time);
    let key = KeyPair::generate().map_err(failed)?;
    let cert = params.signed_by(&key, ca).map_err(failed)?;
    // A CA that another program made may have another name.
    dendra_server::tls::check_signed(&folder.join("ca.crt"), cert.der(), now_s())
        .map_err(Failure::usage)?;
    write(key_path, &pem("PRIVATE KEY", key.serialized_der()), 0o600)?;
    write(cert_path, &pem("CERTIFICATE", cert.der()), 0o644)
}

/// A name that members and clients look for.
fn host(name: &str) -> Result<SanType, Failure> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(SanType::IpAddress(address));
    }
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(is_of_name);
    let dns = name.try_into().ok().filter(|_| is_name);
    dns.map(SanType::DnsName).ok_or_else(|| {
        Failure::usage(format!(
            "{name:?} is no host: write the host of the member's URL, without scheme and port"
        ))
    })
}

fn check_client(name: &str) -> Result<(), Failure> {
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_of_name) {
        Ok(())
    } else {
        Err(Failure::usage(format!(
            "{name:?} is no client's name: write up to 64 letters, digits, and - _ ."
        )))
    }
}

/// A reader finds the old file or the new one.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let written = output::write(path, text.as_bytes(), Some(mode));
    written.map_err(|error| cannot("write", path, &error))
}
