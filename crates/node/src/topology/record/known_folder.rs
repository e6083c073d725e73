//! Which process asks for admission, as a record of an epoch has it: by its folder, else by its
//! address.
//!
//! ```text
//! folder was removed                 ─► Removed, for ever, under any address
//! folder of a member                 ─► Member
//! address of a member                ─► Member: its folder is judged by what is noted of the member
//! neither                            ─► Stranger
//! ```
//!
//! Not here: whether the process is the one that was known (`membership/`), its proof of the
//! secret.

use super::EpochRecord;
use crate::ring::table::MemberId;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownFolder {
    /// It says to be this member.
    Member(MemberId),
    /// Its folder was removed.
    Removed {
        /// The first epoch without it.
        epoch: u64,
    },
    /// It is no member of this epoch.
    Stranger,
}

impl EpochRecord {
    /// Which process has the folder `node`, and says to be at `url`?
    pub fn folder(&self, node: u128, url: &str) -> KnownFolder {
        let mut removed = self.removed.iter();
        if let Some(gone) = removed.find(|gone| gone.node != 0 && gone.node == node) {
            let epoch = gone.epoch;
            return KnownFolder::Removed { epoch };
        }
        let by_folder = self.members.iter().find(|m| m.node == node);
        let at_url = || self.members.iter().find(|m| m.place.url == url);
        match by_folder.or_else(at_url) {
            Some(member) => KnownFolder::Member(member.id),
            None => KnownFolder::Stranger,
        }
    }
}
