//! Names of backups: a time and a random number, in the order in which the repository got them.
//!
//! Invariants
//! 1. A new name is above all names of the repository, also where this machine's clock is behind
//!    them. So the last name is the newest backup, which `prune` keeps and `restore` takes.
//! 2. Where the clock is behind, a sentence says so.
//!
//! Not here: reading the names (`repository.rs`), the time (the caller's).
//! See: docs/decisions/0028-backups-are-tables.md.

use super::key;
use crate::exit::{Exit, Failure};

/// The part of a name in front of the random number.
const TIME: &str = "%Y%m%dT%H%M%S%.3fZ";

/// The name of a new backup.
#[derive(Debug)]
pub(super) struct NewName {
    pub(super) id: String,
    /// A sentence, if the repository has a backup with a later time than this machine.
    pub(super) clock_is_behind: Option<String>,
}

/// A name for a backup that began at `began_ms`, in a repository with these names.
pub(super) fn above(ids: &[String], began_ms: u64) -> Result<NewName, Failure> {
    let newest = ids.iter().filter_map(|id| Some((time_of(id)?, id))).max();
    let behind = newest.filter(|(time_ms, _)| *time_ms >= began_ms);
    let time_ms = behind.map_or(began_ms, |(time_ms, _)| time_ms.saturating_add(1));
    let time = i64::try_from(time_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .ok_or_else(|| {
            Failure::new(
                Exit::FAILURE,
                match behind {
                    Some((_, id)) => {
                        format!("no time is later than that of backup {id}: remove it")
                    }
                    None => "the clock of this machine shows no time".to_owned(),
                },
            )
        })?;
    let random = u32::from_le_bytes(key::random()?);
    Ok(NewName {
        id: format!("{}-{random:08x}", time.strftime(TIME)),
        clock_is_behind: behind.map(|(their_ms, id)| {
            format!(
                "backup {id} is already there, and its time is {} ms ahead of this machine's \
                 clock: the new backup is named behind it. Set the clock that is wrong",
                their_ms - began_ms
            )
        }),
    })
}

/// The wall milliseconds in a name. A file with another name is no backup of ours.
fn time_of(id: &str) -> Option<u64> {
    let (time, _) = id.split_once('-')?;
    let time = jiff::civil::DateTime::strptime(TIME, time).ok()?;
    let time = jiff::tz::Offset::UTC.to_timestamp(time).ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-02T03:04:05.678Z
    const NOW_MS: u64 = 1_767_323_045_678;

    fn named(ids: &[&str]) -> NewName {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let name = above(&ids, NOW_MS).expect("a name");
        assert!(ids.iter().all(|id| *id < name.id), "{name:?}");
        name
    }

    #[test]
    fn a_name_is_the_time_unless_a_later_one_is_there() {
        for ids in [&[][..], &["20260102T030405.677Z-ffffffff"], &["0-notes"]] {
            let name = named(ids);
            assert!(name.id.starts_with("20260102T030405.678Z-"), "{name:?}");
            assert_eq!(name.clock_is_behind, None);
        }
        let ahead = ["20251231T000000.000Z-0", "20260103T030405.999Z-ffffffff"];
        let name = named(&ahead);
        assert!(name.id.starts_with("20260103T030406.000Z-"), "{name:?}");
        let said = name.clock_is_behind.expect("a sentence");
        assert!(said.contains("86400321 ms ahead"), "{said}");
        assert!(said.contains(ahead[1]), "{said}");
        let last = ["99991230T220000.999Z-00000001".to_owned()];
        let refused = above(&last, NOW_MS).expect_err("there is no later time");
        assert!(refused.sentence.contains(&last[0]), "{}", refused.sentence);
    }

    #[test]
    fn names_of_one_millisecond_are_in_order() {
        let mut ids: Vec<String> = Vec::new();
        for _ in 0..50 {
            let name = above(&ids, NOW_MS).expect("a name");
            assert!(ids.last() < Some(&name.id));
            ids.push(name.id);
        }
    }
}
