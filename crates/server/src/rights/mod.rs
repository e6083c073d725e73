//! The rights of tokens: the operator's root token, and the table of tokens that the cluster keeps.
//!
//! ```text
//! Authorization ─► hash ─┬─ the root's ─► everything
//!                        ├─ in the table ─► its role, its prefix ─► its quota ─► done, or 403, 429, 507
//!                        └─ unknown ─► 401; too many from one address ─► 429, closed
//! none: the names of the certificate that was shown ─► the first that the table has, as above
//! clients/keep_rights.rs, each TOKENS_LOOK: the table, read as any record ─► in force on this node
//! ```
//!
//! Invariants
//! 1. A node with a root token serves no request without a token, from its first one on. Until it
//!    has read the table, the root token alone opens.
//! 2. A table that cannot be read leaves the one in force as it is.
//! 3. A token that is known is never refused because others were not.
//! 4. The use of a grant stays when the table changes, as long as its line does not.
//! 5. A token that is shown decides, and the certificate does not count.
//! 6. A request that lasts is judged again: a scan before each chunk, a write when its value is
//!    here.
//!
//! Not here: the form of tables and tokens (crate `wire`, `rights.rs`), counting their use
//! (`grant_use.rs`).
//! See: docs/api.md, sections "Tokens" and "Quotas"; SECURITY.md.

mod grant_use;

pub(crate) use grant_use::{GrantUse, QuotaKind};

use crate::limits;
use crate::retry_after::retry_after_s;
use crate::settings::RootToken;
use crate::tls::{ByteStream, CertificateFacts};
use arc_swap::ArcSwapOption;
use dendra_wire::Refusal;
use dendra_wire::http::Field;
use dendra_wire::http::records::ShownPart;
use dendra_wire::rights::{Grant, TokenHash, TokenRole, TokenTable, bearer, hash_of, is_same};
use dendra_wire::route::Route;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Counters of logins.
#[derive(Debug, Default)]
pub(crate) struct RightsGauges {
    /// Requests without a token.
    pub(crate) missing: AtomicU64,
    /// Requests with a token that is not known.
    pub(crate) unknown: AtomicU64,
    /// Requests with a token that does not allow the operation.
    pub(crate) forbidden: AtomicU64,
    /// Refused because of many unknown tokens from one address.
    pub(crate) too_many: AtomicU64,
}

/// Why a request is refused.
pub(crate) enum Denied {
    /// The request has no token.
    Missing,
    /// The request's token is not known.
    Unknown,
    /// The node has not read the table of tokens yet.
    Unread,
    /// The token with this name does not allow that.
    Forbidden(String, Refusal),
}

impl Denied {
    /// The name of the token, where it is known.
    pub(crate) fn who(&self) -> String {
        match self {
            Denied::Forbidden(id, _) => id.clone(),
            Denied::Missing | Denied::Unknown | Denied::Unread => "-".to_owned(),
        }
    }
}

/// The right that a request on the admin port needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminNeed {
    /// To read the metrics.
    Metrics,
    /// To look at the node, and its metrics.
    Look,
    /// Anything else.
    More,
}

/// The token that a client shows, by its hash.
#[derive(Clone, Copy)]
pub(crate) enum ShownToken {
    /// The client sends no token.
    Absent,
    /// The client sends something that is no token.
    Malformed,
    /// The hash of a token, known or not.
    Hash(TokenHash),
}

impl ShownToken {
    /// Token in these bytes.
    pub(crate) fn of(token: Option<&[u8]>) -> ShownToken {
        match token.and_then(hash_of) {
            Some(hash) => ShownToken::Hash(hash),
            None => ShownToken::Malformed,
        }
    }

    /// Token of a request with this `Authorization`.
    pub(crate) fn of_header(authorization: Field<'_>) -> ShownToken {
        match authorization {
            Field::Absent => ShownToken::Absent,
            Field::Once(value) => ShownToken::of(bearer(value)),
            Field::Repeated => ShownToken::Malformed,
        }
    }
}

/// The credentials that a client shows.
#[derive(Clone, Copy)]
pub(crate) struct LoginProof<'a> {
    pub(crate) token: ShownToken,
    /// The names of its certificate, if that holds now.
    pub(crate) names: &'a [String],
}

impl<'a> LoginProof<'a> {
    /// Proof of a request with this `Authorization` on a connection with these names.
    pub(crate) fn of(authorization: Field<'_>, names: &'a [String]) -> LoginProof<'a> {
        let token = ShownToken::of_header(authorization);
        LoginProof { token, names }
    }
}

/// A request that was let in and lasts, to be judged again: tokens are revoked, and certificates
/// end, while values come and scans stream.
pub(crate) struct StandingLogin {
    token: ShownToken,
    route: Route,
}

impl StandingLogin {
    /// Login of a request with this `Authorization`.
    pub(crate) fn of(authorization: Field<'_>, route: Route) -> StandingLogin {
        let token = ShownToken::of_header(authorization);
        StandingLogin { token, route }
    }

    /// Method and path, as the audit log has them.
    pub(crate) fn what(&self) -> &'static str {
        match &self.route {
            Route::Entities(scan) if scan.show == ShownPart::Number => "GET /v0/count",
            Route::Entities(_) => "GET /v0/entities",
            Route::Watch(_) => "GET /v0/watch",
            Route::Batch(_) => "POST /v0/batch",
            Route::Tokens(_) => "PUT /v0/tokens",
            _ => "PUT /v0/entity",
        }
    }
}

/// The names that a client's certificate gives it, while the certificate holds.
#[derive(Debug, Default)]
pub(crate) struct ShownNames {
    names: Vec<String>,
    until_s: i64,
}

impl ShownNames {
    /// Names of a connection: none where no certificate was shown.
    pub(crate) fn of(stream: &ByteStream) -> ShownNames {
        if !stream.is_tls() {
            return ShownNames::default();
        }
        stream.with_certificates(|shown| match shown.first() {
            Some(own) => ShownNames::read(own),
            None => ShownNames::default(),
        })
    }

    /// Names of the certificate in these bytes, which was verified.
    pub(crate) fn read(certificate: &[u8]) -> ShownNames {
        match CertificateFacts::read(certificate) {
            Ok(read) => ShownNames {
                names: read.names,
                until_s: read.until_s,
            },
            Err(reason) => {
                tracing::debug!(reason, "a certificate of a client has no names");
                ShownNames::default()
            }
        }
    }

    /// Names that hold at a moment: a session may last longer than its certificate.
    pub(crate) fn at(&self, wall_ms: u64) -> &[String] {
        let now_s = i64::try_from(wall_ms / 1_000).unwrap_or(i64::MAX);
        if now_s <= self.until_s {
            &self.names
        } else {
            &[]
        }
    }
}

/// The table in force.
struct TableInForce {
    table: TokenTable,
    /// At the places of the table's grants.
    used: Vec<Option<Arc<GrantUse>>>,
}

impl TableInForce {
    fn new(table: TokenTable, before: Option<&TableInForce>) -> TableInForce {
        let used = table.grants().iter().map(|grant| {
            let kept = before.and_then(|before| {
                let mut used = before.used.iter().flatten();
                used.find(|used| used.is_of(grant)).cloned()
            });
            kept.or_else(|| GrantUse::of(grant).map(Arc::new))
        });
        TableInForce {
            used: used.collect(),
            table,
        }
    }
}

/// How two tables differ: names of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableChange {
    pub(crate) added: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) removed: Vec<String>,
}

impl TableChange {
    /// From one table to the other.
    pub(crate) fn between(before: &TokenTable, after: &TokenTable) -> TableChange {
        let of = |table: &TokenTable| -> HashMap<String, Grant> {
            let grants = table.grants().iter();
            grants.map(|it| (it.id.clone(), it.clone())).collect()
        };
        let (before, after) = (of(before), of(after));
        let mut change = TableChange::default();
        for (id, grant) in &after {
            match before.get(id) {
                None => change.added.push(id.clone()),
                Some(other) if other != grant => change.changed.push(id.clone()),
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|id| !after.contains_key(*id));
        change.removed = gone.cloned().collect();
        for names in [&mut change.added, &mut change.changed, &mut change.removed] {
            names.sort();
        }
        change
    }

    /// Names of the changed lines, as the audit log has them.
    pub(crate) fn named(self) -> Vec<(&'static str, Vec<String>)> {
        let all = [
            ("added", self.added),
            ("changed", self.changed),
            ("removed", self.removed),
        ];
        all.into_iter()
            .filter(|(_, names)| !names.is_empty())
            .collect()
    }
}

/// Unknown tokens of one address.
struct Failures {
    since_us: u64,
    count: u32,
}

/// See the module.
pub(crate) struct Rights {
    root: Grant,
    /// `None` until it was read for the first time.
    in_force: ArcSwapOption<TableInForce>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
    pub(crate) gauges: RightsGauges,
}

impl Rights {
    /// The root token opens from the start.
    pub(crate) fn new(root: &RootToken) -> Rights {
        Rights {
            root: Grant::of_root(root.hash()),
            in_force: ArcSwapOption::empty(),
            failures: Mutex::default(),
            gauges: RightsGauges::default(),
        }
    }

    /// The table that is in force from now on, and how it differs from the one before: `None` if it
    /// does not.
    pub(crate) fn set_table(&self, table: TokenTable) -> Option<TableChange> {
        let before = self.in_force.load_full();
        if before.as_ref().is_some_and(|before| before.table == table) {
            return None;
        }
        let change = self.change_to(&table);
        let after = TableInForce::new(table, before.as_deref());
        self.in_force.store(Some(Arc::new(after)));
        // The first one may be empty.
        (change != TableChange::default()).then_some(change)
    }

    /// How a table differs from the one in force.
    pub(crate) fn change_to(&self, table: &TokenTable) -> TableChange {
        let none = TokenTable::default();
        let before = self.in_force.load();
        let before = before.as_ref().map_or(&none, |before| &before.table);
        TableChange::between(before, table)
    }

    /// The use of all grants with a quota.
    pub(crate) fn limited(&self) -> Vec<Arc<GrantUse>> {
        match &*self.in_force.load() {
            Some(in_force) => in_force.used.iter().flatten().cloned().collect(),
            None => Vec::new(),
        }
    }

    /// Calls `look` with the grant that the proof gives, and its use.
    fn with_grant<R>(
        &self,
        proof: LoginProof<'_>,
        look: impl FnOnce(&Grant, Option<&Arc<GrantUse>>) -> R,
    ) -> Result<R, Denied> {
        let hash = match proof.token {
            ShownToken::Hash(hash) if is_same(self.root_hash(), &hash) => {
                return Ok(look(&self.root, None));
            }
            ShownToken::Hash(hash) => Some(hash),
            ShownToken::Malformed => return Err(Denied::Unknown),
            ShownToken::Absent if proof.names.is_empty() => return Err(Denied::Missing),
            ShownToken::Absent => None,
        };
        let in_force = self.in_force.load();
        let in_force = in_force.as_ref().ok_or(Denied::Unread)?;
        let table = &in_force.table;
        let place = match &hash {
            Some(hash) => table.place_of(hash).ok_or(Denied::Unknown)?,
            None => {
                let mut names = proof.names.iter();
                let place = names.find_map(|name| table.place_of_certificate(name));
                place.ok_or(Denied::Missing)?
            }
        };
        Ok(look(&table.grants()[place], in_force.used[place].as_ref()))
    }

    fn root_hash(&self) -> &TokenHash {
        match &self.root.holder {
            dendra_wire::rights::Holder::Token(hash) => hash,
            dendra_wire::rights::Holder::Certificate(_) => {
                unreachable!("the root token is a token")
            }
        }
    }

    /// Does the proof allow the request? Then the use to count it by, if there is a quota. A
    /// request without a route is refused anyway, and the proof decides how.
    pub(crate) fn judge(
        &self,
        proof: LoginProof<'_>,
        route: Option<&Route>,
        stored_key: &[u8],
    ) -> Result<Option<Arc<GrantUse>>, Denied> {
        self.with_grant(proof, |grant, used| {
            let checked = route.map_or(Ok(()), |route| grant.check(route, stored_key));
            match checked {
                Ok(()) => Ok(used.cloned()),
                Err(refusal) => Err(Denied::Forbidden(grant.id.clone(), refusal)),
            }
        })?
    }

    /// Judges a request of the table of tokens that is refused anyway: only an admin is told why.
    pub(crate) fn judge_table(
        &self,
        proof: LoginProof<'_>,
    ) -> Result<Option<Arc<GrantUse>>, Denied> {
        self.with_grant(proof, |grant, used| {
            let checked = grant.check_role(TokenRole::Admin);
            let denied = |refusal| Denied::Forbidden(grant.id.clone(), refusal);
            checked.map(|()| used.cloned()).map_err(denied)
        })?
    }

    /// Is a request that lasts still allowed, with the names that the client's certificate has now?
    pub(crate) fn judge_again(
        &self,
        login: &StandingLogin,
        names: &[String],
        stored_key: &[u8],
    ) -> Result<(), Denied> {
        let token = login.token;
        let judged = self.judge(LoginProof { token, names }, Some(&login.route), stored_key);
        judged.map(|_used| ())
    }

    /// Does the proof of a batch allow this item, with the names that the client's certificate has
    /// now? Then the use to count it by, if there is a quota.
    pub(crate) fn judge_item(
        &self,
        login: &StandingLogin,
        names: &[String],
        item: &Route,
        stored_key: &[u8],
    ) -> Result<Option<Arc<GrantUse>>, Denied> {
        let token = login.token;
        self.judge(LoginProof { token, names }, Some(item), stored_key)
    }

    /// May the holder of this do that on the admin port? Then its name.
    pub(crate) fn judge_admin(
        &self,
        proof: LoginProof<'_>,
        need: AdminNeed,
    ) -> Result<String, Denied> {
        self.with_grant(proof, |grant, _| {
            let is_of_all_keys = grant.role >= TokenRole::Read && grant.prefix.is_empty();
            let is_allowed = match need {
                AdminNeed::Metrics => grant.role == TokenRole::Metrics || is_of_all_keys,
                AdminNeed::Look => is_of_all_keys,
                AdminNeed::More => grant.role == TokenRole::Admin,
            };
            if is_allowed {
                return Ok(grant.id.clone());
            }
            let sentence =
                "this takes an admin's token; status takes one that is for all keys, and metrics \
                 that or one of the role metrics";
            let refusal = Refusal::new(403, "forbidden", sentence);
            Err(Denied::Forbidden(grant.id.clone(), refusal))
        })?
    }

    /// The name of the grant that this proves, for the audit log.
    pub(crate) fn name_of(&self, proof: LoginProof<'_>) -> String {
        let name = self.with_grant(proof, |grant, _| grant.id.clone());
        name.unwrap_or_else(|_| "-".to_owned())
    }

    /// The answer to a request that is refused, which is counted.
    pub(crate) fn refuse(&self, denied: Denied, source: IpAddr, now_us: u64) -> Refusal {
        let count = |gauge: &AtomicU64| gauge.fetch_add(1, Ordering::Relaxed);
        match denied {
            Denied::Missing => {
                count(&self.gauges.missing);
                Refusal::unauthenticated(
                    "this node wants a token: send Authorization: Bearer <token> (dendra: --token-file, or DENDRA_TOKEN); or show a certificate whose name a token create --certificate gave rights",
                )
            }
            Denied::Unknown => {
                count(&self.gauges.unknown);
                if self.is_one_too_many(source, now_us) {
                    count(&self.gauges.too_many);
                    Refusal::too_many_logins(limits::LOGIN_WINDOW.as_secs() as u32)
                } else {
                    Refusal::unauthenticated(
                        "this token is not known here: it was revoked, or it is another cluster's",
                    )
                }
            }
            Denied::Unread => Refusal::not_serving(
                "the tokens have not been read from the cluster yet",
                retry_after_s(),
            ),
            Denied::Forbidden(_, refusal) => {
                count(&self.gauges.forbidden);
                refusal
            }
        }
    }

    fn is_one_too_many(&self, source: IpAddr, now_us: u64) -> bool {
        let window_us = limits::LOGIN_WINDOW.as_micros() as u64;
        let mut failures = self.failures.lock().expect("no holder panics");
        if failures.len() >= limits::LOGIN_ADDRESSES_MAX && !failures.contains_key(&source) {
            let first = failures.iter().min_by_key(|(_, of)| of.since_us);
            let first = first.map(|(address, _)| *address);
            failures.retain(|address, _| Some(*address) != first);
        }
        let of = failures.entry(source).or_insert(Failures {
            since_us: now_us,
            count: 0,
        });
        if now_us.saturating_sub(of.since_us) > window_us {
            *of = Failures {
                since_us: now_us,
                count: 0,
            };
        }
        of.count = of.count.saturating_add(1);
        of.count > limits::LOGIN_FAILURES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn rights() -> (Rights, String) {
        let token = format!("dendra_{}", "r".repeat(43));
        let root = RootToken::new(token.as_bytes()).expect("a token");
        (Rights::new(&root), format!("Bearer {token}"))
    }

    fn proof<'a>(value: &'a str, names: &'a [String]) -> LoginProof<'a> {
        LoginProof::of(Field::Once(value.as_bytes()), names)
    }

    #[test]
    fn the_root_token_opens_before_a_table_was_read_and_no_other_does() {
        let (rights, root) = rights();
        let judge = |value: &str| rights.judge(proof(value, &[]), None, b"");
        assert!(judge(&root).is_ok());
        let other = root.replace('r', "q");
        assert!(matches!(
            judge(&root.replacen("rr", "qr", 1)),
            Err(Denied::Unread)
        ));
        assert!(matches!(judge(&other), Err(Denied::Unknown)), "no bearer");
        rights.set_table(TokenTable::default());
        assert!(matches!(
            judge(&root.replacen("rr", "qr", 1)),
            Err(Denied::Unknown)
        ));
        let without = rights.judge(LoginProof::of(Field::Absent, &[]), None, b"");
        assert!(matches!(without, Err(Denied::Missing)));
    }

    fn of_certificate(id: &str, name: &str) -> Grant {
        let mut grant = Grant::of_token(id, TokenRole::Write, b"", [0; 32]);
        grant.holder = dendra_wire::rights::Holder::Certificate(name.to_owned());
        grant
    }

    #[test]
    fn the_first_name_of_a_certificate_that_the_table_has_counts_and_a_token_before_it() {
        let (rights, root) = rights();
        let table = TokenTable::default();
        let table = table.with(of_certificate("web", "web.internal"));
        let table = table.expect("new").with(of_certificate("job", "job"));
        let change = rights.set_table(table.expect("new")).expect("it is new");
        assert_eq!(change.added, ["job", "web"]);
        let names = ["unknown", "job", "web.internal"].map(str::to_owned);
        let name_of = |authorization, names| rights.name_of(LoginProof::of(authorization, names));
        assert_eq!(name_of(Field::Absent, &names), "job");
        assert_eq!(name_of(Field::Absent, &names[2..]), "web");
        assert_eq!(name_of(Field::Absent, &names[..1]), "-");
        assert_eq!(name_of(Field::Once(root.as_bytes()), &names), "root");
        let wrong = rights.judge(proof("Bearer x", &names), None, b"");
        assert!(matches!(wrong, Err(Denied::Unknown)), "the token decides");
    }

    #[test]
    fn names_end_with_their_certificate() {
        let shown = ShownNames {
            names: vec!["a".to_owned()],
            until_s: 100,
        };
        assert_eq!(shown.at(100_999), ["a"]);
        assert!(shown.at(101_000).is_empty());
    }

    #[test]
    fn what_was_used_stays_when_other_lines_of_the_table_change() {
        let (rights, _) = rights();
        let limited = |rate| {
            let mut grant = Grant::of_token("app", TokenRole::Read, b"", [1; 32]);
            grant.quota.requests_per_second = Some(rate);
            grant
        };
        let set = |grants: Vec<Grant>| {
            let add = |table: TokenTable, grant| table.with(grant).expect("new");
            let table = grants.into_iter().fold(TokenTable::default(), add);
            rights.set_table(table)
        };
        set(vec![limited(1)]);
        let used = Arc::clone(&rights.limited()[0]);
        assert!(used.admit(None, 0).is_ok() && used.admit(None, 0).is_err());
        let change = set(vec![limited(1), of_certificate("web", "w")]);
        assert_eq!(change.expect("it differs").added, ["web"]);
        assert!(rights.limited()[0].admit(None, 0).is_err(), "the same");
        assert_eq!(set(vec![of_certificate("web", "w"), limited(1)]), None);
        let change = set(vec![limited(2)]).expect("it differs");
        assert_eq!(
            (change.changed, change.removed),
            (vec!["app".to_owned()], vec!["web".to_owned()])
        );
        assert!(rights.limited()[0].admit(None, 0).is_ok(), "another quota");
    }

    #[test]
    fn an_address_is_told_to_wait_and_others_are_not() {
        let (rights, _) = rights();
        let at = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let refuse = |last, now_us| rights.refuse(Denied::Unknown, at(last), now_us).status;
        for _ in 0..limits::LOGIN_FAILURES_MAX {
            assert_eq!(refuse(1, 0), 401);
        }
        assert_eq!(refuse(1, 1), 429);
        assert_eq!(refuse(2, 1), 401);
        let later = limits::LOGIN_WINDOW.as_micros() as u64 + 1;
        assert_eq!(refuse(1, later), 401);
        for n in 0..2 * limits::LOGIN_ADDRESSES_MAX as u32 {
            rights.refuse(Denied::Unknown, IpAddr::V4(n.into()), later);
        }
        let kept = rights.failures.lock().expect("no holder panics").len();
        assert_eq!(kept, limits::LOGIN_ADDRESSES_MAX);
    }
}
