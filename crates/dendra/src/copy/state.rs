//! How far a copy is: a folder with a small file that is replaced in one step, and two indexes.
//!
//! ```text
//! LOCK          flock: one copy at a time
//! state.json    round, position in it, lengths of the indexes
//! index-N       written by round N, read by round N + 1
//! ```
//!
//! Invariants
//! 1. `state.json` names only bytes of an index that were synced before it.
//! 2. Before a page is begun, its last key is in `state.json`. After a crash the copy may have
//!    written the keys up to there at TO without an entry, and no others.
//! 3. A page that an error ends leaves its entries (`loose`), and only the keys of which it does
//!    not know the outcome (`doubtful`).
//! 4. A folder of another copy is refused.
//!
//! Not here: the entries (`index.rs`).
//! See: docs/moving.md.

use super::index::CopiedKey;
use crate::exit::{Exit, Failure};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const FORMAT: u64 = 1;

/// The facts that tell one copy from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyIdentity {
    pub(super) from: Vec<String>,
    pub(super) to: Vec<String>,
    pub(super) prefix: Vec<u8>,
}

/// Where the copy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CopyProgress {
    /// The round under way, from 0 on.
    pub(super) round: u64,
    /// The last key that this round is through with.
    pub(super) position: Option<Vec<u8>>,
    /// The last key of the page that was begun after it.
    pub(super) begun: Option<Vec<u8>>,
    /// Bytes of this round's index that count.
    pub(super) new_bytes: u64,
    /// Bytes of the index that the round before has written.
    pub(super) old_bytes: u64,
    /// Records that this round has changed at TO.
    pub(super) changes: u64,
    /// Records that the round before has changed at TO.
    pub(super) changes_before: Option<u64>,
    /// Records after the position that a page wrote before an error ended it.
    pub(super) loose: Vec<CopiedKey>,
    /// Keys after the position of which that page does not know whether it wrote them.
    pub(super) doubtful: Vec<Vec<u8>>,
    /// The cut-over is done.
    pub(super) is_done: bool,
}

/// See the module.
pub(super) struct StateFolder {
    path: PathBuf,
    identity: CopyIdentity,
    pub(super) progress: CopyProgress,
    _lock: File,
}

/// Is there something to go on with?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    Fresh,
    Resumed,
}

impl StateFolder {
    /// Makes the folder, or goes on with its state.
    pub(super) fn open(
        path: &Path,
        identity: CopyIdentity,
    ) -> Result<(StateFolder, Begin), Failure> {
        let failed = |e: io::Error| broken(path, &e);
        std::fs::create_dir_all(path).map_err(failed)?;
        let mut options = File::options();
        let lock = options
            .create(true)
            .write(true)
            .truncate(false)
            .open(path.join("LOCK"))
            .map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => Failure::new(
                Exit::UNAVAILABLE,
                format!("{}: another copy works with this folder", path.display()),
            ),
            e => failed(e.into()),
        })?;
        let (progress, begin) = match std::fs::read_to_string(path.join("state.json")) {
            Ok(text) => (read(path, &text, &identity)?, Begin::Resumed),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (CopyProgress::default(), Begin::Fresh)
            }
            Err(e) => return Err(failed(e)),
        };
        let folder = StateFolder {
            path: path.to_owned(),
            identity,
            progress,
            _lock: lock,
        };
        Ok((folder, begin))
    }

    /// The index of a round.
    pub(super) fn index(&self, round: u64) -> PathBuf {
        self.path.join(format!("index-{round}"))
    }

    /// Replaces `state.json`, durably.
    pub(super) fn save(&self) -> Result<(), Failure> {
        let page = page(&self.identity, &self.progress);
        let write = || -> io::Result<()> {
            let partial = self.path.join("state.partial");
            let mut file = File::create(&partial)?;
            file.write_all(page.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&partial, self.path.join("state.json"))?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|e| broken(&self.path, &e))
    }

    /// The round is over: its index is the next one's to read.
    pub(super) fn next_round(&mut self) -> Result<(), Failure> {
        let done = self.progress.clone();
        self.progress = CopyProgress {
            round: done.round + 1,
            old_bytes: done.new_bytes,
            changes_before: Some(done.changes),
            ..CopyProgress::default()
        };
        self.save()?;
        if let Some(older) = done.round.checked_sub(1) {
            match std::fs::remove_file(self.index(older)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(broken(&self.path, &e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The folder, for failures about its files.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A failure about a file of the folder.
pub(super) fn broken(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::FAILURE,
        format!(
            "{}: the state of the copy cannot be kept there ({error}); make room, or begin anew \
             with another --state",
            path.display()
        ),
    )
}

/// The content of `state.json`.
fn page(identity: &CopyIdentity, progress: &CopyProgress) -> String {
    let CopyProgress {
        round,
        position,
        begun,
        new_bytes,
        old_bytes,
        changes,
        changes_before,
        loose,
        doubtful,
        is_done,
    } = progress;
    let optional = |key: &Option<Vec<u8>>| key.as_deref().map(hex);
    let loose: Vec<Value> = loose.iter().map(entry_json).collect();
    let doubtful: Vec<String> = doubtful.iter().map(|key| hex(key)).collect();
    let object = json!({
        "format": FORMAT, "from": identity.from, "to": identity.to,
        "prefix": hex(&identity.prefix), "round": round,
        "position": optional(position), "begun": optional(begun), "new_bytes": new_bytes,
        "old_bytes": old_bytes, "changes": changes, "changes_before": changes_before,
        "loose": loose, "doubtful": doubtful, "is_done": is_done,
    });
    format!("{object:#}\n")
}

fn read(path: &Path, text: &str, identity: &CopyIdentity) -> Result<CopyProgress, Failure> {
    let unusable = |why: &str| {
        let name = path.display();
        Failure::usage(format!("{name}: {why}; name another folder with --state"))
    };
    let of = || unusable("state.json cannot be read");
    let object: Value = serde_json::from_str(text).map_err(|_| of())?;
    if object["format"] != json!(FORMAT) {
        return Err(unusable("state.json is of another release"));
    }
    let has_one_of = |name: &str, places: &[String]| {
        let known = object[name].as_array();
        known.is_some_and(|known| places.iter().any(|place| known.contains(&json!(place))))
    };
    if !has_one_of("from", &identity.from) || !has_one_of("to", &identity.to) {
        return Err(unusable("it belongs to a copy between other stores"));
    }
    if object["prefix"] != json!(hex(&identity.prefix)) {
        return Err(unusable("it belongs to a copy of another --prefix"));
    }
    let number = |name: &str| object[name].as_u64().ok_or_else(of);
    let key = |name: &str| match &object[name] {
        Value::Null => Ok(None),
        Value::String(digits) => unhex(digits).map(Some).ok_or_else(of),
        _ => Err(of()),
    };
    let list = |name: &str| object[name].as_array().ok_or_else(of);
    Ok(CopyProgress {
        round: number("round")?,
        position: key("position")?,
        begun: key("begun")?,
        new_bytes: number("new_bytes")?,
        old_bytes: number("old_bytes")?,
        changes: number("changes")?,
        changes_before: object["changes_before"].as_u64(),
        loose: list("loose")?
            .iter()
            .map(|value| entry_of(value).ok_or_else(of))
            .collect::<Result<Vec<CopiedKey>, Failure>>()?,
        doubtful: list("doubtful")?
            .iter()
            .map(|value| value.as_str().and_then(unhex).ok_or_else(of))
            .collect::<Result<Vec<Vec<u8>>, Failure>>()?,
        is_done: object["is_done"].as_bool().ok_or_else(of)?,
    })
}

fn entry_json(entry: &CopiedKey) -> Value {
    json!([
        hex(&entry.key),
        entry.from_tag,
        entry.to_tag,
        entry.expires_ms
    ])
}

fn entry_of(value: &Value) -> Option<CopiedKey> {
    Some(CopiedKey {
        key: unhex(value[0].as_str()?)?,
        from_tag: value[1].as_str()?.to_owned(),
        to_tag: value[2].as_str()?.to_owned(),
        expires_ms: value[3].as_u64()?,
    })
}

fn hex(bytes: &[u8]) -> String {
    let text = crate::encoding::Encoding::Hex.encode(bytes);
    text.into_iter().map(char::from).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let decoded = crate::encoding::Encoding::Hex.decode(text.as_bytes());
    decoded.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    fn any_entry() -> impl Strategy<Value = CopiedKey> {
        (legal::raw_key(), "\\PC{0,60}", "\\PC{0,60}", any::<u64>()).prop_map(
            |(key, from_tag, to_tag, expires_ms)| CopiedKey {
                key,
                from_tag,
                to_tag,
                expires_ms,
            },
        )
    }

    fn any_progress() -> impl Strategy<Value = CopyProgress> {
        let key = || prop::option::of(legal::raw_key());
        let lists = (
            prop::collection::vec(any_entry(), 0..4),
            prop::collection::vec(legal::raw_key(), 0..4),
        );
        let numbers = any::<([u64; 4], Option<u64>, bool)>();
        (key(), key(), lists, numbers).prop_map(
            |(position, begun, (loose, doubtful), (numbers, changes_before, is_done))| {
                let [round, new_bytes, old_bytes, changes] = numbers;
                CopyProgress {
                    round,
                    position,
                    begun,
                    new_bytes,
                    old_bytes,
                    changes,
                    changes_before,
                    loose,
                    doubtful,
                    is_done,
                }
            },
        )
    }

    proptest! {
        #![proptest_config(legal::cases(96))]

        #[test]
        fn any_legal_state_of_a_copy_is_read_as_it_was_written(
            progress in any_progress(), prefix in prop::option::of(legal::raw_key()),
        ) {
            let identity = identity("a:1", &prefix.unwrap_or_default());
            let page = page(&identity, &progress);
            let read = read(Path::new("state"), &page, &identity);
            prop_assert_eq!(read.map_err(|failure| failure.sentence), Ok(progress));
        }
    }

    fn identity(from: &str, prefix: &[u8]) -> CopyIdentity {
        CopyIdentity {
            from: vec![from.to_owned(), "b:1".to_owned()],
            to: vec!["c:1".to_owned()],
            prefix: prefix.to_vec(),
        }
    }

    #[test]
    fn a_copy_goes_on_where_it_was_and_no_other_one_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |from: &str, prefix: &[u8]| {
            StateFolder::open(folder.path(), identity(from, prefix)).map(|(state, begin)| {
                let progress = state.progress.clone();
                (state, begin, progress)
            })
        };
        let (mut state, begin, _) = open("a:1", b"p").expect("it is new");
        assert_eq!(begin, Begin::Fresh);
        state.progress.position = Some(b"\x00\xff".to_vec());
        state.progress.changes = 7;
        state.progress.doubtful = vec![b"\xfe".to_vec()];
        state.progress.loose = vec![CopiedKey {
            key: b"q".to_vec(),
            from_tag: "\"1\"".to_owned(),
            to_tag: String::new(),
            expires_ms: 5,
        }];
        state.save().expect("saved");
        assert!(open("a:1", b"p").is_err(), "one copy at a time");
        drop(state);
        let (mut state, begin, progress) = open("a:1", b"p").expect("it goes on");
        assert_eq!(begin, Begin::Resumed);
        assert_eq!(progress, state.progress);
        assert_eq!(progress.position.as_deref(), Some(&b"\x00\xff"[..]));
        state.next_round().expect("saved");
        assert_eq!(
            (state.progress.round, state.progress.changes_before),
            (1, Some(7))
        );
        drop(state);
        assert!(open("a:1", b"q").is_err(), "another prefix");
        let other = CopyIdentity {
            from: vec!["x:1".to_owned()],
            ..identity("a:1", b"p")
        };
        assert!(StateFolder::open(folder.path(), other).is_err());
        assert!(
            open("other-member:1", b"p").is_ok(),
            "one of the members is known"
        );
    }
}
