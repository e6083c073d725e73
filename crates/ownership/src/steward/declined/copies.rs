//! Why the number of copies stays, each reason with its way out.
//!
//! Not here: other orders (`mod.rs`), copies that go with a lower number
//! (`epoch/record/narrowing.rs`).

use std::fmt;

/// Why the number of copies, or a member that may have the only ones, stays. `Display` names the
/// way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopiesStay {
    /// One plan would change the number of copies by more than one.
    Apart {
        /// Copies of a record now.
        now: u8,
        /// Number of copies as asked for.
        wanted: u8,
    },
    /// The number of copies was lowered, and not all copies were compared since.
    NotCompared {
        /// Copies of a record before that.
        before: u8,
        /// Copies of a record now.
        now: u8,
    },
    /// The number of copies falls, or fell a moment ago, and a member that is up would take copies
    /// with it.
    Go {
        /// URL of the member that is up.
        url: String,
        /// Copies of a record before that.
        before: u8,
        /// Copies of a record behind it.
        now: u8,
    },
}

impl CopiesStay {
    pub(super) fn code(&self) -> &'static str {
        match self {
            CopiesStay::Apart { .. } => "copies-apart",
            CopiesStay::NotCompared { .. } | CopiesStay::Go { .. } => "copies-not-compared",
        }
    }
}

impl fmt::Display for CopiesStay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopiesStay::Apart { now, wanted } => write!(
                f,
                "a plan changes the number of copies by one, and {wanted} is more than one from \
                 {now}; go there step by step, one plan after the other"
            ),
            CopiesStay::NotCompared { before, now } => write!(
                f,
                "records may have had {before} copies, and not all were compared since there are \
                 {now}: with fewer still a read may miss a write; wait until the horizons have risen \
                 once (`dendra cluster status` says what holds them), then plan again"
            ),
            CopiesStay::Go { url, before, now } => write!(
                f,
                "{url} is up, and a record may be there and at one other member alone until all \
                 copies were compared behind the fall of the replication factor from {before} to \
                 {now}; lower the factor in a plan of its own, wait until `dendra cluster status` \
                 counts no more steps for it, then remove {url}"
            ),
        }
    }
}
