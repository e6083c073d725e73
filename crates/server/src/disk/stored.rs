//! The bytes that the keys of each grant with a quota take, looked at now and then.
//!
//! ```text
//! each STORED_LOOK, thread "flush": engine, bytes of the prefix ─► times members, by copies ─► GrantUse
//! ```
//!
//! Invariants
//! 1. A look reads no disk. It sees superseded values and tombstones, until they are compacted.
//! 2. In a cluster it takes this member's share for that of all: keys are spread by their hashes.
//!
//! Not here: the limit itself (`rights/`).
//! See: docs/api.md, section "Quotas".

use crate::disk::owners::OtherOwners;
use crate::rights::Rights;
use dendra_base::Space;
use dendra_engine::Engine;
use dendra_wire::route::successor;

/// Looks once.
pub(crate) fn look_at_stored(engine: &Engine, owners: Option<&dyn OtherOwners>, rights: &Rights) {
    for used in rights.limited() {
        if used.stored_max().is_none() {
            continue;
        }
        let mut from = vec![Space::User.byte()];
        from.extend_from_slice(&used.prefix);
        let seen = used.unseen();
        match engine.bytes_between(&from, &successor(&from)) {
            Ok(bytes) => used.note_stored(scaled(bytes, owners), seen),
            Err(error) => tracing::warn!(%error, "what a token stores is not known"),
        }
    }
}

/// The bytes at all members together, each copy counted once.
fn scaled(bytes: u64, owners: Option<&dyn OtherOwners>) -> u64 {
    let Some(owners) = owners else {
        return bytes;
    };
    let (members, copies) = owners.spread();
    let copies = copies.min(members).max(1);
    bytes.saturating_mul(members) / copies
}
