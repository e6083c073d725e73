//! Which member a folder belongs to.

/// The owner of this folder; made once, when the folder is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random and never reused: a wiped folder is another member.
    pub node: u128,
    /// Short form of the above that goes into versions.
    pub origin: u32,
}

impl Identity {
    /// Ties log segments to their folder: a segment of another folder is not replayed by mistake.
    pub(crate) fn log_salt(self) -> u64 {
        (self.node >> 64) as u64 ^ self.node as u64
    }
}
