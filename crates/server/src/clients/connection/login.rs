//! Whether the client of the request in front has the right to it.
//!
//! Invariants
//! 1. A request is judged when its head is parsed. One that lasts is judged again before its write
//!    begins, and before each chunk of a scan.
//! 2. A quota takes a request once, however often the connection looks at it.
//! 3. A refusal for want of a right is counted, and stands in the audit log.
//!
//! Not here: the rights of a token (`rights/`), the lines of the audit log (`audit/`).
//! See: docs/api.md, "Tokens".

use super::{Connection, FrontStep};
use crate::audit::{self, AuditEvent, AuditKind, Port};
use crate::rights::{Denied, LoginProof, Rights, StandingLogin};
use dendra_wire::http::{Body, Head, Method};
use dendra_wire::limits::TOKENS_BYTES_MAX;
use dendra_wire::rights::TokenTable;
use dendra_wire::route::Route;
use dendra_wire::{EntityOp, Refusal};

/// Links and questions of members.
pub(super) const PEER_PATHS: &[u8] = b"/v0/peer";
/// The table of tokens.
const TOKENS_PATH: &[u8] = b"/v0/tokens";

impl Connection {
    /// Checks the client's token and quota. `None` = they allow the request.
    pub(super) fn show_proof(
        &mut self,
        rights: &Rights,
        head: &Head<'_>,
        route: Option<&Route>,
        stored_key: &[u8],
    ) -> Option<FrontStep> {
        let proof = LoginProof::of(head.authorization, self.names.at(self.lane.wall_ms()));
        let source = self.socket.source();
        let judged = match route {
            None if head.path == TOKENS_PATH => rights.judge_table(proof),
            route => rights.judge(proof, route, stored_key),
        };
        let used = match judged {
            Ok(used) => used,
            Err(_) if self.has_waiting() => return Some(self.those_in_front()),
            Err(denied) => {
                let refusal = self.deny(rights, denied, || what_of(head));
                self.socket.count_by(None);
                return Some(self.refuse(head, &refusal));
            }
        };
        // A batch is as many requests as it has items: each counts when it comes.
        if let (Some(used), Some(Route::Batch(_))) = (&used, route) {
            if !self.in_front.is_admitted {
                self.in_front.is_admitted = true;
                used.charge(head.consumed as u64, self.lane.now_ns());
            }
        } else if let Some(used) = &used
            && !self.in_front.is_admitted
        {
            let body_bytes = match head.body {
                Body::Length(bytes) => bytes,
                // A chunked body counts when it has come.
                Body::None | Body::Chunked => 0,
            };
            let stores = match route {
                Some(Route::Entity(it)) if it.op == EntityOp::Put => {
                    Some(body_bytes + it.meta.front().len() as u64)
                }
                _ => None,
            };
            if let Err((kind, refusal)) = used.admit(stores, self.lane.now_ns()) {
                if self.has_waiting() {
                    return Some(self.those_in_front());
                }
                used.count_refusal(kind);
                self.socket.count_by(None);
                return Some(self.refuse(head, &refusal));
            }
            self.in_front.is_admitted = true;
            used.charge(head.consumed as u64 + body_bytes, self.lane.now_ns());
        }
        self.socket.count_by(used);
        if let (Some(Route::Tokens(entity)), Some(_)) = (route, &self.lane.parts.border.audit)
            && entity.op == EntityOp::Put
            && !self.has_waiting()
        {
            let event = AuditEvent::new(AuditKind::TokensPut, "PUT /v0/tokens");
            let event = event.by(rights.name_of(proof)).from(source, Port::Data);
            self.token_change = Some(Box::new(event));
        }
        None
    }

    /// The refusal of a request without the right to it, counted and in the audit log.
    fn deny(&self, rights: &Rights, denied: Denied, what: impl FnOnce() -> String) -> Refusal {
        let source = self.socket.source();
        let who = denied.who();
        let refusal = rights.refuse(denied, source, self.lane.now_us());
        let audit = self.lane.parts.border.audit.as_deref();
        audit::note_login(audit, who, (source, Port::Data), what, &refusal);
        refusal
    }

    /// The right of a request that will last; `None` where every request is allowed.
    pub(super) fn standing(
        &self,
        head: &Head<'_>,
        route: impl FnOnce() -> Route,
    ) -> Option<StandingLogin> {
        let rights = self.lane.parts.border.rights.as_ref();
        rights.map(|_| StandingLogin::of(head.authorization, route()))
    }

    /// Refuses a request that lasts, when its client lost the right to it meanwhile.
    pub(super) fn judge_again(
        &self,
        login: Option<&StandingLogin>,
        stored_key: &[u8],
    ) -> Result<(), Refusal> {
        let (Some(login), Some(rights)) = (login, &self.lane.parts.border.rights) else {
            return Ok(());
        };
        let names = self.names.at(self.lane.wall_ms());
        let judged = rights.judge_again(login, names, stored_key);
        judged.map_err(|denied| self.deny(rights, denied, || login.what().to_owned()))
    }

    /// Checks the right to an item of a batch, and its quota. `bytes`: of its value, and of the
    /// item.
    ///
    /// An item that is none counts as a request, too: `route` is the batch's then.
    pub(super) fn judge_item(
        &mut self,
        login: Option<&StandingLogin>,
        route: Route,
        stored_key: &[u8],
        bytes: (usize, usize),
    ) -> Result<(), Refusal> {
        let (Some(login), Some(rights)) = (login, &self.lane.parts.border.rights) else {
            return Ok(());
        };
        let names = self.names.at(self.lane.wall_ms());
        let judged = rights.judge_item(login, names, &route, stored_key);
        let used =
            judged.map_err(|denied| self.deny(rights, denied, || login.what().to_owned()))?;
        if let Some(used) = &used {
            let (value_bytes, item_bytes) = (bytes.0 as u64, bytes.1 as u64);
            let now_ns = self.lane.now_ns();
            let stores = matches!(&route, Route::Entity(it) if it.op == EntityOp::Put);
            let stores = stores.then_some(value_bytes);
            if let Err((kind, refusal)) = used.admit(stores, now_ns) {
                used.count_refusal(kind);
                return Err(refusal);
            }
            used.charge(item_bytes, now_ns);
        }
        self.socket.count_by(used);
        Ok(())
    }

    /// Notes that a program was not let in as a member.
    pub(super) fn note_stranger(&self, what: &'static str, refusal: &Refusal) {
        if let Some(audit) = &self.lane.parts.border.audit
            && matches!(refusal.code, "cluster-secret" | "peer-identity")
            && audit.takes_failure()
        {
            let event = AuditEvent::new(AuditKind::MemberRefused, what).refused(refusal);
            audit.note(event.from(self.socket.source(), Port::Data));
        }
    }

    /// Refuses a table of tokens that no node could read, or that this one could not apply.
    pub(super) fn check_tokens(&self, bytes: &[u8]) -> Result<(), Refusal> {
        if bytes.len() > TOKENS_BYTES_MAX {
            return Err(Refusal::value_too_large(TOKENS_BYTES_MAX as u64));
        }
        let parsed = TokenTable::parse(bytes);
        let parsed = parsed.and_then(|table| table.check_names().map(|()| table));
        let table = parsed.map_err(|sentence| Refusal::new(400, "bad-tokens", sentence))?;
        let desk = self.lane.parts.front.as_ref();
        desk.map_or(Ok(()), |desk| desk.check_table(&table))
    }
}

/// Does the path want a token where there are tokens? Members have their own proof, and a probe may
/// ask whether it is ready.
pub(super) fn is_guarded(path: &[u8]) -> bool {
    path != b"/v0/status" && !path.starts_with(PEER_PATHS)
}

/// On a node without tokens every client could make a table. It would open the nodes that ask for
/// tokens.
pub(super) fn no_tokens() -> Refusal {
    let sentence = "this node asks for no tokens: start it with --root-token-file";
    Refusal::new(409, "no-tokens", sentence)
}

/// Method and path, as the audit log has them.
fn what_of(head: &Head<'_>) -> String {
    let method = match head.method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Post => "POST",
        Method::Other => "OTHER",
    };
    audit::what_of(method, std::str::from_utf8(head.path).unwrap_or_default())
}
