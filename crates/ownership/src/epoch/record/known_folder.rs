//! Which process asks for admission, as a record of an epoch has it: by its folder, else by its
//! address.
//!
//! ```text
//! folder was removed                 ─► Removed, for ever, under any address
//! folder of a member                 ─► Member
//! address of a founder without one   ─► Member: its folder is judged by what is noted of the member
//! it knows a newer epoch             ─► Ahead: that epoch may name it, so it is learnt first
//! address of a member                ─► Member: its folder is another one than the member's
//! none of these                      ─► Stranger
//! ```
//!
//! Invariants
//! 1. No verdict on a folder is made from an epoch that is older than the one that the process
//!    knows, but that it was removed: no later epoch takes a removed folder in.
//!
//! Not here: whether the process is the one that was known (`membership/`), its proof of the
//! secret.

use super::EpochRecord;
use crate::ring::table::MemberId;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownFolder {
    /// The folder says to be this member's.
    Member(MemberId),
    /// The folder was removed.
    Removed {
        /// The first epoch without it.
        epoch: u64,
    },
    /// The folder is no member's in this epoch, and its process knows a newer one.
    Ahead,
    /// The folder is no member's in this epoch.
    Stranger,
}

impl EpochRecord {
    /// Which process has the folder `node`, knows `epoch`, and says to be at `url`?
    pub fn folder(&self, node: u128, url: &str, epoch: u64) -> KnownFolder {
        let mut removed = self.removed.iter();
        if let Some(gone) = removed.find(|gone| gone.node != 0 && gone.node == node) {
            return KnownFolder::Removed { epoch: gone.epoch };
        }
        let by_folder = self.members.iter().find(|m| m.node == node);
        let at_url = |of_founder: bool| {
            let mut members = self.members.iter();
            members.find(|m| m.place.url == url && (m.node == 0) == of_founder)
        };
        match by_folder.or_else(|| at_url(true)) {
            Some(member) => KnownFolder::Member(member.id),
            None if epoch > self.epoch => KnownFolder::Ahead,
            None => at_url(false).map_or(KnownFolder::Stranger, |m| KnownFolder::Member(m.id)),
        }
    }
}
