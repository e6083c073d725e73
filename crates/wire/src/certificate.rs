//! The facts of a certificate about its holder: names, and how long it holds. And the signer of a
//! list of revoked ones.
//!
//! ```text
//! Certificate  SEQUENCE { tbs SEQUENCE { [0] version, serial, algorithm, issuer,
//!                SEQUENCE { from, until }, subject, key, …, [3] extensions }, algorithm, signature }
//! subject      SEQUENCE of SET of SEQUENCE { 2.5.4.3, "app" }            the common name
//! list         SEQUENCE { tbs SEQUENCE { version, algorithm, issuer, … }, algorithm, signature }
//! extension    SEQUENCE { 2.5.29.17, OCTET STRING { SEQUENCE of name } } email [1], DNS [2], URI [6], address [7]
//! ```
//!
//! Invariants
//! 1. No signature is verified here: a certificate is read after the check of its signatures, which
//!    has parsed it too. Bytes that are not DER in its shortest form are refused.
//! 2. A name has the letters that a table of tokens may name; any other is passed over, so that no
//!    two spellings meet. Several common names are none.
//! 3. At most `CERTIFICATE_NAMES_MAX` names are kept: common name first, then the others in order.
//!
//! Not here: verification (rustls), the rights of a name (`rights.rs`).
//! See: RFC 5280, sections 4.1, 4.2.1.6 and 5.1; X.690.

use crate::limits::CERTIFICATE_NAMES_MAX;
use crate::rights::is_certificate_name;
use core::net::{Ipv4Addr, Ipv6Addr};

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const OTHER_NAMES: &[u8] = &[0x55, 0x1d, 17];

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
const UTC_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Common name, then email addresses, DNS names and URIs.
    pub names: Vec<String>,
    /// DNS names and addresses: the hosts that a server with it has.
    pub hosts: Vec<String>,
    /// First second of Unix time at which the certificate is valid.
    pub from_s: i64,
    /// Last second of Unix time at which the certificate is valid.
    pub until_s: i64,
    /// Serial number, as the CA gave it.
    pub serial: Vec<u8>,
}

/// Parts of DER, one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next part, of any kind.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 3))?;
                let len = digits.iter().fold(0, |len, &d| len << 8 | usize::from(d));
                let is_short = len > 0x7f && digits[0] != 0;
                (Some(len).filter(|_| is_short)?, rest)
            }
            _ => return None,
        };
        // A tag of several bytes is in no part that is looked at.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The next part, which has this tag.
    fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        match self.any() {
            Some((found, content)) if found == tag => Some(content),
            _ => {
                self.0 = before;
                None
            }
        }
    }

    /// The next part, which is a whole number of bytes.
    fn next_bits(&mut self) -> Option<&'a [u8]> {
        match self.next(BITS)?.split_first()? {
            (0, bytes) => Some(bytes),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The parts of a list of revoked certificates that say whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationListParts<'a> {
    /// The name of the CA that signed it: the content of that SEQUENCE.
    pub issuer: &'a [u8],
    /// The bytes that are signed.
    pub signed: &'a [u8],
    /// The content of the SEQUENCE that names the algorithm.
    pub algorithm: &'a [u8],
    /// The bits of the signature, in whole bytes.
    pub signature: &'a [u8],
}

impl<'a> RevocationListParts<'a> {
    /// Reads a list in DER; `None` = it is none.
    pub fn read(der: &'a [u8]) -> Option<RevocationListParts<'a>> {
        let mut outer = Der(der);
        let mut whole = Der(outer.next(SEQUENCE).filter(|_| outer.is_empty())?);
        let from = whole.0;
        let mut tbs = Der(whole.next(SEQUENCE)?);
        let signed = &from[..from.len() - whole.0.len()];
        tbs.next(INTEGER);
        tbs.next(SEQUENCE)?;
        Some(RevocationListParts {
            issuer: tbs.next(SEQUENCE)?,
            signed,
            algorithm: whole.next(SEQUENCE)?,
            signature: whole.next_bits().filter(|_| whole.is_empty())?,
        })
    }
}

/// The algorithm and the bits of a public key, of the content of its SEQUENCE; `None` = it is none.
pub fn public_key(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = Der(content);
    Some((parts.next(SEQUENCE)?, parts.next_bits()?))
}

impl CertificateFacts {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// The fault of the certificate.
    pub fn read(der: &[u8]) -> Result<CertificateFacts, &'static str> {
        let mut outer = Der(der);
        let whole = outer.next(SEQUENCE).filter(|_| outer.is_empty());
        let whole = whole.ok_or("it is no certificate in DER")?;
        let tbs = Der(whole).next(SEQUENCE);
        let mut tbs = Der(tbs.ok_or("it signs nothing")?);
        tbs.next(VERSION);
        let serial = tbs.next(INTEGER).ok_or("it has no number")?;
        tbs.next(SEQUENCE).ok_or("it has no algorithm")?;
        tbs.next(SEQUENCE).ok_or("it has no issuer")?;
        let times = tbs.next(SEQUENCE).and_then(|times| {
            let mut times = Der(times);
            let pair = (time(times.any()?)?, time(times.any()?)?);
            times.is_empty().then_some(pair)
        });
        let (from_s, until_s) = times.ok_or("its times are none")?;
        let subject = tbs.next(SEQUENCE).ok_or("it has no subject")?;
        tbs.next(SEQUENCE).ok_or("it has no key")?;
        let mut facts = CertificateFacts {
            names: Vec::new(),
            hosts: Vec::new(),
            from_s,
            until_s,
            serial: serial.to_vec(),
        };
        let common = common_name(subject).ok_or("its subject is none")?;
        facts.names.extend(common.map(str::to_owned));
        while let Some((tag, content)) = tbs.any() {
            if tag == EXTENSIONS {
                facts
                    .note_extensions(content)
                    .ok_or("its extensions are none")?;
            }
        }
        if !tbs.is_empty() {
            return Err("it is cut off");
        }
        Ok(facts)
    }

    fn note_extensions(&mut self, content: &[u8]) -> Option<()> {
        let mut all = Der(Der(content).next(SEQUENCE)?);
        while !all.is_empty() {
            let mut extension = Der(all.next(SEQUENCE)?);
            let oid = extension.next(OID)?;
            extension.next(BOOLEAN);
            let value = extension.next(OCTETS)?;
            if oid == OTHER_NAMES {
                self.note_names(value)?;
            }
        }
        Some(())
    }

    fn note_names(&mut self, value: &[u8]) -> Option<()> {
        let mut names = Der(Der(value).next(SEQUENCE)?);
        while !names.is_empty() {
            let (tag, content) = names.any()?;
            match tag {
                0x81 | 0x82 | 0x86 => {
                    if let Some(name) = checked(content)
                        && self.names.len() < CERTIFICATE_NAMES_MAX
                    {
                        self.names.push(name.to_owned());
                    }
                    // A wildcard is a host, and no name.
                    if tag == 0x82
                        && let Ok(host) = std::str::from_utf8(content)
                    {
                        self.hosts.push(host.to_owned());
                    }
                }
                0x87 => self.hosts.extend(address(content)),
                _ => {}
            }
        }
        Some(())
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).to_string());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(sixteen).to_string())
}

/// The text of a name, if it is one that a table may have.
fn checked(content: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(content).ok()?;
    is_certificate_name(name).then_some(name)
}

/// The only common name of a subject, if it has one: `None` when the subject is not whole.
fn common_name(subject: &[u8]) -> Option<Option<&str>> {
    let mut parts = Der(subject);
    let mut found = Vec::new();
    while !parts.is_empty() {
        let mut set = Der(parts.next(SET)?);
        while !set.is_empty() {
            let mut pair = Der(set.next(SEQUENCE)?);
            let oid = pair.next(OID)?;
            let (tag, text) = pair.any()?;
            if oid == COMMON_NAME {
                found.push(checked(text).filter(|_| TEXTS.contains(&tag)));
            }
        }
    }
    match found.as_slice() {
        [only] => Some(*only),
        _ => Some(None),
    }
}

/// Seconds of Unix time, of `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let (text, last) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if last != b"Z" || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pairs: Vec<i64> = text
        .chunks(2)
        .map(|two| two.iter().fold(0, |n, d| 10 * n + i64::from(d - b'0')))
        .collect();
    let (year, rest) = match (tag, pairs.as_slice()) {
        // RFC 5280, 4.1.2.5.1: two digits are of 1950 to 2049.
        (UTC_TIME, [year, rest @ ..]) if text.len() == 12 => (
            if *year < 50 {
                2_000 + year
            } else {
                1_900 + year
            },
            rest,
        ),
        (LONG_TIME, [century, year, rest @ ..]) if text.len() == 14 => (100 * century + year, rest),
        _ => return None,
    };
    let &[month, day, hour, minute, second] = rest else {
        return None;
    };
    let is_one = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    is_one.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. Years begin in March here, so that a
/// leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        match content.len() {
            len @ 0..0x80 => out.push(len as u8),
            len @ 0x80..0x100 => out.extend([0x81, len as u8]),
            len => out.extend([0x82, (len >> 8) as u8, len as u8]),
        }
        out.extend_from_slice(content);
        out
    }

    fn subject(names: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let sets = names.iter().map(|(oid, tag, text)| {
            let pair = [part(OID, oid), part(*tag, text)].concat();
            part(SET, &part(SEQUENCE, &pair))
        });
        part(SEQUENCE, &sets.collect::<Vec<_>>().concat())
    }

    fn extensions(names: &[(u8, &[u8])]) -> Vec<u8> {
        let names: Vec<_> = names.iter().map(|(tag, text)| part(*tag, text)).collect();
        let value = part(OCTETS, &part(SEQUENCE, &names.concat()));
        let ours = [part(OID, OTHER_NAMES), part(BOOLEAN, &[0xff]), value].concat();
        let other = [part(OID, &[0x55, 0x1d, 15]), part(OCTETS, b"any")].concat();
        let all = [part(SEQUENCE, &other), part(SEQUENCE, &ours)].concat();
        part(EXTENSIONS, &part(SEQUENCE, &all))
    }

    fn certificate(subject: &[u8], times: &[u8], extensions: &[u8]) -> Vec<u8> {
        let tbs = [
            part(VERSION, &part(INTEGER, &[2])),
            part(INTEGER, &[7, 8]),
            part(SEQUENCE, b""),
            part(SEQUENCE, b""),
            part(SEQUENCE, times),
            subject.to_vec(),
            part(SEQUENCE, b"key"),
            extensions.to_vec(),
        ];
        let tbs = part(SEQUENCE, &tbs.concat());
        part(
            SEQUENCE,
            &[tbs, part(SEQUENCE, b""), part(3, b"sig")].concat(),
        )
    }

    fn times() -> Vec<u8> {
        [
            part(UTC_TIME, b"700101000000Z"),
            part(LONG_TIME, b"21000301000001Z"),
        ]
        .concat()
    }

    #[test]
    fn a_list_of_revoked_certificates_says_who_signed_which_bytes() {
        let tbs = [
            part(INTEGER, &[1]),
            part(SEQUENCE, b"alg"),
            part(SEQUENCE, b"a CA"),
            part(UTC_TIME, b"700101000000Z"),
        ];
        let tbs = part(SEQUENCE, &tbs.concat());
        let end = [part(SEQUENCE, b"alg"), part(BITS, b"\0sig")].concat();
        let list = part(SEQUENCE, &[tbs.clone(), end].concat());
        let expected = RevocationListParts {
            issuer: b"a CA",
            signed: &tbs,
            algorithm: b"alg",
            signature: b"sig",
        };
        assert_eq!(RevocationListParts::read(&list), Some(expected));
        for cut in 0..list.len() {
            assert_eq!(RevocationListParts::read(&list[..cut]), None, "{cut}");
        }
        let odd = [part(SEQUENCE, b"alg"), part(BITS, b"\x01bits")].concat();
        assert_eq!(public_key(&odd), None, "bits that are no bytes");
    }

    #[test]
    fn names_hosts_and_times_are_read() {
        let subject = subject(&[(&[0x55, 4, 10], 0x0c, b"org"), (COMMON_NAME, 0x0c, b"app")]);
        let more = extensions(&[
            (0x82, b"db1.internal"),
            (0x82, b"*.internal"),
            (0x87, &[10, 0, 0, 1]),
            (0x87, &[0; 16]),
            (0x86, b"spiffe://a/b"),
            (0x81, b"me@example.com"),
            (0x82, b"with space"),
            (0xa0, b"something else"),
        ]);
        let read = CertificateFacts::read(&certificate(&subject, &times(), &more));
        let read = read.expect("it is one");
        assert_eq!(
            read.names,
            ["app", "db1.internal", "spiffe://a/b", "me@example.com"]
        );
        assert_eq!(
            read.hosts,
            ["db1.internal", "*.internal", "10.0.0.1", "::", "with space"]
        );
        assert_eq!(read.serial, [7, 8]);
        assert_eq!(read.from_s, 0);
        assert_eq!(read.until_s, 4_107_542_401);
    }

    #[test]
    fn a_name_that_may_be_another_is_none() {
        let name_of = |subject: &[u8]| {
            let read = CertificateFacts::read(&certificate(subject, &times(), b""));
            read.expect("it is one").names
        };
        assert_eq!(name_of(&subject(&[(COMMON_NAME, 0x13, b"app")])), ["app"]);
        for names in [
            &[(COMMON_NAME, 0x0c, &b"a"[..]), (COMMON_NAME, 0x0c, b"b")][..],
            &[(COMMON_NAME, 0x0c, b"app\0.evil")],
            &[(COMMON_NAME, 0x0c, "äpp".as_bytes())],
            &[(COMMON_NAME, 0x0c, b"")],
            // UTF-16 of another kind of text.
            &[(COMMON_NAME, 0x1e, b"app")],
            &[(&[0x55, 4, 10], 0x0c, b"app")],
            &[],
        ] {
            assert!(name_of(&subject(names)).is_empty(), "{names:?}");
        }
    }

    #[test]
    fn a_length_has_one_form_and_a_cut_certificate_is_none() {
        let subject = subject(&[(COMMON_NAME, 0x0c, b"app")]);
        let whole = certificate(&subject, &times(), &extensions(&[(0x82, b"h")]));
        assert!(CertificateFacts::read(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(CertificateFacts::read(&whole[..len]).is_err(), "{len}");
        }
        for der in [
            &[0x30, 0x81, 0x01, 0][..],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x82, 0, 0x81],
            &[0x30, 0x84, 0, 0, 0, 1, 0],
            &[0x3f, 1, 0],
        ] {
            assert!(CertificateFacts::read(der).is_err(), "{der:?}");
        }
        let mut behind = whole;
        behind.push(0);
        assert!(CertificateFacts::read(&behind).is_err());
    }

    #[test]
    fn a_tag_of_several_bytes_is_no_part() {
        assert_eq!(Der(&[0x3f, 1, 7]).any(), None);
        assert_eq!(Der(&[0x20, 1, 7]).any(), Some((0x20, &[7][..])));
        assert_eq!(Der(&[0x00, 1, 7]).any(), Some((0x00, &[7][..])));
    }

    #[test]
    fn a_moment_has_one_form() {
        for (tag, text, expected) in [
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (LONG_TIME, "20000229120000Z", Some(951_825_600)),
            (LONG_TIME, "000101000000Z", None),
            (LONG_TIME, "2000022912000Z", None),
            (UTC_TIME, "20000229120000Z", None),
            (UTC_TIME, "4912312359Z", None),
            (UTC_TIME, "491231235959+0100", None),
            (UTC_TIME, "491331235959Z", None),
            (UTC_TIME, "", None),
            (0x13, "491231235959Z", None),
        ] {
            assert_eq!(time((tag, text.as_bytes())), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _read = CertificateFacts::read(&bytes);
            let _read = (RevocationListParts::read(&bytes), public_key(&bytes));
        }

        #[test]
        fn a_changed_byte_makes_no_panic(at in 0_usize..140, byte in any::<u8>()) {
            let subject = subject(&[(COMMON_NAME, 0x0c, b"app")]);
            let mut der = certificate(&subject, &times(), &extensions(&[(0x82, b"h")]));
            let at = at % der.len();
            der[at] = byte;
            if let Ok(read) = CertificateFacts::read(&der) {
                prop_assert!(read.names.iter().all(|name| is_certificate_name(name)));
            }
        }
    }
}
