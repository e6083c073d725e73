//! As which member a folder may be started, and which peer is the known one.

use super::*;
use crate::epoch::drive::{MoveArrived, next_step};
use crate::epoch::record::{EpochMember, MemberStatus, NewPlan};
use crate::ring::plan::replacement;
use dendra_base::{ClusterVersions, LeastSuccessor};
use proptest::prelude::*;

const NODE: u128 = 7;

fn topology(name: &str, list: &[&str], copies: u8) -> Topology {
    let members = list.iter().map(|text| text.parse().expect("a member"));
    Topology::new(name, members.collect(), copies).expect("a topology")
}

fn three() -> Topology {
    topology("dendra", &["h1:1", "h2:1", "h3:1"], 3)
}

fn started() -> OwnNote {
    OwnNote::start(None, NODE, &three(), MemberIndex(1), FolderContent::Empty)
        .expect("a new folder")
}

#[test]
fn a_start_on_a_doubted_folder_has_the_number_of_the_one_before() {
    let home = FolderMembership {
        cluster: "dendra".to_owned(),
        url: "http://h1:8080".to_owned(),
        fence: 1,
        topology: String::new(),
    };
    for (boot, again) in [(1, 1), (2, 1), (9, 8)] {
        let home = home.clone();
        let own = OwnNote {
            node: 7,
            boot,
            home,
        };
        assert_eq!(own.not_counted().boot, again);
    }
}

#[test]
fn a_new_folder_takes_its_home_and_every_start_counts() {
    let own = started();
    assert_eq!((own.node, own.boot), (NODE, 1));
    assert_eq!(own.home.url, "http://h2:1");
    assert_eq!(own.home.fence, 1);
    let again = OwnNote::start(
        Some(&own),
        NODE,
        &three(),
        MemberIndex(1),
        FolderContent::Records,
    );
    let again = again.expect("its own home");
    assert_eq!(again, OwnNote { boot: 2, ..own });
}

#[test]
fn what_is_learned_of_a_folder_has_the_clock_that_was_known() {
    let claim = |boot: u64, clock: u64| Peer {
        node: NODE,
        boot,
        life: 100 + boot,
        clock,
    };
    // A stranger has confirmed no write yet, even if its folder holds some.
    let learned = judge("http://h1:1", claim(1, 70), None);
    assert_eq!(learned, ClaimVerdict::Learn(claim(1, 0)));
    let learned = judge("http://h1:1", claim(2, 70), Some(claim(1, 60)));
    assert_eq!(learned, ClaimVerdict::Learn(claim(2, 60)));
}

#[test]
fn a_folder_of_another_home_is_not_opened_and_both_sides_are_named() {
    let own = started();
    let later = OwnNote {
        home: FolderMembership {
            fence: 4,
            ..own.home.clone()
        },
        ..own.clone()
    };
    let same = ["h1:1", "h2:1", "h3:1"];
    for (own, node, topology, me, parts) in [
        (
            &own,
            NODE,
            topology("prod", &same, 3),
            1,
            ["cluster dendra", "not to prod"],
        ),
        (
            &own,
            NODE,
            three(),
            2,
            ["belongs to http://h2:1", "not to http://h3:1"],
        ),
        (
            &own,
            NODE,
            topology("dendra", &["h1:1", "h2:1"], 3),
            1,
            ["another topology", "only there a member: http://h3:1"],
        ),
        (
            &own,
            NODE,
            topology("dendra", &same, 2),
            1,
            ["another topology", "replication factor is 2 here, 3 there"],
        ),
        (
            &own,
            8,
            three(),
            1,
            [
                "node 00000000000000000000000000000008",
                "of node 00000000000000000000000000000007",
            ],
        ),
        (&later, NODE, three(), 1, ["epoch 4", "name epoch 1"]),
    ] {
        let refused = OwnNote::start(
            Some(own),
            node,
            &topology,
            MemberIndex(me),
            FolderContent::Records,
        );
        let sentence = refused.expect_err("a stranger").to_string();
        for part in parts {
            assert!(sentence.contains(part), "{part:?} is not in: {sentence}");
        }
    }
}

#[test]
fn a_later_epoch_may_change_everything_but_the_home() {
    let own = OwnNote {
        home: FolderMembership {
            fence: 0,
            topology: "cluster=dendra epoch=0 members=http://h2:1".to_owned(),
            ..started().home
        },
        ..started()
    };
    let next = OwnNote::start(
        Some(&own),
        NODE,
        &three(),
        MemberIndex(1),
        FolderContent::Records,
    );
    assert_eq!(next.expect("a later epoch").home, started().home);
}

#[test]
fn records_of_a_node_by_itself_are_not_hidden_in_a_cluster() {
    let start = |topology: &Topology, content| {
        OwnNote::start(None, NODE, topology, MemberIndex(0), content).map_err(|e| e.to_string())
    };
    let refused = start(&three(), FolderContent::Records).expect_err("they would not be found");
    assert!(refused.contains("dendra scan"), "{refused}");
    assert!(start(&three(), FolderContent::Empty).is_ok());
    let one = topology("dendra", &["h1:1"], 3);
    assert!(start(&one, FolderContent::Records).is_ok());
}

#[test]
fn a_folder_of_a_cluster_is_not_started_alone() {
    assert_eq!(OwnNote::start_alone(None), Ok(()));
    let refused = OwnNote::start_alone(Some(&started())).expect_err("it has a home");
    assert!(
        refused.to_string().contains("--self http://h2:1"),
        "{refused}"
    );
}

#[test]
fn a_peer_is_known_new_or_not_the_same() {
    let peer = |node, boot| Peer {
        node,
        boot,
        life: boot,
        clock: 0,
    };
    let life = |life| Peer { life, ..peer(7, 3) };
    let url = "http://h2:1";
    for (claim, remembered, verdict) in [
        (peer(7, 3), None, ClaimVerdict::Learn(peer(7, 3))),
        (peer(7, 3), Some(peer(7, 3)), ClaimVerdict::Known),
        (
            peer(7, 4),
            Some(peer(7, 3)),
            ClaimVerdict::Learn(peer(7, 4)),
        ),
        (life(9), Some(life(0)), ClaimVerdict::Learn(life(9))),
    ] {
        assert_eq!(judge(url, claim, remembered), verdict);
    }
    for (claim, code, parts) in [
        (
            peer(8, 9),
            "other-node",
            [
                "node 00000000000000000000000000000007, now 0",
                "wiped or replaced",
            ],
        ),
        (
            peer(8, 2),
            "other-node",
            [
                "the folder of http://h2:1",
                "give the member its folder back",
            ],
        ),
        (
            peer(7, 2),
            "rolled-back",
            ["start 2 after start 3", "was restored"],
        ),
        (
            life(9),
            "twin",
            [
                "another process was http://h2:1 at start 3",
                "that it let in first",
            ],
        ),
    ] {
        let ClaimVerdict::Refuse(reason) = judge(url, claim, Some(peer(7, 3))) else {
            panic!("{claim:?} was taken for the same");
        };
        assert_eq!(reason.code(), code);
        for part in parts {
            assert!(
                reason.to_string().contains(part),
                "{part:?} is not in: {reason}"
            );
        }
    }
}

#[test]
fn a_member_that_comes_back_with_less_than_it_confirmed_was_rolled_back() {
    let url = "http://h2:1";
    let known = Peer {
        node: 7,
        boot: 3,
        life: 1,
        clock: 5_000 << COUNTER_BITS,
    };
    let started = |clock_ms: u64| Peer {
        boot: 4,
        life: 2,
        clock: clock_ms << COUNTER_BITS,
        ..known
    };
    let ClaimVerdict::Refuse(reason) = judge(url, started(4_998), Some(known)) else {
        panic!("its folder ends before what it confirmed");
    };
    assert_eq!(reason.code(), "rolled-back");
    assert!(
        reason.to_string().contains("a write 2 ms past the end"),
        "{reason}"
    );
    // A confirmation stays known, even if the claim tells another clock.
    for clock_ms in [5_000, 9_000, 0] {
        let learnt = Peer {
            clock: known.clock,
            ..started(clock_ms)
        };
        let verdict = judge(url, started(clock_ms), Some(known));
        assert_eq!(verdict, ClaimVerdict::Learn(learnt), "{clock_ms}");
    }
    // The process that is known has confirmed more since it said where it began.
    let again = Peer { clock: 1, ..known };
    assert_eq!(judge(url, again, Some(known)), ClaimVerdict::Known);
}

/// Bytes that stand in folders: they may never change.
#[test]
fn records_have_the_documented_bytes() {
    let own = OwnNote {
        node: 0x0102,
        boot: 3,
        home: FolderMembership {
            cluster: "c".to_owned(),
            url: "u".to_owned(),
            fence: 4,
            topology: "t".to_owned(),
        },
    };
    let mut expected = vec![1, 2, 1];
    expected.extend([0; 14]);
    expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([1, 0, 0, 0, b'c', 1, 0, 0, 0, b'u', 1, 0, 0, 0, b't']);
    assert_eq!(own.encode(), expected);
    let peer = Peer {
        node: 0x0102,
        boot: 3,
        life: 0x0506,
        clock: 0x0708,
    };
    let mut expected = [&[1][..], &expected[1..25]].concat();
    expected.extend([6, 5, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0]);
    assert_eq!(peer.encode(), expected);
    assert_eq!(Peer::decode(&expected), Some(peer));
    expected[0] = 2;
    assert_eq!(Peer::decode(&expected), None, "a later format");
    assert_eq!(peer_key(MemberId(17)), b"peer/#17");
    assert!(epoch_key(255) < epoch_key(256));
}

proptest! {
    #[test]
    fn any_legal_note_of_a_member_is_read_as_it_was_written_and_nothing_else_is_one(
        node: u128, boot: u64, life: u64, clock: u64, fence: u64,
        texts in proptest::array::uniform3("\\PC{0,20}|[ -~]{0,4096}"), cut in 0usize..200,
    ) {
        let [cluster, url, topology] = texts;
        let own = OwnNote { node, boot, home: FolderMembership { cluster, url, fence, topology } };
        let bytes = own.encode();
        prop_assert_eq!(OwnNote::decode(&bytes[..cut.min(bytes.len() - 1)]), None);
        prop_assert_eq!(OwnNote::decode(&[&bytes[..], &[0]].concat()), None);
        prop_assert_eq!(OwnNote::decode(&bytes), Some(own));
        let peer = Peer { node, boot, life, clock };
        prop_assert_eq!(Peer::decode(&peer.encode()), Some(peer));
        prop_assert_eq!(Peer::decode(&peer.encode()[..cut.min(40)]), None);
    }

    #[test]
    fn foreign_bytes_are_never_read_beyond_their_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        if let Some(own) = OwnNote::decode(&bytes) {
            prop_assert_eq!(own.encode(), bytes.clone());
        }
        if let Some(peer) = Peer::decode(&bytes) {
            prop_assert_eq!(peer.encode(), bytes);
        }
    }
}

#[test]
fn a_number_of_starts_that_cannot_be_shuts_nobody_out() {
    let url = "http://h2:1";
    let known = Peer {
        node: 7,
        boot: 3,
        life: 1,
        clock: 0,
    };
    let refused = |claim, remembered| match judge(url, claim, remembered) {
        ClaimVerdict::Refuse(reason) => reason,
        other => panic!("{other:?}"),
    };
    let most = 3 + STARTS_AHEAD_MAX;
    for (claim, remembered) in [
        // The process that is known has another number.
        (Peer { boot: 4, ..known }, Some(known)),
        (Peer { boot: 2, ..known }, Some(known)),
        (
            Peer {
                boot: 1 << 63,
                life: 2,
                ..known
            },
            Some(known),
        ),
        (
            Peer {
                boot: u64::MAX,
                life: 2,
                ..known
            },
            Some(known),
        ),
        (
            Peer {
                boot: most + 1,
                life: 2,
                ..known
            },
            Some(known),
        ),
        (
            Peer {
                boot: 1 << 63,
                ..known
            },
            None,
        ),
    ] {
        let reason = refused(claim, remembered);
        assert_eq!(reason.code(), "implausible", "{claim:?}");
        assert!(!DISOWNING.contains(&reason.code()));
        let starts = format!("cannot have started {} times", claim.boot);
        assert!(reason.to_string().contains(&starts), "{reason}");
    }
    let far = Peer {
        boot: most,
        life: 2,
        ..known
    };
    assert_eq!(judge(url, far, Some(known)), ClaimVerdict::Learn(far));
    // A note of before lives were noted has none of them.
    let unnamed = Peer { life: 0, ..known };
    let later = Peer {
        boot: 4,
        life: 0,
        ..known
    };
    assert_eq!(judge(url, later, Some(unnamed)), ClaimVerdict::Learn(later));
}

#[test]
fn a_folder_that_lost_the_epoch_of_its_move_starts_at_the_address_that_it_noted() {
    let first = EpochRecord::founded(&three());
    let ids: Vec<MemberId> = first.members().iter().map(|member| member.id).collect();
    let nodes = [(ids[0], 5), (ids[1], NODE), (ids[2], 6)];
    let enrolled = first.enrolled(&nodes).expect("three folders");
    let [before, after] = ["http://h2:1", "http://h9:1"];
    let moved = enrolled.readdressed(ids[1], after).expect("it moves");
    let (own, id) = started()
        .resume(NODE, &moved, None, Some(after))
        .expect("its folder");
    assert_eq!(
        (id, own.home.url.as_str(), own.home.fence),
        (ids[1], after, 3)
    );
    assert!(own.resume(NODE, &moved, None, Some(before)).is_err());
    // It cannot read the epoch any more.
    for url in [None, Some(after), Some(before)] {
        let (again, id) = own.resume(NODE, &enrolled, None, url).expect("its folder");
        assert_eq!(id, ids[1]);
        assert_eq!(again.home, own.home, "nothing of the note is lost");
    }
    let other = own.resume(NODE, &enrolled, None, Some("http://h8:1"));
    assert!(other.is_err());
    // The first epoch knows no folder, and no member at that address.
    let refused = own.resume(NODE, &first, None, None).expect_err("not known");
    assert!(
        refused.to_string().contains("later ones are damaged"),
        "{refused}"
    );
}

/// A plan begins only when all are enrolled. These are the changes without a plan, of any member.
#[test]
fn a_founder_finds_itself_in_each_epoch_that_may_come_before_it_is_enrolled() {
    let first = EpochRecord::founded(&three());
    let ids: Vec<MemberId> = first.members().iter().map(|member| member.id).collect();
    let changed = |record: &EpochRecord| {
        let url = format!("http://x{}:1", record.epoch());
        let floor = record.horizons().floor() + 1;
        let least = LeastSuccessor::new(record.least_successor().number() + 1).expect("a number");
        let mut next: Vec<_> = ids.iter().map(|id| record.readdressed(*id, &url)).collect();
        next.extend([
            record.enrolled(&[(ids[0], 5)]),
            record.enrolled(&[(ids[2], 6)]),
            record.rekeyed(),
            record.finalized(ClusterVersions::OWN.newest),
            record.forgot(floor),
            record.restored(least),
        ]);
        next.into_iter().flatten().collect::<Vec<EpochRecord>>()
    };
    let (own, mut records, mut moved) = (started(), vec![first], 0);
    for _ in 0..3 {
        records = records.iter().flat_map(changed).collect();
        for record in &records {
            let found = own.resume(NODE, record, None, None);
            let (_, id) = found.expect("its folder");
            assert_eq!(id, ids[1], "{:?}", record.members());
            moved += usize::from(record.members()[0].place.url != "http://h1:1");
        }
    }
    assert!(records.len() > 50 && moved > 10, "{}", records.len());
}

/// The epoch after the plan by which the folder 9 takes the place of the second member.
fn replaced(enrolled: &EpochRecord) -> EpochRecord {
    let (id, old) = (enrolled.owners().next(), enrolled.members()[1].id);
    let moves = replacement(enrolled.owners(), old, id, &[old]).expect("a plan");
    let newcomer = EpochMember {
        id,
        node: 9,
        status: MemberStatus::Joining,
        place: enrolled.members()[1].place.clone(),
    };
    let planned = enrolled.planned(&NewPlan {
        author: enrolled.members()[0].id,
        moves,
        newcomers: vec![newcomer],
        shares: Vec::new(),
        replication_factor: enrolled.replication_factor(),
    });
    let mut record = planned.expect("nothing else is under way");
    while let Some(plan) = record.plan().map(|plan| plan.id) {
        let steps = record.owners().all().filter_map(|at| record.moving(at));
        let arrived: Vec<_> = steps.map(|step| MoveArrived { plan, step }).collect();
        record = next_step(&record, &arrived, 256).expect("the plan goes on");
    }
    record
}

#[test]
fn a_folder_is_not_the_member_that_has_its_address_now() {
    let first = EpochRecord::founded(&three());
    let ids: Vec<MemberId> = first.members().iter().map(|member| member.id).collect();
    let nodes = [(ids[0], 5), (ids[1], NODE), (ids[2], 6)];
    let last = replaced(&first.enrolled(&nodes).expect("three folders"));
    let own = started();
    let is_there = |member: &EpochMember| member.place.url == own.home.url;
    assert!(last.members().iter().any(is_there));
    let later = FolderMembership {
        fence: last.epoch() + 1,
        ..own.home.clone()
    };
    // It knows that it was removed, also if it cannot read a later epoch.
    for home in [own.home.clone(), later] {
        let own = OwnNote {
            home,
            ..own.clone()
        };
        let refused = own.resume(NODE, &last, None, None).expect_err("removed");
        assert!(
            refused.to_string().contains("never comes back"),
            "{refused}"
        );
    }
}
