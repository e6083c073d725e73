//! The facts of a certificate about its holder: names, and how long it holds. And the signer of a
//! list of revoked ones.
//!
//! ```text
//! list    SEQUENCE { tbs SEQUENCE { version, algorithm, issuer, … }, algorithm, signature }
//! ```
//!
//! Invariants
//! 1. No signature is verified here: a certificate is read after the check of its signatures.
//! 2. A name has the letters that a table of tokens may name; any other is passed over, so that no
//!    two spellings meet. Several common names are none.
//! 3. At most `CERTIFICATE_NAMES_MAX` names are kept: common name first, then the others in order.
//!
//! Not here: DER (`x509-parser`), verification (rustls), the rights of a name (crate `wire`).
//! See: RFC 5280, sections 4.1, 4.2.1.6 and 5.1.

use dendra_wire::limits::CERTIFICATE_NAMES_MAX;
use dendra_wire::rights::is_certificate_name;
use std::net::{Ipv4Addr, Ipv6Addr};
use x509_parser::asn1_rs::{Any, FromDer, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Common name, then email addresses, DNS names and URIs.
    pub names: Vec<String>,
    /// DNS names and addresses: the hosts that a server with it has.
    pub hosts: Vec<String>,
    /// Second of Unix time from which on the certificate holds.
    pub from_s: i64,
    /// Second to whose end the certificate holds.
    pub until_s: i64,
    /// Number of the certificate, as the CA gave it.
    pub serial: Vec<u8>,
}

impl CertificateFacts {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// The fault of the certificate.
    pub fn read(der: &[u8]) -> Result<CertificateFacts, String> {
        let bad = |why: &dyn std::fmt::Display| format!("it is no certificate in DER: {why}");
        let (behind, read) = X509Certificate::from_der(der).map_err(|why| bad(&why))?;
        if !behind.is_empty() {
            return Err(bad(&"more bytes are behind it"));
        }
        let mut common = read.subject().iter_common_name();
        let common = match (common.next(), common.next()) {
            (Some(only), None) => only.as_str().ok(),
            _ => None,
        };
        let others = read.subject_alternative_name().map_err(|why| bad(&why))?;
        let others = others.map_or(&[][..], |it| it.value.general_names.as_slice());
        let named = others.iter().filter_map(|name| match name {
            GeneralName::RFC822Name(text) | GeneralName::DNSName(text) | GeneralName::URI(text) => {
                Some(*text)
            }
            _ => None,
        });
        let names = common.into_iter().chain(named);
        let names = names.filter(|name| is_certificate_name(name));
        // A wildcard is a host, and no name.
        let hosts = others.iter().filter_map(|name| match name {
            GeneralName::DNSName(host) => Some((*host).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        });
        Ok(CertificateFacts {
            names: names
                .take(CERTIFICATE_NAMES_MAX)
                .map(str::to_owned)
                .collect(),
            hosts: hosts.collect(),
            from_s: read.validity().not_before.timestamp(),
            until_s: read.validity().not_after.timestamp(),
            serial: read.raw_serial().to_vec(),
        })
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).to_string());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(sixteen).to_string())
}

/// The parts of a list of revoked certificates that say whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RevocationListParts<'a> {
    /// The name of the CA that signed it: the content of that SEQUENCE.
    pub(super) issuer: &'a [u8],
    /// The bytes that are signed.
    pub(super) signed: &'a [u8],
    /// The content of the SEQUENCE that names the algorithm.
    pub(super) algorithm: &'a [u8],
    /// The bits of the signature, in whole bytes.
    pub(super) signature: &'a [u8],
}

impl<'a> RevocationListParts<'a> {
    /// Reads a list in DER; `None` = it is none.
    pub(super) fn read(der: &'a [u8]) -> Option<RevocationListParts<'a>> {
        let (behind, mut whole) = next(der, Tag::Sequence)?;
        let from = whole;
        let mut tbs;
        (whole, tbs) = next(whole, Tag::Sequence)?;
        let signed = &from[..from.len() - whole.len()];
        if let Some((rest, _)) = next(tbs, Tag::Integer) {
            tbs = rest;
        }
        let (tbs, _) = next(tbs, Tag::Sequence)?;
        let (_, issuer) = next(tbs, Tag::Sequence)?;
        let (whole, algorithm) = next(whole, Tag::Sequence)?;
        let (whole, signature) = next_bits(whole)?;
        let read = RevocationListParts {
            issuer,
            signed,
            algorithm,
            signature,
        };
        (behind.is_empty() && whole.is_empty()).then_some(read)
    }
}

/// The algorithm and the bits of a public key, of the content of its SEQUENCE; `None` = it is none.
pub(super) fn public_key(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, algorithm) = next(content, Tag::Sequence)?;
    Some((algorithm, next_bits(rest)?.1))
}

/// The bytes behind the next part, and its content, if it has this tag.
fn next(der: &[u8], tag: Tag) -> Option<(&[u8], &[u8])> {
    let (behind, part) = Any::from_der(der).ok()?;
    (part.tag() == tag).then_some((behind, part.data))
}

/// The next part of bits, if they are a whole number of bytes.
fn next_bits(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (behind, bits) = next(der, Tag::BitString)?;
    Some((behind, bits.strip_prefix(&[0])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};
    use std::net::IpAddr;

    fn certificate(subject: &[(DnType, DnValue)], others: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in subject {
            params.distinguished_name.push(kind.clone(), text.clone());
        }
        params.subject_alt_names = others;
        params.serial_number = Some(vec![7, 8].into());
        params.not_before = rcgen::date_time_ymd(1970, 1, 1);
        params.not_after = rcgen::date_time_ymd(2100, 3, 1);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("signed");
        made.der().to_vec()
    }

    #[test]
    fn names_hosts_and_times_are_read() {
        let dns = |name: &str| SanType::DnsName(name.try_into().expect("ASCII"));
        let der = certificate(
            &[
                (DnType::OrganizationName, "org".into()),
                (DnType::CommonName, "app".into()),
            ],
            vec![
                dns("db1.internal"),
                dns("*.internal"),
                SanType::IpAddress(IpAddr::from([10, 0, 0, 1])),
                SanType::IpAddress(IpAddr::from([0_u16; 8])),
                SanType::URI("spiffe://a/b".try_into().expect("ASCII")),
                SanType::Rfc822Name("me@example.com".try_into().expect("ASCII")),
                dns("with space"),
            ],
        );
        let read = CertificateFacts::read(&der).expect("it is one");
        let names = ["app", "db1.internal", "spiffe://a/b", "me@example.com"];
        assert_eq!(read.names, names);
        let hosts = ["db1.internal", "*.internal", "10.0.0.1", "::", "with space"];
        assert_eq!(read.hosts, hosts);
        assert_eq!(read.serial, [7, 8]);
        assert_eq!((read.from_s, read.until_s), (0, 4_107_542_400));
    }

    #[test]
    fn no_more_names_are_kept_than_a_table_asks_for() {
        let dns = (0..20).map(|i| SanType::DnsName(format!("h{i}").try_into().expect("ASCII")));
        let der = certificate(&[(DnType::CommonName, "app".into())], dns.collect());
        let read = CertificateFacts::read(&der).expect("it is one");
        assert_eq!(read.names.len(), CERTIFICATE_NAMES_MAX);
        assert_eq!((read.names[0].as_str(), read.hosts.len()), ("app", 20));
    }

    #[test]
    fn a_name_that_may_be_another_is_none() {
        let name_of = |subject: &[(DnType, DnValue)]| {
            let read = CertificateFacts::read(&certificate(subject, Vec::new()));
            read.expect("it is one").names
        };
        let common = |text: &str| (DnType::CommonName, DnValue::from(text));
        let again = (DnType::CustomDnType(vec![2, 5, 4, 3]), "b".into());
        let wide = DnValue::BmpString("app".try_into().expect("letters"));
        assert_eq!(name_of(&[common("app")]), ["app"]);
        for subject in [
            &[common("a"), again][..],
            &[common("app\0.evil")],
            &[common("äpp")],
            &[common("")],
            &[(DnType::CommonName, wide)],
            &[(DnType::OrganizationName, "app".into())],
            &[],
        ] {
            assert!(name_of(subject).is_empty(), "{subject:?}");
        }
    }

    #[test]
    fn a_cut_certificate_is_none_and_a_changed_byte_makes_no_panic() {
        let other = SanType::DnsName("h".try_into().expect("ASCII"));
        let whole = certificate(&[(DnType::CommonName, "app".into())], vec![other]);
        for len in 0..whole.len() {
            assert!(CertificateFacts::read(&whole[..len]).is_err(), "{len}");
        }
        let behind = [&whole[..], &[0]].concat();
        assert!(CertificateFacts::read(&behind).is_err());
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0xff, whole[at] ^ 1] {
                let mut changed = whole.clone();
                changed[at] = byte;
                if let Ok(read) = CertificateFacts::read(&changed) {
                    assert!(read.names.iter().all(|name| is_certificate_name(name)));
                }
                let _read = (RevocationListParts::read(&changed), public_key(&changed));
            }
        }
    }

    #[test]
    fn a_list_of_revoked_certificates_says_who_signed_which_bytes() {
        let list = b"\x30\x20\x30\x13\x02\x01\x01\x30\x03alg\x30\x04a CA\x02\x03any\
            \x30\x03alg\x03\x04\0sig";
        let parts = RevocationListParts::read(list);
        let parts = parts.expect("it is one");
        assert_eq!((parts.issuer, parts.algorithm), (&b"a CA"[..], &b"alg"[..]));
        assert_eq!((parts.signed, parts.signature), (&list[2..23], &b"sig"[..]));
        for cut in 0..list.len() {
            assert_eq!(RevocationListParts::read(&list[..cut]), None, "{cut}");
        }
        let odd = b"\x30\x03alg\x03\x05\x01bits";
        assert_eq!(public_key(odd), None, "bits that are no bytes");
    }
}
