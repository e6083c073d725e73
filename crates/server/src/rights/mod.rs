//! Which token allows what: the operator's root token, and the table of tokens that the cluster
//! keeps.
//!
//! ```text
//! Authorization ─► hash ─┬─ the root's ─► everything
//!                        ├─ in the table ─► its role, its prefix ─► done, or 403
//!                        └─ unknown ─► 401; too many from one address ─► 429, closed
//! keep.rs, each TOKENS_LOOK: the table, read as any record ─► in force on this node
//! ```
//!
//! Invariants
//! 1. A node with a root token serves no request without a token, from its first one on. Until it
//!    has read the table, the root token alone opens.
//! 2. A table that cannot be read leaves the one in force as it is.
//! 3. A token that is known is never refused because others were not.
//!
//! Not here: the form of tables and tokens (crate `wire`, `rights.rs`).
//! See: docs/api.md, section "Tokens"; SECURITY.md.

mod keep;

pub(crate) use keep::keep;

use crate::limits;
use crate::settings::RootToken;
use arc_swap::ArcSwapOption;
use dendra_wire::Refusal;
use dendra_wire::http::Field;
use dendra_wire::rights::{Grant, TokenHash, TokenTable, bearer, hash_of, is_same};
use dendra_wire::route::Route;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of logins.
#[derive(Debug, Default)]
pub(crate) struct RightsGauges {
    /// Requests without a token.
    pub(crate) missing: AtomicU64,
    /// Requests with a token that is not known.
    pub(crate) unknown: AtomicU64,
    /// Requests whose token does not allow the operation.
    pub(crate) forbidden: AtomicU64,
}

/// Why a request is refused.
pub(crate) enum Denied {
    /// It has no token.
    Missing,
    /// Its token is not known.
    Unknown,
    /// Whether its token is known is not known yet.
    Unread,
    /// Its token does not allow that.
    Forbidden(Refusal),
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
    table: ArcSwapOption<TokenTable>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
    pub(crate) gauges: RightsGauges,
}

impl Rights {
    /// The root token opens from the start.
    pub(crate) fn new(root: &RootToken) -> Rights {
        Rights {
            root: Grant::of_root(root.hash()),
            table: ArcSwapOption::empty(),
            failures: Mutex::default(),
            gauges: RightsGauges::default(),
        }
    }

    /// The table that is in force from now on.
    fn set_table(&self, table: TokenTable) {
        self.table.store(Some(table.into()));
    }

    /// Calls `look` with the grant of the token.
    fn with_grant<R>(&self, hash: &TokenHash, look: impl FnOnce(&Grant) -> R) -> Result<R, Denied> {
        if is_same(&self.root.hash, hash) {
            return Ok(look(&self.root));
        }
        match &*self.table.load() {
            None => Err(Denied::Unread),
            Some(table) => table.find(hash).map(look).ok_or(Denied::Unknown),
        }
    }

    /// May the holder of this token do what the request asks for? Without a route it is refused anyway, and the
    /// token decides how.
    pub(crate) fn judge(
        &self,
        authorization: Field<'_>,
        route: Option<&Route>,
        stored_key: &[u8],
    ) -> Result<(), Denied> {
        let token = match authorization {
            Field::Absent => return Err(Denied::Missing),
            Field::Once(value) => bearer(value),
            Field::Repeated => None,
        };
        let hash = token.and_then(hash_of).ok_or(Denied::Unknown)?;
        let checked = self.with_grant(&hash, |grant| match route {
            Some(route) => grant.check(route, stored_key),
            None => Ok(()),
        })?;
        checked.map_err(Denied::Forbidden)
    }

    /// May the holder of this token look at the admin port, or with `is_more` do anything there?
    pub(crate) fn judge_admin(&self, token: Option<&[u8]>, is_more: bool) -> Result<(), Denied> {
        use dendra_wire::rights::TokenRole;
        let token = token.ok_or(Denied::Missing)?;
        let hash = hash_of(token).ok_or(Denied::Unknown)?;
        let is_allowed = self.with_grant(&hash, |grant| match is_more {
            true => grant.role == TokenRole::Admin,
            false => grant.prefix.is_empty(),
        })?;
        match is_allowed {
            true => Ok(()),
            false => Err(Denied::Forbidden(Refusal::new(
                403,
                "forbidden",
                "this takes an admin's token; metrics and status take one that is for all keys",
            ))),
        }
    }

    /// The answer to a request that is refused, which is counted.
    pub(crate) fn refuse(&self, denied: Denied, source: IpAddr, now_us: u64) -> Refusal {
        let count = |gauge: &AtomicU64| gauge.fetch_add(1, Ordering::Relaxed);
        match denied {
            Denied::Missing => {
                count(&self.gauges.missing);
                Refusal::unauthenticated(
                    "this node wants a token: send Authorization: Bearer <token> (dendra: --token-file, or DENDRA_TOKEN)",
                )
            }
            Denied::Unknown => {
                count(&self.gauges.unknown);
                match self.is_one_too_many(source, now_us) {
                    true => Refusal::too_many_logins(limits::LOGIN_WINDOW.as_secs() as u32),
                    false => Refusal::unauthenticated(
                        "this token is not known here: it was revoked, or it is another cluster's",
                    ),
                }
            }
            Denied::Unread => Refusal::not_serving(
                "the tokens have not been read from the cluster yet",
                limits::RETRY_AFTER_S,
            ),
            Denied::Forbidden(refusal) => {
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

    #[test]
    fn the_root_token_opens_before_a_table_was_read_and_no_other_does() {
        let (rights, root) = rights();
        let judge = |value: &str| rights.judge(Field::Once(value.as_bytes()), None, b"");
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
        let without = rights.judge(Field::Absent, None, b"");
        assert!(matches!(without, Err(Denied::Missing)));
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
