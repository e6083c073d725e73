//! Signatures of requests to S3-compatible storage: AWS Signature Version 4.
//!
//! ```text
//! method, path, query, headers, hash of the body ─► canonical request ─► string to sign ─┐
//! secret ─► date ─► region ─► "s3" ─► "aws4_request" ─► signing key ─HMAC────────────────┴─► Authorization
//! ```
//!
//! Invariants
//! 1. The secret is shown nowhere.
//!
//! Not here: sending (`client.rs`).
//! See: the AWS General Reference, "Signature Version 4 signing process".

use ring::digest::{Context, SHA256};
use ring::hmac::{HMAC_SHA256, Key, Tag, sign};
use std::fmt;

/// The account that asks, and its region.
#[derive(Clone)]
pub(super) struct SigningKey {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) session: Option<String>,
    pub(super) region: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} in {})", self.id, self.region)
    }
}

/// The parts of a request that are signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    /// Percent-encoded.
    pub(super) path: &'a str,
    /// Names and values, not encoded, in the order of their names.
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) host: &'a str,
    /// SHA-256 of the body, 64 hexadecimal digits.
    pub(super) body: &'a str,
    /// `20260102T030405Z`
    pub(super) time: &'a str,
}

impl SigningKey {
    /// The headers that sign a request, in the order of their names after `host`.
    pub(super) fn headers(&self, of: &Signed<'_>) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("x-amz-content-sha256", of.body.to_owned()),
            ("x-amz-date", of.time.to_owned()),
        ];
        if let Some(session) = &self.session {
            headers.push(("x-amz-security-token", session.clone()));
        }
        let mut lines = format!("host:{}\n", of.host);
        let mut names = "host".to_owned();
        for (name, value) in &headers {
            lines.push_str(&format!("{name}:{}\n", value.trim()));
            names.push_str(&format!(";{name}"));
        }
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{}",
            of.method,
            of.path,
            query(of.query),
            of.body
        );
        let date = of.time.get(..8).unwrap_or_default();
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
            of.time,
            sha256(canonical.as_bytes())
        );
        let signature = hex(mac(self.key(date).as_ref(), to_sign.as_bytes()).as_ref());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.id
        );
        headers.push(("authorization", authorization));
        headers
    }

    fn key(&self, date: &str) -> Tag {
        let secret = format!("AWS4{}", self.secret);
        let parts = [date, &self.region, "s3", "aws4_request"];
        let first = mac(secret.as_bytes(), parts[0].as_bytes());
        let rest = parts[1..].iter();
        rest.fold(first, |key, part| mac(key.as_ref(), part.as_bytes()))
    }
}

fn mac(key: &[u8], bytes: &[u8]) -> Tag {
    sign(&Key::new(HMAC_SHA256, key), bytes)
}

/// A query, encoded.
pub(super) fn query(of: &[(&str, &str)]) -> String {
    let pairs = of.iter();
    let pairs = pairs.map(|(name, value)| format!("{}={}", encode(name, ""), encode(value, "")));
    pairs.collect::<Vec<_>>().join("&")
}

/// Percent-encoded, but for letters, digits, `-._~` and the bytes that `kept` names.
pub(super) fn encode(text: &str, kept: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => char::from(b).to_string(),
            b if kept.as_bytes().contains(&b) => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of these bytes as 64 hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

/// The hash of the bytes that a reader gives.
pub(super) fn sha256_of(mut reader: impl std::io::Read) -> std::io::Result<String> {
    let mut hash = Context::new(&SHA256);
    let mut part = vec![0; 256 << 10];
    loop {
        match reader.read(&mut part)? {
            0 => return Ok(hex(hash.finish().as_ref())),
            count => hash.update(&part[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Amazon's documentation: "Authenticating Requests: Using the Authorization Header".
    #[test]
    fn a_list_is_signed_as_amazon_documents_it() {
        let key = SigningKey {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
            region: "us-east-1".to_owned(),
        };
        let headers = key.headers(&Signed {
            method: "GET",
            path: "/",
            query: &[("max-keys", "2"), ("prefix", "J")],
            host: "examplebucket.s3.amazonaws.com",
            body: &sha256(b""),
            time: "20130524T000000Z",
        });
        let (name, authorization) = headers.last().expect("it is signed");
        assert_eq!(*name, "authorization");
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(authorization.ends_with(signature), "{authorization}");
        assert_eq!(encode("a b/c+~", "/"), "a%20b/c%2B~");
        assert!(!format!("{key:?}").contains("wJalr"));
    }
}
