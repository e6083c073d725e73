//! The layouts of a plan's epochs, one after the other. Each agrees with its record.
//!
//! Not here: fences and loading (`twin/`), which moves a plan has (crate `ownership`,
//! `ring/plan/`).

use crate::epochs;
use crate::world::record as record_of;
use dendra_base::LeastSuccessor;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::limits::MOVES_SIDE_BY_SIDE;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::{Layout, Partition};
use std::collections::BTreeSet;

/// Copies of each record.
const COPIES: usize = 3;

/// Owners by their numbers, and the member that is about to be one.
fn owners(layout: &Layout, partition: Partition) -> (Vec<MemberId>, Option<(u8, MemberId)>) {
    let id = |member| layout.id_of(member).expect("an owner is a member");
    // Behind them stand members that hold no copy.
    let owners = layout.ring().owners(partition)[..COPIES].iter();
    let twin = layout.arriving(partition);
    (
        owners.map(|member| id(*member)).collect(),
        twin.map(|twin| (twin.place, id(twin.member))),
    )
}

#[test]
fn layouts_follow_their_records_and_know_when_each_partition_changed() {
    let mut record = epochs::enrolled(3, 3);
    let mut layout = Layout::of_record(&record).expect("its members");
    let all: Vec<Partition> = record.owners().all().collect();
    let first_epoch = record.epoch();
    let mut changed = vec![first_epoch; all.len()];
    let mut epochs = Vec::new();
    record = epochs::joining(&record);
    loop {
        let next = layout.next(&record).expect("its members");
        let fresh = Layout::of_record(&record).expect("its members");
        for (at, &partition) in all.iter().enumerate() {
            let now = owners(&next, partition);
            assert_eq!(now, owners(&fresh, partition), "{partition:?}");
            if now != owners(&layout, partition) {
                changed[at] = record.epoch();
            }
            assert_eq!(next.changed(partition), changed[at], "{partition:?}");
            // Those that hold no copy stand in the same order, too.
            let row = |layout: &Layout| -> Vec<_> {
                let row = layout.ring().owners(partition).iter();
                row.map(|member| layout.id_of(*member)).collect()
            };
            assert_eq!(row(&next), row(&fresh), "{partition:?}");
        }
        epochs.push(record.epoch());
        layout = next;
        if record.plan().is_none() {
            break;
        }
        record = epochs::arrived(&record, MOVES_SIDE_BY_SIDE);
    }
    assert!(epochs.len() > 2, "{epochs:?}");
    assert!(
        changed.contains(&first_epoch),
        "some partitions do not move"
    );
    let last = epochs[epochs.len() - 2];
    assert!(changed.iter().any(|at| (first_epoch..last).contains(at)));
    assert!(changed.iter().any(|at| *at > first_epoch));
}

/// The same members with so many copies, as the first record of a chain.
fn with_copies(copies: u8) -> EpochRecord {
    epochs::founded(5, copies)
}

#[test]
fn a_delete_needs_the_copies_of_a_former_factor_until_horizons_rise() {
    let five = Layout::of_record(&with_copies(5)).expect("its members");
    let lowered = with_copies(3);
    let layout = five.next(&lowered).expect("its members");
    assert_eq!(
        (layout.topology().copies(), layout.copies_to_forget()),
        (3, 5)
    );
    let still = layout.next(&lowered.rekeyed().expect("a generation"));
    assert_eq!(still.expect("its members").copies_to_forget(), 5);
    let risen = layout.next(&lowered.forgot(1 << 60).expect("a later floor"));
    assert_eq!(risen.expect("its members").copies_to_forget(), 3);
}

#[test]
fn a_drop_takes_all_old_records_of_a_partition_with_strays_and_no_others() {
    const OLD: u64 = 1 << 59;
    let layout = Layout::of_record(&with_copies(3)).expect("its members");
    let risen = with_copies(3).forgot(OLD).expect("a later floor");
    let layout = layout.next(&risen).expect("its members");
    let raw = b"k";
    let partition = layout.ring().partition(raw);
    let owners = layout.ring().owners(partition).to_vec();
    let drops = |place: usize, copies: u8, hlc: u64, seen: &BTreeSet<Partition>| {
        let (_, mut cell) = record_of(raw, hlc, b"v");
        cell.copies = copies;
        layout.drops(owners[place], raw, &cell.as_ref(), seen)
    };
    let (none, this) = (BTreeSet::new(), BTreeSet::from([partition]));
    for (place, copies, hlc, is_dropped) in [
        (0, 5, OLD, false),
        (2, 1, OLD, false),
        // Foreign, and the records that it may hide.
        (3, 3, OLD + 1, true),
        (3, 5, OLD, true),
        // A client's write of this epoch.
        (3, 5, OLD + 1, false),
        (4, 4, OLD + 1, true),
    ] {
        assert!(!drops(place, copies, hlc, &none), "{place} {copies}");
        let dropped = drops(place, copies, hlc, &this);
        assert_eq!(dropped, is_dropped, "{place} {copies} {hlc}");
    }
}

#[test]
fn a_restore_raises_the_fence_of_all_partitions() {
    let record = epochs::founded(3, 3);
    let layout = Layout::of_record(&record).expect("its members");
    let least = LeastSuccessor::new(70_000).expect("a small one");
    let restored = record.restored(least).expect("above 0");
    let next = layout.next(&restored).expect("its members");
    assert_eq!(
        (layout.least_successor().number(), next.least_successor()),
        (0, least)
    );
    for partition in record.owners().all() {
        assert_eq!(next.changed(partition), restored.epoch(), "{partition:?}");
    }
    let later = restored.rekeyed().expect("a change");
    let later = next.next(&later).expect("its members");
    assert_eq!(later.least_successor(), least);
    assert_eq!(later.changed(Partition(0)), restored.epoch());
}

#[test]
fn a_member_that_only_moves_house_changes_no_partition() {
    let record = epochs::enrolled(3, 3);
    let layout = Layout::of_record(&record).expect("its members");
    let moved = record.readdressed(MemberId(1), "http://h9:1");
    let moved = moved.expect("another address");
    let next = layout.next(&moved).expect("its members");
    assert_ne!(next.epoch(), layout.epoch());
    for partition in record.owners().all() {
        assert_eq!(next.changed(partition), layout.changed(partition));
        assert_eq!(owners(&next, partition), owners(&layout, partition));
    }
    let at = next.index_of(MemberId(1)).expect("a member");
    assert_eq!(next.topology().member(at).url, "http://h9:1");
}
