//! Versions of a cluster: of the messages between its members, and of the forms on their disks.
//!
//! ```text
//! release          knows     cluster: each member's newest      in force        raised by
//! 0.1.0            1         1  1  1                            1
//! a made-up one    1 to 2    1  2  2   (two releases work)      1
//!                            2  2  2                            1 ─────────────► 2   `dendra cluster finalize`
//!                  founds    2  2  2                            2
//! ```
//!
//! Invariants
//! 1. A release writes and says no form that is newer than the version in force. So the release
//!    before it can be started again on the same folders until the version is raised.
//! 2. The version in force never falls.
//!
//! Not here: where the version in force is kept (crate `ownership`, `epoch/record/`), the handshake
//! (crate `wire`).
//! See: docs/decisions/0036-one-version-for-a-cluster.md.

use std::fmt;

/// One version. A later one has more features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterVersion(pub u16);

impl ClusterVersion {
    /// The version of the first release.
    pub const FIRST: ClusterVersion = ClusterVersion(1);
}

impl fmt::Display for ClusterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The versions that a release knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterVersions {
    /// The first one that it can work with.
    pub oldest: ClusterVersion,
    /// Not below `oldest`. A new cluster begins with it.
    pub newest: ClusterVersion,
}

impl ClusterVersions {
    /// Versions that this release knows.
    pub const OWN: ClusterVersions = ClusterVersions {
        oldest: ClusterVersion::FIRST,
        newest: ClusterVersion::FIRST,
    };

    /// Is it one of them?
    pub fn contains(self, version: ClusterVersion) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Versions that a member knows in a cluster in which `in_force` was reached: earlier ones are
    /// over.
    #[must_use]
    pub fn since(self, in_force: ClusterVersion) -> ClusterVersions {
        ClusterVersions {
            oldest: self.oldest.max(in_force).min(self.newest),
            newest: self.newest,
        }
    }
}

impl fmt::Display for ClusterVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            return self.newest.fmt(f);
        }
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_one_in_force_are_over() {
        let versions = |oldest, newest| ClusterVersions {
            oldest: ClusterVersion(oldest),
            newest: ClusterVersion(newest),
        };
        assert_eq!(versions(4, 6).since(ClusterVersion(4)), versions(4, 6));
        assert_eq!(versions(4, 6).since(ClusterVersion(5)), versions(5, 6));
        assert_eq!(versions(4, 6).to_string(), "4 to 6");
        assert_eq!(versions(5, 5).to_string(), "5");
        assert!(versions(4, 5).contains(ClusterVersion(5)));
        assert!(!versions(4, 5).contains(ClusterVersion(6)));
        assert!(!versions(4, 5).contains(ClusterVersion(3)));
    }
}
