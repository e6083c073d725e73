//! Why the version of the cluster stays, each reason with its way out.
//!
//! Not here: other orders (`mod.rs`).
//! See: docs/operating.md.

use dendra_base::{ClusterVersion, ClusterVersions};
use std::fmt;

/// Why the version that is in force stays. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionStays {
    /// The version in force is the newest that this member knows.
    Newest {
        /// Version in force.
        version: ClusterVersion,
    },
    /// A member runs a release that does not know the version.
    OlderRelease {
        /// URL of the member with the older release.
        url: String,
        /// The versions that its release knows.
        versions: ClusterVersions,
        /// The version that was to be in force.
        version: ClusterVersion,
    },
    /// A member does not answer, and its release is not known.
    Away {
        /// URL of the member that does not answer.
        url: String,
    },
}

impl VersionStays {
    pub(super) fn code(&self) -> &'static str {
        match self {
            VersionStays::Newest { .. } => "newest-version",
            VersionStays::OlderRelease { .. } => "older-release",
            VersionStays::Away { .. } => "member-away",
        }
    }
}

impl fmt::Display for VersionStays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionStays::Newest { version } => write!(
                f,
                "version {version} is in force, and the release of this member knows no later one; \
                 there is nothing to finalize"
            ),
            VersionStays::OlderRelease {
                url,
                versions,
                version,
            } => write!(
                f,
                "the release of {url} knows version {versions}, and the next one is {version}; start \
                 that member with the new release first"
            ),
            VersionStays::Away { url } => write!(
                f,
                "{url} cannot be reached from here, and an older release could not start again \
                 afterwards; start that member with the new release, or remove it, first"
            ),
        }
    }
}
