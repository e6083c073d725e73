//! Up to when values have ended for everybody: by no single clock, and by none that was set now.

use dendra_base::Now;
use dendra_node::EndedValues;
use dendra_node::walls::Walls;
use dendra_ownership::MemberIndex;

const T: u64 = 1_767_225_600_000;
const HOUR_MS: u64 = 3_600_000;

fn at(mono_ms: u64, wall_ms: u64) -> Now {
    Now {
        mono_us: mono_ms * 1_000,
        wall_ms,
        wall_part_us: 0,
    }
}

#[test]
fn a_node_by_itself_waits_until_its_clock_has_run_evenly_for_an_hour() {
    let mut ended = EndedValues::default();
    let mut look = |mono_ms, wall_ms| ended.until_ms(at(mono_ms, wall_ms), None);
    assert_eq!(look(7, T + 2 * HOUR_MS), 0, "a clock of before it was set");
    assert_eq!(look(3_007, T), 0, "it is set right");
    assert_eq!(look(3_006 + HOUR_MS, T + HOUR_MS - 1), 0, "not yet");
    // A little faster than the monotonic clock, as one that is being adjusted.
    let mono_ms = 3_007 + HOUR_MS;
    assert_eq!(look(mono_ms, T + HOUR_MS + 900), T + 900);
    assert_eq!(look(mono_ms + 500, T + 9 * HOUR_MS), 0, "it jumps");
    assert_eq!(look(mono_ms + 1_000, T + HOUR_MS + 1_000), 0, "and back");
    assert_eq!(look(mono_ms + HOUR_MS, T + 2 * HOUR_MS), 0, "not yet again");
    let later_ms = mono_ms + 1_000 + HOUR_MS;
    assert_eq!(look(later_ms, T + 2 * HOUR_MS), T + HOUR_MS);
}

#[test]
fn a_member_goes_by_the_majority_and_not_by_its_own_clock() {
    let years_ms = 10 * 365 * 24 * HOUR_MS;
    for (ahead_ms, passed) in [(0, 20), (years_ms, 20), (2 * HOUR_MS, 20)] {
        let mut ended = EndedValues::default();
        let walls = Walls::new(MemberIndex(0), 3);
        let start = at(0, T + ahead_ms);
        assert_eq!(ended.until_ms(start, Some(&walls)), 0);
        let now = at(HOUR_MS, T + ahead_ms + HOUR_MS);
        assert_eq!(ended.until_ms(now, Some(&walls)), 0, "no other clock");
        walls.note(MemberIndex(1), T + HOUR_MS - 20, now);
        walls.note(MemberIndex(2), T + HOUR_MS + 20, now);
        let until_ms = ended.until_ms(now, Some(&walls));
        let own = if ahead_ms == 0 { 0 } else { passed };
        assert_eq!(until_ms, T + own, "{ahead_ms}");
    }
}
