//! All kinds of findings: the only list.
//!
//! Invariants
//! 1. docs/health.md has the rows of this list (a test below).
//!
//! Not here: when there is a finding, and its sentence (`facts.rs`).
//! See: docs/health.md.

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Clients are served, and an operator should act.
    Degraded,
    /// Clients of this node, or of some keys, are not served.
    NotServing,
}

impl Severity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Degraded => "degraded",
            Severity::NotServing => "not-serving",
        }
    }

    /// A node's state in a word; `None` = it has no finding.
    pub fn word(worst: Option<Severity>) -> &'static str {
        worst.map_or("healthy", Severity::as_str)
    }
}

/// Declares the kinds: the word, the severity, and what mends it. `{of}` is the finding's subject,
/// `{own}` the URL of the member that has it.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $word:literal, $severity:ident, $way_out:literal;)*) => {
        /// What can be wrong with a node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum HealthKind { $($(#[$doc])* $kind,)* }

        impl HealthKind {
            /// All kinds, the worst first.
            pub const ALL: &[HealthKind] = &[$(HealthKind::$kind,)*];

            /// The word for it.
            pub fn as_str(self) -> &'static str {
                match self { $(HealthKind::$kind => $word,)* }
            }

            /// How much it matters.
            pub fn severity(self) -> Severity {
                match self { $(HealthKind::$kind => Severity::$severity,)* }
            }

            /// What mends it, mostly a command, with names of its subject and of its node.
            fn template(self) -> &'static str {
                match self { $(HealthKind::$kind => $way_out,)* }
            }
        }
    };
}

kinds! {
    /// The node has not answered its first client.
    Starting, "starting", NotServing,
        "wait: its log names the cause";
    /// The node finishes its requests and ends.
    Stopping, "stopping", NotServing,
        "dendra serve …";
    /// The log of the store cannot be written: the process ends.
    LogFailed, "log-failed", NotServing,
        "dendra serve …; if it ends again, replace the disk";
    /// The data folder is not this node's any more.
    FolderLost, "folder-lost", NotServing,
        "bring it back, then dendra check FOLDER";
    /// A restore is under way.
    Restoring, "restoring", NotServing,
        "dendra restore … again, if that was stopped";
    /// The engine behind a front door does not answer.
    EngineSilent, "engine-silent", NotServing,
        "start that engine";
    /// The other members refuse this one.
    ShutOut, "shut-out", NotServing,
        "give it the secret, certificate and folder that the others know";
    /// This member does not know the newest epoch.
    Behind, "behind", NotServing,
        "start the others; at the last one dendra cluster accept-loss {own}";
    /// This wall clock agrees with no majority of the members'.
    ClockOff, "clock-off", NotServing,
        "timedatectl set-ntp true";
    /// A certificate in use does not hold any more.
    CertificateEnded, "certificate-ended", NotServing,
        "dendra cert FOLDER --member HOST --renew";
    /// Too few members, or too few owners of some keys, are reached.
    NoMajority, "no-majority", NotServing,
        "dendra serve … on the members away";
    /// The node's admin port does not answer `dendra health`.
    NoAnswer, "no-answer", NotServing,
        "dendra serve … on that node";
    /// A member is not reached from here.
    MemberAway, "member-away", Degraded,
        "dendra serve … on it; disk lost: dendra serve --self {of} --join {own} --replace {of} …";
    /// The plan under way does not go on.
    PlanWaits, "plan-waits", Degraded,
        "as the sentence says, or dendra cluster cancel";
    /// Members run different releases.
    VersionsMixed, "versions-mixed", Degraded,
        "dendra serve … of one release, then dendra cluster finalize";
    /// The repair of damage waits for a member.
    DamageWaits, "damage-waits", Degraded,
        "dendra serve … on {of}; copies lost: dendra cluster accept-loss {own}";
    /// A block of a table failed its checksum and is not repaired.
    Damage, "damage", Degraded,
        "in a cluster wait; else dendra check FOLDER, dendra restore …";
    /// New values are refused for lack of room.
    DiskFull, "disk-full", Degraded,
        "make room, or dendra delete …";
    /// The disk will be full before long.
    DiskFilling, "disk-filling", Degraded,
        "make room, or dendra serve --join … on a new member";
    /// Writes are kept for members that do not take them, more and more.
    HintsGrow, "hints-grow", Degraded,
        "dendra serve … on the member away";
    /// Requests were refused in the last minute.
    Refusals, "refusals", Degraded,
        "more processors or members, or less load";
    /// A certificate in use ends soon.
    CertificateEnds, "certificate-ends", Degraded,
        "dendra cert FOLDER --member HOST --renew";
}

impl HealthKind {
    /// What mends it, for this subject at this node.
    pub fn way_out(self, of: &str, own: &str) -> String {
        self.template().replace("{of}", of).replace("{own}", own)
    }
}

impl HealthFinding {
    /// A finding about `of`, at the member `own`.
    pub(crate) fn new(kind: HealthKind, of: &str, own: &str, sentence: String) -> HealthFinding {
        HealthFinding {
            kind,
            of: of.to_owned(),
            sentence,
            way_out: kind.way_out(of, own),
        }
    }

    /// A node that has opened nothing yet.
    pub(crate) fn of_start() -> HealthFinding {
        let sentence = "it starts, and answers no client yet";
        HealthFinding::new(HealthKind::Starting, "", "", sentence.to_owned())
    }
}

/// One thing that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthFinding {
    pub(crate) kind: HealthKind,
    /// The member or file that it is about; empty = the node.
    pub(crate) of: String,
    pub(crate) sentence: String,
    pub(crate) way_out: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_page_has_each_kind_with_its_severity_and_its_way_out() {
        let page = include_str!("../../../../docs/health.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let rows: BTreeSet<String> = rows.map(str::to_owned).collect();
        let listed = HealthKind::ALL.iter().map(|kind| {
            let (word, severity) = (kind.as_str(), kind.severity().as_str());
            let way_out = kind.way_out("MEMBER", "OWN");
            let begins = format!("| `{word}` | {severity} | ");
            let row = rows.iter().find(|row| row.starts_with(&begins));
            let row = row.unwrap_or_else(|| panic!("docs/health.md lacks {begins}"));
            assert!(
                row.ends_with(&format!(" | {way_out} |")),
                "{row}: {way_out}"
            );
            word
        });
        let listed: BTreeSet<&str> = listed.collect();
        assert_eq!(
            (listed.len(), rows.len()),
            (HealthKind::ALL.len(), listed.len())
        );
    }

    #[test]
    fn kinds_stand_in_the_order_of_their_severity() {
        let severities = HealthKind::ALL.iter().map(|kind| kind.severity());
        assert!(severities.rev().is_sorted(), "the worst first");
    }
}
