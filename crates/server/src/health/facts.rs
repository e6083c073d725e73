//! The facts about a node, and the findings that follow from them.
//!
//! Invariants
//! 1. `judge` has no clock and no memory: equal facts have equal findings, the worst first.
//!
//! Not here: how the facts are gathered (`health_watch.rs`), the rows of kinds (`finding.rs`).
//! See: docs/health.md.

use super::finding::{HealthFinding, HealthKind};
use super::trends::HealthTrends;
use crate::phase::Phase;
use dendra_engine::DiskStats;
use dendra_node::limits::HINT_BYTES_MAX_DEFAULT;

/// At the rate of the last day the disk is full within so many hours: it fills.
const FILLING_HOURS: u64 = 48;

/// All that the findings of a node follow from.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    pub(crate) phase: Phase,
    /// Why it serves no client although it runs.
    pub(crate) of_no_use: Option<(HealthKind, String)>,
    /// `None` = it is no member of a cluster.
    pub(crate) members: Option<MemberFacts>,
    pub(crate) disk: DiskStats,
    pub(crate) damage: DamageFacts,
    pub(crate) certificates: Vec<CertificateFact>,
    pub(crate) hint_bytes: u64,
    pub(crate) trends: HealthTrends,
}

/// What a member knows of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberFacts {
    pub(crate) own: String,
    /// The other members' URLs, and whether a link to each is up.
    pub(crate) others: Vec<(String, bool)>,
    /// The releases of members, by URL, this one's included; one that has not told is left out.
    pub(crate) releases: Vec<(String, String)>,
    pub(crate) partitions: usize,
    /// Partitions of which no majority of the copies is reached.
    pub(crate) partitions_short: usize,
    pub(crate) plan_waits: Option<String>,
}

/// Damage that is not repaired.
#[derive(Clone, Debug, Default)]
pub(crate) struct DamageFacts {
    /// Damaged blocks.
    pub(crate) blocks: usize,
    /// Tables that no merge reads any more.
    pub(crate) tables_set_aside: usize,
    /// For which members the repair of how many blocks waits.
    pub(crate) waits: Vec<(String, u64)>,
}

/// How long a certificate in use holds.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFact {
    pub(crate) file: String,
    pub(crate) days_left: u64,
    pub(crate) has_ended: bool,
    /// Is it time for another one?
    pub(crate) is_short: bool,
}

impl MemberFacts {
    fn reached(&self) -> usize {
        1 + self.others.iter().filter(|(_, is_up)| *is_up).count()
    }

    fn has_majority(&self) -> bool {
        2 * self.reached() > 1 + self.others.len()
    }

    fn no_majority(&self) -> String {
        let away = self.others.iter().filter(|(_, is_up)| !is_up);
        let away: Vec<&str> = away.map(|(url, _)| url.as_str()).collect();
        format!(
            "no majority: {} of {} members are reached, this one included, and {} of {} \
             partitions lack a majority of their copies; away: {}",
            self.reached(),
            1 + self.others.len(),
            self.partitions_short,
            self.partitions,
            away.join(" ")
        )
    }

    /// Why a balancer that asks for a majority shall send no client here: none of the keys has one.
    pub(crate) fn cut_off(&self) -> Option<String> {
        let has_none = self.partitions > 0 && self.partitions_short == self.partitions;
        (has_none || !self.has_majority()).then(|| self.no_majority())
    }
}

/// A full disk in a sentence; `None` when it is not.
pub(crate) fn disk_full(disk: DiskStats) -> Option<String> {
    disk.is_full.then(|| {
        format!(
            "the disk is full: {} of {} are free, and the reserve is {}; new values are refused",
            mib(disk.free_bytes),
            mib(disk.total_bytes),
            mib(disk.reserve_bytes)
        )
    })
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The findings of a node.
pub(crate) fn judge(facts: &NodeFacts) -> Vec<HealthFinding> {
    let own = facts.members.as_ref().map_or("", |members| &members.own);
    let mut found = FindingList {
        own,
        all: Vec::new(),
    };
    let phase = facts.phase;
    match (phase, &facts.of_no_use) {
        (Phase::Serving | Phase::Poisoned, Some((kind, why))) => found.add(*kind, "", why.clone()),
        (Phase::Serving, None) => {}
        (Phase::Starting, _) => found.all.push(HealthFinding::of_start()),
        (Phase::Draining | Phase::Stopped, _) => found.add(
            HealthKind::Stopping,
            "",
            "it finishes the requests under way, and ends".to_owned(),
        ),
        (Phase::Poisoned, None) => found.add(
            HealthKind::LogFailed,
            "",
            "the log of the store failed, and the process ends: writes may be unknown".to_owned(),
        ),
    }
    // Before and behind that time links are down, and say nothing of the others.
    if let Some(members) = facts.members.as_ref().filter(|_| phase == Phase::Serving) {
        found.of_members(members);
    }
    found.of_store(facts);
    found.of_trends(facts);
    for it in &facts.certificates {
        if it.has_ended {
            let sentence = format!("the certificate in {} has ended", it.file);
            found.add(HealthKind::CertificateEnded, &it.file, sentence);
        } else if it.is_short {
            let sentence = format!(
                "the certificate in {} ends in {} days",
                it.file, it.days_left
            );
            found.add(HealthKind::CertificateEnds, &it.file, sentence);
        }
    }
    found
        .all
        .sort_by(|a, b| (a.kind, &a.of).cmp(&(b.kind, &b.of)));
    found.all
}

struct FindingList<'a> {
    own: &'a str,
    all: Vec<HealthFinding>,
}

impl FindingList<'_> {
    fn add(&mut self, kind: HealthKind, of: &str, sentence: String) {
        let finding = HealthFinding::new(kind, of, self.own, sentence);
        self.all.push(finding);
    }

    fn of_members(&mut self, members: &MemberFacts) {
        if !members.has_majority() || members.partitions_short > 0 {
            self.add(HealthKind::NoMajority, "", members.no_majority());
        }
        for (url, _) in members.others.iter().filter(|(_, is_up)| !is_up) {
            let sentence = format!("{url} is not reached");
            self.add(HealthKind::MemberAway, url, sentence);
        }
        if let Some(why) = &members.plan_waits {
            self.add(HealthKind::PlanWaits, "", why.clone());
        }
        let mut releases: Vec<&str> = members.releases.iter().map(|(_, it)| it.as_str()).collect();
        releases.sort_unstable();
        releases.dedup();
        if releases.len() > 1 {
            let of_release = |release: &&str| {
                let runs = members.releases.iter().filter(|(_, it)| it == release);
                let urls: Vec<&str> = runs.map(|(url, _)| url.as_str()).collect();
                format!("{release} on {}", urls.join(" "))
            };
            let each: Vec<String> = releases.iter().map(of_release).collect();
            let sentence = format!("members run different releases: {}", each.join("; "));
            self.add(HealthKind::VersionsMixed, "", sentence);
        }
    }

    fn of_store(&mut self, facts: &NodeFacts) {
        let DamageFacts {
            blocks,
            tables_set_aside,
            waits,
        } = &facts.damage;
        for (url, waiting) in waits {
            let sentence = format!(
                "the repair of {waiting} damaged blocks waits for {url}: it is away, or damaged in \
                 the same keys"
            );
            self.add(HealthKind::DamageWaits, url, sentence);
        }
        if blocks + tables_set_aside > 0 {
            let sentence = format!(
                "{blocks} damaged blocks are not repaired, and {tables_set_aside} damaged tables \
                 are set aside"
            );
            self.add(HealthKind::Damage, "", sentence);
        }
        if let Some(sentence) = disk_full(facts.disk) {
            self.add(HealthKind::DiskFull, "", sentence);
        } else if let Some(sentence) = filling(facts) {
            self.add(HealthKind::DiskFilling, "", sentence);
        }
    }

    fn of_trends(&mut self, facts: &NodeFacts) {
        let trends = &facts.trends;
        if trends.hint_bytes_more + trends.hints_dropped > 0 {
            let sentence = format!(
                "hints for members that miss writes grew by {} in the last minute, to {} of {}; \
                 {} were dropped",
                mib(trends.hint_bytes_more),
                mib(facts.hint_bytes),
                mib(HINT_BYTES_MAX_DEFAULT),
                trends.hints_dropped
            );
            self.add(HealthKind::HintsGrow, "", sentence);
        }
        if !trends.refused.is_empty() {
            let causes = trends.refused.iter();
            let causes: Vec<String> = causes.map(|(by, n)| format!("{n} by {by}")).collect();
            let (causes, seconds) = (causes.join(", "), trends.refused_s);
            let sentence = format!("requests were refused in the last {seconds} s: {causes}");
            self.add(HealthKind::Refusals, "", sentence);
        }
    }
}

fn filling(facts: &NodeFacts) -> Option<String> {
    let disk = facts.disk;
    if disk.total_bytes == 0 {
        return None;
    }
    let left_bytes = disk.free_bytes.saturating_sub(disk.reserve_bytes);
    let of_rate = facts.trends.bytes_per_hour.map(|rate| left_bytes / rate);
    let of_rate = of_rate.filter(|hours| *hours < FILLING_HOURS);
    match of_rate {
        Some(hours_left) => Some(format!(
            "the disk is full in about {hours_left} hours at the rate of the last {} hours: {} of \
             {} are free",
            facts.trends.hours,
            mib(disk.free_bytes),
            mib(disk.total_bytes)
        )),
        None if disk.free_bytes < 2 * disk.reserve_bytes => Some(format!(
            "the disk is nearly full: {} of {} are free, and new values are refused below {}",
            mib(disk.free_bytes),
            mib(disk.total_bytes),
            mib(disk.reserve_bytes)
        )),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use HealthKind::*;

    const MIB: u64 = 1 << 20;

    fn well() -> NodeFacts {
        NodeFacts {
            phase: Phase::Serving,
            of_no_use: None,
            members: None,
            disk: DiskStats {
                free_bytes: 1_000 * MIB,
                total_bytes: 2_000 * MIB,
                reserve_bytes: 96 * MIB,
                used_bytes: 0,
                is_full: false,
            },
            damage: DamageFacts::default(),
            certificates: Vec::new(),
            hint_bytes: 0,
            trends: HealthTrends::default(),
        }
    }

    fn member(up: [bool; 2], partitions_short: usize) -> MemberFacts {
        MemberFacts {
            own: "http://h1:1".to_owned(),
            others: vec![
                ("http://h2:1".to_owned(), up[0]),
                ("http://h3:1".to_owned(), up[1]),
            ],
            releases: vec![("http://h1:1".to_owned(), "1.0".to_owned())],
            partitions: 256,
            partitions_short,
            plan_waits: None,
        }
    }

    fn kinds(change: impl FnOnce(&mut NodeFacts)) -> Vec<HealthKind> {
        let mut facts = well();
        change(&mut facts);
        judge(&facts).iter().map(|it| it.kind).collect()
    }

    fn sentence(change: impl FnOnce(&mut NodeFacts)) -> String {
        let mut facts = well();
        change(&mut facts);
        let found = judge(&facts);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].sentence.clone()
    }

    #[test]
    fn a_node_that_is_well_has_no_finding() {
        assert_eq!(kinds(|_| {}), []);
        assert_eq!(kinds(|it| it.members = Some(member([true, true], 0))), []);
        // Not looked at yet.
        assert_eq!(kinds(|it| it.disk = DiskStats::default()), []);
    }

    #[test]
    fn a_phase_and_a_reason_of_no_use_are_one_finding_that_is_not_serving() {
        for (phase, kind) in [
            (Phase::Starting, Starting),
            (Phase::Draining, Stopping),
            (Phase::Stopped, Stopping),
            (Phase::Poisoned, LogFailed),
        ] {
            assert_eq!(kinds(|it| it.phase = phase), [kind]);
            assert_eq!(kind.severity(), Severity::NotServing);
        }
        let why = "wrong clock: an hour";
        let of_no_use = Some((ClockOff, why.to_owned()));
        assert_eq!(sentence(|it| it.of_no_use = of_no_use.clone()), why);
        // A folder that is lost poisons the node.
        let lost = |it: &mut NodeFacts| {
            it.phase = Phase::Poisoned;
            it.of_no_use = Some((FolderLost, String::new()));
        };
        assert_eq!(kinds(lost), [FolderLost]);
    }

    #[test]
    fn one_of_three_away_is_degraded_and_two_are_no_majority() {
        let one = |it: &mut NodeFacts| it.members = Some(member([true, false], 0));
        assert_eq!(kinds(one), [MemberAway]);
        let mut facts = well();
        one(&mut facts);
        let found = judge(&facts);
        assert_eq!(found[0].of, "http://h3:1");
        assert!(
            found[0].way_out.contains("--replace http://h3:1"),
            "{}",
            found[0].way_out
        );
        assert_eq!(member([true, false], 0).cut_off(), None);
        let two = |it: &mut NodeFacts| it.members = Some(member([false, false], 256));
        assert_eq!(kinds(two), [NoMajority, MemberAway, MemberAway]);
        let cut_off = member([false, false], 256).cut_off().expect("it is alone");
        assert!(cut_off.contains("1 of 3 members"), "{cut_off}");
        // While it starts, links are down and say nothing of the others.
        let starts = |it: &mut NodeFacts| {
            two(it);
            it.phase = Phase::Starting;
        };
        assert_eq!(kinds(starts), [Starting]);
    }

    #[test]
    fn keys_without_a_majority_are_not_served_though_most_members_are_there() {
        let some = member([true, false], 64);
        assert_eq!(some.cut_off(), None, "other keys are served");
        assert_eq!(
            kinds(|it| it.members = Some(some)),
            [NoMajority, MemberAway]
        );
        assert!(member([true, false], 256).cut_off().is_some());
    }

    #[test]
    fn plans_that_wait_and_releases_that_differ_are_named() {
        let mut waiting = member([true, true], 0);
        waiting.plan_waits = Some("plan 3 waits: for http://h2:1".to_owned());
        assert_eq!(kinds(|it| it.members = Some(waiting)), [PlanWaits]);
        let mut mixed = member([true, true], 0);
        mixed
            .releases
            .push(("http://h2:1".to_owned(), "1.1".to_owned()));
        mixed
            .releases
            .push(("http://h3:1".to_owned(), "1.0".to_owned()));
        assert_eq!(
            sentence(|it| it.members = Some(mixed)),
            "members run different releases: 1.0 on http://h1:1 http://h3:1; 1.1 on http://h2:1"
        );
    }

    #[test]
    fn a_disk_is_full_or_fills_or_neither() {
        let full = |it: &mut NodeFacts| {
            it.disk.free_bytes = 3 * MIB;
            it.disk.is_full = true;
        };
        assert_eq!(kinds(full), [DiskFull]);
        assert_eq!(
            sentence(full),
            "the disk is full: 3.0 MiB of 2000.0 MiB are free, and the reserve is 96.0 MiB; new \
             values are refused"
        );
        assert_eq!(disk_full(well().disk), None);
        let nearly = |it: &mut NodeFacts| it.disk.free_bytes = 191 * MIB;
        assert_eq!(kinds(nearly), [DiskFilling]);
        let at = |rate: u64| {
            move |it: &mut NodeFacts| {
                it.trends.bytes_per_hour = Some(rate * MIB);
                it.trends.hours = 24;
            }
        };
        // 904 MiB are left above the reserve.
        assert_eq!(kinds(at(18)), []);
        assert!(
            sentence(at(19)).contains("in about 47 hours"),
            "{}",
            sentence(at(19))
        );
    }

    #[test]
    fn damage_hints_refusals_and_certificates_are_named() {
        let waits = |it: &mut NodeFacts| {
            it.damage.blocks = 2;
            it.damage.waits = vec![("http://h2:1".to_owned(), 1)];
        };
        assert_eq!(kinds(waits), [DamageWaits, Damage]);
        assert_eq!(kinds(|it| it.damage.tables_set_aside = 1), [Damage]);
        assert_eq!(kinds(|it| it.trends.hint_bytes_more = 1), [HintsGrow]);
        assert_eq!(kinds(|it| it.trends.hints_dropped = 1), [HintsGrow]);
        assert_eq!(
            kinds(|it| it.hint_bytes = 7),
            [],
            "they wait, and do not grow"
        );
        let refused = |it: &mut NodeFacts| {
            it.trends.refused = vec![("delay", 3), ("engine", 1)];
            it.trends.refused_s = 55;
        };
        assert_eq!(
            sentence(refused),
            "requests were refused in the last 55 s: 3 by delay, 1 by engine"
        );
        let certificate = |days_left, has_ended, is_short| {
            let file = "a.crt".to_owned();
            let it = CertificateFact {
                file,
                days_left,
                has_ended,
                is_short,
            };
            move |facts: &mut NodeFacts| facts.certificates = vec![it]
        };
        assert_eq!(kinds(certificate(300, false, false)), []);
        assert_eq!(kinds(certificate(20, false, true)), [CertificateEnds]);
        assert_eq!(kinds(certificate(0, true, true)), [CertificateEnded]);
    }
}
