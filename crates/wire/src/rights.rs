//! Tokens and their grants: the table that a cluster keeps under one key, and the check of a
//! request.
//!
//! ```text
//! dendra-tokens 1 LF
//! <id> <role> <prefix> <holder>[ <limits>] LF   one line a token, sorted by id; TOKENS_MAX at most
//!   id      1 to 64 of A-Z a-z 0-9 - _ .
//!   role    metrics | read | write | admin
//!   prefix  the keys that it is for, percent-encoded; - for all of them
//!   holder  the SHA-256 of a token; or cert: and the name in a certificate
//!   limits  requests=N bytes=N stored=N           those that there are, in this order
//!
//! a token   dendra_ and 43 letters of base64url: 256 random bits, one block of SHA-256
//! ```
//!
//! Invariants
//! 1. A token is nowhere but with its holder: the table has its hash. The hash of 256 random bits
//!    needs no salt.
//! 2. A written table is read again as the same one, and no other bytes are read as a table.
//! 3. Comparing takes the same time wherever two hashes differ. Which hash is compared is found by
//!    its first bytes, which do not reveal a token.
//! 4. An admin's token is for all keys. One of the role `metrics` is for none, and has no limits:
//!    they are of requests for keys.
//!
//! Not here: where the table is kept, and its readers (crate `server`, `rights/`), making tokens
//! (crate `dendra`).
//! See: docs/api.md, section "Tokens"; SECURITY.md.

use crate::limits::{CERTIFICATE_NAME_BYTES_MAX, TOKEN_ID_BYTES_MAX, TOKENS_MAX};
use crate::percent;
use crate::refusal::{Refusal, echo};
use crate::route::{EntityOp, Route};
use dendra_base::Space;
use dendra_base::limits::KEY_BYTES_MAX;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The first line of a table, with its form.
const TITLE: &str = "dendra-tokens 1";
/// In front of the name of a certificate.
const CERTIFICATE_MARK: &str = "cert:";
/// The largest number of a limit: fifteen digits.
const LIMIT_MAX: u64 = 999_999_999_999_999;
/// The root token, in logs.
const ROOT_ID: &str = "root";
/// How every token begins.
pub const TOKEN_MARK: &str = "dendra_";
/// Letters of base64url for 256 bits.
const SECRET_LEN: usize = 43;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The operations that a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenRole {
    /// To read the metrics of a node, and no key.
    Metrics,
    /// To read keys.
    Read,
    /// To read and to write keys.
    Write,
    /// Everything: tokens and the admin port, too.
    Admin,
}

impl TokenRole {
    /// All of them, the weakest first.
    pub const ALL: [TokenRole; 4] = [
        TokenRole::Metrics,
        TokenRole::Read,
        TokenRole::Write,
        TokenRole::Admin,
    ];

    /// Name of the role, as in a table.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenRole::Metrics => "metrics",
            TokenRole::Read => "read",
            TokenRole::Write => "write",
            TokenRole::Admin => "admin",
        }
    }

    fn parse(text: &str) -> Option<TokenRole> {
        TokenRole::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// The mark by which the holder of a grant is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Clients that show the token with this hash.
    Token(TokenHash),
    /// Clients that show a certificate with this name.
    Certificate(String),
}

/// The bounds that a grant sets; `None` = no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests a second, on each node.
    pub requests_per_second: Option<u64>,
    /// Bytes of requests and answers a second, on each node.
    pub bytes_per_second: Option<u64>,
    /// Bytes that all keys with the prefix of the grant take.
    pub stored_bytes: Option<u64>,
}

impl Quota {
    /// Without any bound.
    pub const NONE: Quota = Quota {
        requests_per_second: None,
        bytes_per_second: None,
        stored_bytes: None,
    };

    /// The names of the limits in a table, in their order.
    fn named(&self) -> [(&'static str, Option<u64>); 3] {
        [
            ("requests", self.requests_per_second),
            ("bytes", self.bytes_per_second),
            ("stored", self.stored_bytes),
        ]
    }
}

/// One token of a table, or one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Name of the line, for people.
    pub id: String,
    /// The operations that it allows.
    pub role: TokenRole,
    /// The keys that it is for begin with this.
    pub prefix: Vec<u8>,
    /// The holder of the grant.
    pub holder: Holder,
    /// How much of it.
    pub quota: Quota,
}

impl Grant {
    /// Everything.
    pub fn of_root(hash: TokenHash) -> Grant {
        Grant::of_token(ROOT_ID, TokenRole::Admin, b"", hash)
    }

    /// Grant of a token, without limits.
    pub fn of_token(id: &str, role: TokenRole, prefix: &[u8], hash: TokenHash) -> Grant {
        Grant {
            id: id.to_owned(),
            role,
            prefix: prefix.to_vec(),
            holder: Holder::Token(hash),
            quota: Quota::NONE,
        }
    }

    /// May its holder act in this role?
    ///
    /// # Errors
    /// 403.
    pub fn check_role(&self, needed: TokenRole) -> Result<(), Refusal> {
        if self.role >= needed {
            return Ok(());
        }
        let (id, role) = (&self.id, self.role.as_str());
        Err(Refusal::new(
            403,
            "forbidden",
            format!(
                "the token `{id}` has the role {role}, and this takes {}: ask for a token with \
                 that role",
                needed.as_str()
            ),
        ))
    }

    /// Is each key from `start` up to `end` one that it is for?
    fn has_range(&self, start: &[u8], end: &[u8]) -> bool {
        self.prefix.is_empty() || start >= end || {
            let mut first = vec![Space::User.byte()];
            first.extend_from_slice(&self.prefix);
            start >= &first[..] && end <= &crate::route::successor(&first)[..]
        }
    }

    /// May its holder do this? `stored_key` is that of an entity.
    ///
    /// # Errors
    /// 403.
    pub fn check(&self, route: &Route, stored_key: &[u8]) -> Result<(), Refusal> {
        let (needed, is_inside) = match route {
            Route::Tokens(_) => (TokenRole::Admin, true),
            Route::Entity(entity) | Route::Explain(entity) => {
                let needed = match entity.op {
                    EntityOp::Get | EntityOp::Head => TokenRole::Read,
                    EntityOp::Put | EntityOp::Delete | EntityOp::Touch => TokenRole::Write,
                };
                let key = stored_key.get(1..).unwrap_or_default();
                (needed, key.starts_with(&self.prefix))
            }
            Route::Entities(scan) => (TokenRole::Read, self.has_range(&scan.start, &scan.end)),
            Route::Watch(query) => (TokenRole::Read, self.has_range(&query.start, &query.end)),
            // Each of its items is checked as a request of its own.
            Route::Batch(_) => (TokenRole::Read, true),
            Route::Status | Route::Peer | Route::PeerHello | Route::PeerAsk => return Ok(()),
        };
        self.check_role(needed)?;
        if !is_inside {
            let prefix = echo(&self.prefix);
            return Err(Refusal::new(
                403,
                "forbidden",
                format!(
                    "the token `{}` is for keys that begin with `{prefix}`: name such keys, or ask for another token",
                    self.id
                ),
            ));
        }
        Ok(())
    }
}

/// The hash of a token, if it has the form of one.
pub fn hash_of(token: &[u8]) -> Option<TokenHash> {
    let secret = token.strip_prefix(TOKEN_MARK.as_bytes())?;
    let is_letter = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (secret.len() == SECRET_LEN && secret.iter().all(is_letter))
        .then(|| Sha256::digest(token).into())
}

/// The token in `Authorization: Bearer …`.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| rest.trim_ascii())
}

/// Compares in the same time wherever they differ.
pub fn is_same(one: &TokenHash, other: &TokenHash) -> bool {
    let pairs = one.iter().zip(other);
    let differs = pairs.fold(0, |differs, (a, b)| differs | (a ^ b));
    std::hint::black_box(differs) == 0
}

/// All tokens of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenTable {
    /// Sorted by holder: tokens by their hashes, then certificates by their names.
    grants: Vec<Grant>,
}

/// May this stand behind `cert:` in a table? The names in a certificate are compared with such
/// names.
pub fn is_certificate_name(name: &str) -> bool {
    let is_letter =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@' | b':' | b'/');
    (1..=CERTIFICATE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

impl TokenTable {
    /// Reads a table.
    ///
    /// # Errors
    /// A sentence about the first line that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<TokenTable, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the table is not UTF-8".to_owned())?;
        let body = text.strip_suffix('\n').ok_or(
            "the table ends within a line: each line, the last one too, ends in a line feed",
        )?;
        let mut lines = body.split('\n');
        if lines.next() != Some(TITLE) {
            return Err(format!(
                "the table does not begin with `{TITLE}`, the form that this release knows"
            ));
        }
        let mut grants: Vec<Grant> = Vec::new();
        for (number, line) in lines.enumerate() {
            let grant = read_line(line).ok_or_else(|| {
                format!(
                    "line {} is no token: a line is NAME ROLE PREFIX HOLDER with one space between, \
                     as `dendra token create` writes it (docs/api.md, \"Tokens\")",
                    number + 2
                )
            })?;
            if grants.last().is_some_and(|last| last.id >= grant.id) {
                return Err(format!("`{}` is not in its order", grant.id));
            }
            if grants.len() == TOKENS_MAX {
                return Err(format!("there are more than {TOKENS_MAX} tokens"));
            }
            grants.push(grant);
        }
        grants.sort_by(|one, other| one.holder.cmp(&other.holder));
        let mut pairs = grants.iter().zip(grants.iter().skip(1));
        match pairs.find(|(one, other)| one.holder == other.holder) {
            Some((one, other)) => Err(format!(
                "`{}` and `{}` are of one token or certificate",
                one.id, other.id
            )),
            None => Ok(TokenTable { grants }),
        }
    }

    /// Refuses a table that nodes could read and should not be given.
    ///
    /// # Errors
    /// A sentence: a token has the name of the root token, and logs could not tell them apart.
    pub fn check_names(&self) -> Result<(), String> {
        if self.grants.iter().any(|grant| grant.id == ROOT_ID) {
            return Err(format!(
                "`{ROOT_ID}` is the root token in logs: take another name"
            ));
        }
        Ok(())
    }

    /// The bytes that `parse` reads.
    pub fn to_text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for grant in self.by_id() {
            let prefix = spelt(&grant.prefix);
            let (id, role) = (&grant.id, grant.role.as_str());
            let _ = write!(text, "{id} {role} {prefix} ");
            match &grant.holder {
                Holder::Token(hash) => {
                    for byte in hash {
                        let _ = write!(text, "{byte:02x}");
                    }
                }
                Holder::Certificate(name) => {
                    let _ = write!(text, "{CERTIFICATE_MARK}{name}");
                }
            }
            for (name, limit) in grant.quota.named() {
                if let Some(limit) = limit {
                    let _ = write!(text, " {name}={limit}");
                }
            }
            text.push('\n');
        }
        text
    }

    /// All of them, at the places that `place_of` tells.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The tokens by their names.
    pub fn by_id(&self) -> Vec<&Grant> {
        let mut grants: Vec<&Grant> = self.grants.iter().collect();
        grants.sort_by(|one, other| one.id.cmp(&other.id));
        grants
    }

    /// The grant of the token with this hash.
    pub fn find(&self, hash: &TokenHash) -> Option<&Grant> {
        self.place_of(hash).map(|place| &self.grants[place])
    }

    /// Where the token with this hash stands.
    pub fn place_of(&self, hash: &TokenHash) -> Option<usize> {
        // Certificates stand behind all tokens.
        let short = |holder: &Holder| match holder {
            Holder::Token(of_holder) => Some(first_of(of_holder)),
            Holder::Certificate(_) => None,
        };
        let wanted = first_of(hash);
        let from = self
            .grants
            .partition_point(|grant| short(&grant.holder).is_some_and(|first| first < wanted));
        let alike = self.grants[from..]
            .iter()
            .take_while(|grant| short(&grant.holder) == Some(wanted));
        let mut places = (from..).zip(alike);
        let found = places.find(|(_, grant)| match &grant.holder {
            Holder::Token(other) => is_same(other, hash),
            Holder::Certificate(_) => false,
        });
        found.map(|(place, _)| place)
    }

    /// Where the certificate with this name stands.
    pub fn place_of_certificate(&self, name: &str) -> Option<usize> {
        let found = self.grants.binary_search_by(|grant| match &grant.holder {
            Holder::Token(_) => std::cmp::Ordering::Less,
            Holder::Certificate(other) => other.as_str().cmp(name),
        });
        found.ok()
    }

    /// The table with one token more.
    ///
    /// # Errors
    /// A sentence: the name is taken or none, the prefix is too long, or there are too many.
    pub fn with(&self, grant: Grant) -> Result<TokenTable, String> {
        if self.grants.iter().any(|other| other.id == grant.id) {
            return Err(format!(
                "there is a token `{}` already: take another name",
                grant.id
            ));
        }
        if !is_token_id(&grant.id) {
            return Err(format!(
                "{:?} is no name of a token: write up to {TOKEN_ID_BYTES_MAX} letters, digits, and - _ .",
                grant.id
            ));
        }
        if grant.prefix.len() > KEY_BYTES_MAX {
            return Err(format!(
                "the prefix has {} bytes, and no key has more than {KEY_BYTES_MAX}: name a shorter one",
                grant.prefix.len()
            ));
        }
        if grant.role == TokenRole::Admin && !grant.prefix.is_empty() {
            return Err("an admin's token is for all keys: leave the prefix away".to_owned());
        }
        if grant.role == TokenRole::Metrics
            && (!grant.prefix.is_empty() || grant.quota != Quota::NONE)
        {
            return Err(
                "a token for metrics reads no key: leave the prefix and the limits away".to_owned(),
            );
        }
        if let Holder::Certificate(name) = &grant.holder
            && !is_certificate_name(name)
        {
            return Err(format!(
                "{name:?} is no name of a certificate here: write up to {CERTIFICATE_NAME_BYTES_MAX} letters, digits, and - _ . @ : /"
            ));
        }
        if grant
            .quota
            .named()
            .iter()
            .any(|(_, limit)| *limit == Some(0))
        {
            return Err("a limit of zero allows nothing: revoke the token instead".to_owned());
        }
        let mut grants = self.grants.clone();
        grants.push(grant);
        let table = TokenTable::parse(TokenTable { grants }.to_text().as_bytes())?;
        table.check_names().map(|()| table)
    }

    /// The table without the token of this name; `None` when there is none.
    pub fn without(&self, id: &str) -> Option<TokenTable> {
        let others = self.grants.iter().filter(|grant| grant.id != id);
        let grants: Vec<Grant> = others.cloned().collect();
        (grants.len() < self.grants.len()).then_some(TokenTable { grants })
    }
}

/// The bytes by which a hash is looked for.
fn first_of(hash: &TokenHash) -> u64 {
    u64::from_be_bytes([
        hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7],
    ])
}

/// A prefix as a table has it. A dash alone stands for none.
fn spelt(prefix: &[u8]) -> String {
    match prefix {
        b"" => "-".to_owned(),
        b"-" => "%2D".to_owned(),
        prefix => percent::encode(prefix),
    }
}

fn is_token_id(id: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=TOKEN_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_letter)
}

fn read_line(line: &str) -> Option<Grant> {
    let mut words = line.split(' ');
    let (id, role) = (words.next()?, TokenRole::parse(words.next()?)?);
    let (prefix, holder) = (words.next()?, words.next()?);
    let quota = read_quota(words)?;
    if !is_token_id(id) || (role == TokenRole::Metrics && quota != Quota::NONE) {
        return None;
    }
    let prefix = match prefix {
        "-" => Vec::new(),
        text => {
            let mut room = [0; KEY_BYTES_MAX];
            let len = percent::decode_into(text.as_bytes(), &mut room).ok()?;
            // One spelling for one table.
            let bytes = room[..len].to_vec();
            let is_of_keys = matches!(role, TokenRole::Read | TokenRole::Write);
            if bytes.is_empty() || spelt(&bytes) != text || !is_of_keys {
                return None;
            }
            bytes
        }
    };
    Some(Grant {
        id: id.to_owned(),
        role,
        prefix,
        holder: match holder.strip_prefix(CERTIFICATE_MARK) {
            Some(name) if is_certificate_name(name) => Holder::Certificate(name.to_owned()),
            Some(_) => return None,
            None => Holder::Token(read_hash(holder)?),
        },
        quota,
    })
}

/// The limits behind a holder: each at most once, in their order, and none of zero.
fn read_quota<'a>(words: impl Iterator<Item = &'a str>) -> Option<Quota> {
    let mut quota = Quota::NONE;
    let mut next = 0;
    for word in words {
        let (name, text) = word.split_once('=')?;
        let (at, place) = match name {
            "requests" => (0, &mut quota.requests_per_second),
            "bytes" => (1, &mut quota.bytes_per_second),
            "stored" => (2, &mut quota.stored_bytes),
            _ => return None,
        };
        if at < next {
            return None;
        }
        next = at + 1;
        let is_plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse().ok().filter(|n| is_plain && *n <= LIMIT_MAX)?;
        *place = Some(number);
    }
    Some(quota)
}

fn read_hash(text: &str) -> Option<TokenHash> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != 64 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Limits, Parsed, parse_head};
    use crate::legal;
    use crate::route::{KeyBuf, RequestRules, route};
    use proptest::prelude::*;

    fn hash(id: &str) -> TokenHash {
        Sha256::digest(id.as_bytes()).into()
    }

    fn grant(id: &str, role: TokenRole, prefix: &[u8]) -> Grant {
        Grant::of_token(id, role, prefix, hash(id))
    }

    fn table(grants: &[Grant]) -> TokenTable {
        let add = |table: TokenTable, grant: &Grant| table.with(grant.clone()).expect("new");
        grants.iter().fold(TokenTable::default(), add)
    }

    /// The status of a request by the holder of `grant`.
    fn status(grant: &Grant, request: &str) -> u16 {
        let text = format!("{request} HTTP/1.1\r\nHost: h\r\nIf-Match: *\r\n\r\n");
        let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
            panic!("{request} is a request");
        };
        let settings = RequestRules {
            nodes: 1,
            replication_factor: 1,
            key_bytes_max: 64,
            value_bytes_max: 64,
        };
        let mut key = KeyBuf::new();
        let routed = route(&head, &settings, &mut key).expect("a route");
        grant
            .check(&routed, key.as_stored())
            .map_or_else(|refusal| refusal.status, |()| 200)
    }

    #[test]
    fn a_role_allows_what_it_says_and_a_prefix_bounds_it() {
        let (read, write) = (
            grant("r", TokenRole::Read, b"a/"),
            grant("w", TokenRole::Write, b""),
        );
        let admin = grant("x", TokenRole::Admin, b"");
        let metrics = grant("m", TokenRole::Metrics, b"");
        for (request, r, w, a) in [
            ("GET /v0/entity?id=a/1", 200, 200, 200),
            ("GET /v0/entity?id=a", 403, 200, 200),
            ("HEAD /v0/entity?id=b", 403, 200, 200),
            ("PUT /v0/entity?id=a/1", 403, 200, 200),
            ("DELETE /v0/entity?id=a/1", 403, 200, 200),
            ("GET /v0/entities?prefix=a/", 200, 200, 200),
            ("GET /v0/entities?prefix=a/b", 200, 200, 200),
            ("GET /v0/entities?prefix=a", 403, 200, 200),
            ("GET /v0/entities", 403, 200, 200),
            ("GET /v0/count?prefix=a/", 200, 200, 200),
            ("GET /v0/count", 403, 200, 200),
            ("GET /v0/entities?start=a/&end=a0", 200, 200, 200),
            ("GET /v0/entities?start=a/&end=a00", 403, 200, 200),
            ("GET /v0/entities?start=a/", 403, 200, 200),
            ("GET /v0/entities?start=a.&end=a/1", 403, 200, 200),
            ("GET /v0/tokens", 403, 403, 200),
            ("PUT /v0/tokens", 403, 403, 200),
            ("GET /v0/status", 200, 200, 200),
        ] {
            let found = [&read, &write, &admin].map(|grant| status(grant, request));
            assert_eq!(found, [r, w, a], "{request}");
            let is_open = request == "GET /v0/status";
            let of_metrics = if is_open { 200 } else { 403 };
            assert_eq!(status(&metrics, request), of_metrics, "{request}");
        }
    }

    #[test]
    fn a_table_knows_its_tokens_and_no_other() {
        let all = [
            grant("b", TokenRole::Read, b"\xff -"),
            grant("a", TokenRole::Admin, b""),
            grant("c", TokenRole::Write, b"-"),
        ];
        let table = table(&all);
        for grant in &all {
            assert_eq!(table.find(&hash(&grant.id)), Some(grant));
            let mut near = hash(&grant.id);
            near[31] ^= 1;
            assert_eq!(table.find(&near), None);
        }
        let fewer = table.without("b").expect("it is there");
        assert_eq!(fewer.find(&hash("b")), None);
        assert_eq!(fewer.without("b"), None);
        assert!(
            table.with(grant("a", TokenRole::Read, b"")).is_err(),
            "the name is taken"
        );
        assert!(table.with(grant("d", TokenRole::Admin, b"x")).is_err());
        let refused = |grant| table.with(grant).expect_err("not in a table");
        for (id, words) in [("d e", "is no name of a token"), ("root", "take another")] {
            let sentence = refused(grant(id, TokenRole::Read, b""));
            assert!(sentence.contains(words), "{sentence}");
        }
        let sentence = refused(grant("d", TokenRole::Read, &[b'k'; KEY_BYTES_MAX + 1]));
        assert!(sentence.contains("name a shorter one"), "{sentence}");
        assert_eq!(TokenTable::parse(table.to_text().as_bytes()), Ok(table));
    }

    #[test]
    fn certificates_and_limits_stand_in_a_table() {
        let mut limited = grant("app", TokenRole::Write, b"a/");
        limited.quota = Quota {
            requests_per_second: Some(500),
            bytes_per_second: None,
            stored_bytes: Some(1 << 30),
        };
        let mut web = grant("web", TokenRole::Read, b"");
        web.holder = Holder::Certificate("spiffe://a/web".to_owned());
        let first = table(&[grant("old", TokenRole::Read, b"")]);
        let second = table(&[limited.clone(), web.clone()]);
        let text = second.to_text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("dendra-tokens 1"));
        let line = lines.next().expect("app");
        assert!(line.ends_with(" requests=500 stored=1073741824"), "{line}");
        assert_eq!(lines.next(), Some("web read - cert:spiffe://a/web"));
        assert_eq!(TokenTable::parse(text.as_bytes()), Ok(second.clone()));
        assert_eq!(second.find(&hash("app")), Some(&limited));
        let place = second.place_of_certificate("spiffe://a/web");
        assert_eq!(place.map(|place| &second.grants()[place]), Some(&web));
        assert_eq!(second.place_of_certificate("web"), None);
        assert_eq!(first.place_of_certificate("old"), None);
        // A later form.
        let later = text.replace("tokens 1", "tokens 2");
        assert!(TokenTable::parse(later.as_bytes()).is_err());
        for (right, wrong) in [
            ("requests=500 stored=1073741824", "stored=1 requests=500"),
            ("requests=500", "requests=0"),
            ("requests=500", "requests=0500"),
            ("requests=500", "requests=500 requests=500"),
            ("requests=500", "requests=1000000000000000"),
            ("requests=500", "speed=500"),
            ("requests=500", "requests=+500"),
            ("cert:spiffe", "cert: spiffe"),
            ("cert:spiffe", "cert:ü"),
            ("cert:spiffe://a/web", "cert:"),
        ] {
            let other = text.replacen(right, wrong, 1);
            assert_ne!(other, text);
            assert!(TokenTable::parse(other.as_bytes()).is_err(), "{wrong}");
        }
        for (wrong, why) in [
            (text.trim_end().to_owned(), "ends in a line feed"),
            (text.replace("web read", "web reads"), "line 3 is no token"),
        ] {
            let sentence = TokenTable::parse(wrong.as_bytes()).expect_err("no table");
            assert!(sentence.contains(why), "{sentence}");
        }
        let mut nothing = grant("none", TokenRole::Read, b"");
        nothing.quota.bytes_per_second = Some(0);
        assert!(second.with(nothing).is_err());
        let mut same = web.clone();
        same.id = "again".to_owned();
        assert!(second.with(same).is_err(), "one certificate twice");
    }

    #[test]
    fn the_role_of_metrics_is_of_no_key() {
        let scraper = grant("scraper", TokenRole::Metrics, b"");
        let with = table(&[grant("app", TokenRole::Read, b"a/"), scraper.clone()]);
        let text = with.to_text();
        assert!(text.contains("\nscraper metrics - "), "{text}");
        assert_eq!(TokenTable::parse(text.as_bytes()), Ok(with.clone()));
        let of_keys = grant("other", TokenRole::Metrics, b"a/");
        let mut limited = grant("other", TokenRole::Metrics, b"");
        limited.quota.requests_per_second = Some(1);
        for wrong in [of_keys, limited] {
            let sentence = with.with(wrong).expect_err("it has no keys");
            assert!(sentence.contains("reads no key"), "{sentence}");
        }
        let limited = text.replace("scraper metrics -", "scraper metrics a/");
        assert!(TokenTable::parse(limited.as_bytes()).is_err());
    }

    #[test]
    fn a_prefix_has_one_spelling() {
        let line = |role: &str, prefix: &str| {
            let hash = "0a".repeat(32);
            read_line(&format!("app {role} {prefix} {hash}")).is_some()
        };
        assert!(line("read", "a") && line("read", "-") && line("read", "%FF"));
        for prefix in ["%61", "%ff", ""] {
            assert!(!line("read", prefix), "{prefix}");
        }
        assert!(line("admin", "-") && !line("admin", "a"));
    }

    #[test]
    fn a_token_has_one_form() {
        let token = format!("dendra_{}", "a".repeat(43));
        assert!(hash_of(token.as_bytes()).is_some());
        for wrong in [
            &token[1..],
            &token[..49],
            &token.replace('a', "+"),
            &format!("{token}a"),
            "",
        ] {
            assert_eq!(hash_of(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(bearer(b"bearer  x"), Some(&b"x"[..]));
        assert_eq!(bearer(b"Basic x"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }

    fn any_grant() -> impl Strategy<Value = Grant> {
        let limit = || prop::option::of(1..=LIMIT_MAX);
        let holder = prop_oneof![
            any::<TokenHash>().prop_map(Holder::Token),
            "[A-Za-z0-9._@:/-]{1,128}".prop_map(Holder::Certificate),
        ];
        let prefix = prop_oneof![
            1 => Just(Vec::new()),
            1 => Just(b"-".to_vec()),
            3 => legal::raw_key(),
        ];
        let role = prop::sample::select(&TokenRole::ALL[..]);
        let parts = ("[A-Za-z0-9._-]{1,64}", role, prefix, holder);
        (parts, (limit(), limit(), limit())).prop_map(|((id, role, prefix, holder), limits)| {
            Grant {
                id,
                role,
                prefix: if matches!(role, TokenRole::Admin | TokenRole::Metrics) {
                    Vec::new()
                } else {
                    prefix
                },
                holder,
                quota: if role == TokenRole::Metrics {
                    Quota::NONE
                } else {
                    Quota {
                        requests_per_second: limits.0,
                        bytes_per_second: limits.1,
                        stored_bytes: limits.2,
                    }
                },
            }
        })
    }

    proptest! {
        #[test]
        fn any_legal_table_of_tokens_is_read_as_it_was_written(
            grants in prop::collection::vec(any_grant(), 0..6), at: prop::sample::Index,
        ) {
            let mut table = TokenTable::default();
            for grant in grants {
                let is_named = table.grants.iter().any(|other| other.id == grant.id);
                let is_held = table.grants.iter().any(|other| other.holder == grant.holder);
                if is_named || is_held || grant.id == ROOT_ID {
                    continue;
                }
                let longer = table.with(grant.clone());
                prop_assert!(longer.is_ok(), "{:?}", longer.err());
                table = longer.unwrap_or_default();
                prop_assert!(table.grants.contains(&grant));
            }
            let read = TokenTable::parse(table.to_text().as_bytes());
            prop_assert!(read.as_ref().map(|read| &read.grants) == Ok(&table.grants));
            if !table.grants.is_empty() {
                let id = table.grants[at.index(table.grants.len())].id.clone();
                let shorter = table.without(&id).expect("it has it");
                let read = TokenTable::parse(shorter.to_text().as_bytes());
                prop_assert!(read.map(|read| read.grants) == Ok(shorter.grants));
            }
        }

        #[test]
        fn what_is_read_is_written_the_same(text in
            "(dendra-tokens [12]\n)?([a-c]{0,2} (metrics|read|admin|x) (-|%2D|%41|a|%ff|%FF) ([0-9a-f]{64}|cert:[a/]{1,2})( requests=[05]{1,2})?( stored=1)?\n){0,3}") {
            if let Ok(table) = TokenTable::parse(text.as_bytes()) {
                prop_assert_eq!(table.to_text(), text);
            }
        }
    }
}
