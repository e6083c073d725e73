//! The state of its store that a member tells beside its clock.
//!
//! Not here: the reaction of a coordinator to it (crate `node`, `tests/scripts/pressed.txt`).
//! See: docs/overload.md, section "Pressure of other members".

mod support;

use dendra_base::peer::{Answer, Ask, Readiness, Refused};
use dendra_engine::vfs::MemVfs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::asker::{answer_to, greet, question, write};
use support::guest::{GUEST, SECRET, hello, node_on};

#[test]
fn a_member_says_beside_its_clock_that_its_disk_is_full_until_there_is_room() {
    let disk = MemVfs::new();
    let node = node_on(Arc::new(disk.clone()));
    let mut client = node.client();
    let token = greet(&mut client, &hello(GUEST, 1), SECRET);
    let mut questions = 0;
    let mut tell = |ask: Ask| {
        questions += 1;
        answer_to(&mut client, &token, &question(questions, ask))
    };
    let readiness = |answer: Answer| match answer {
        Answer::Clock { readiness, .. } => readiness,
        other => panic!("{other:?} is no clock"),
    };
    assert_eq!(readiness(tell(Ask::Clock)), Readiness::Ready);
    disk.set_capacity(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    let value = vec![7; 10_000];
    let is_full = |said| matches!(said, Readiness::DiskFull | Readiness::DiskAndMemoryFull);
    while !is_full(readiness(tell(Ask::Clock))) {
        let written = tell(write(b"k", &value));
        assert!(
            matches!(
                written,
                Answer::Written(_) | Answer::Refused(Refused::DiskFull | Refused::Busy)
            ),
            "{written:?}"
        );
        assert!(Instant::now() < deadline, "the disk never was full");
    }
    assert_eq!(
        tell(write(b"k", &value)),
        Answer::Refused(Refused::DiskFull)
    );
    disk.set_capacity(u64::MAX);
    while readiness(tell(Ask::Clock)) != Readiness::Ready {
        assert!(Instant::now() < deadline, "it never had room again");
    }
}
