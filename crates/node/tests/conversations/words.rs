//! The words in which a conversation is written down.
//!
//! Not here: the events in it (`main.rs`).

use super::{Stage, name, text};
use dendra_base::clock::CLOCK_MIN;
use dendra_base::peer::{Answer, Ask, Ballot, Readiness};
use dendra_base::{Cell, Key, Kind, Space, Version};
use dendra_node::Outcome;
use dendra_ownership::MemberIndex;
use dendra_watch::WatchEvent;
use std::fmt::Write;

impl Stage {
    pub(crate) fn line(&mut self, line: &str) {
        writeln!(self.log, "{line}").expect("a string takes everything");
    }

    pub(crate) fn version(&mut self, version: Version) -> String {
        // A version that was created without a base has its author's clock in the upper bits of
        // `rmw`, too.
        let line = if version.hlc < CLOCK_MIN {
            version.rmw >> 24 << 24
        } else {
            0
        };
        let follows = match version.rmw - line {
            0 => String::new(),
            steps => format!(".{steps}"),
        };
        let first = Version {
            rmw: line,
            ..version
        };
        let known = self.versions.iter().position(|known| *known == first);
        let number = known.unwrap_or_else(|| {
            self.versions.push(first);
            self.versions.len() - 1
        });
        format!("v{}{follows}", number + 1)
    }

    pub(crate) fn ballot(&mut self, ballot: Ballot) -> String {
        let known = self.ballots.iter().position(|known| *known == ballot);
        let number = known.unwrap_or_else(|| {
            self.ballots.push(ballot);
            self.ballots.len() - 1
        });
        format!("b{}", number + 1)
    }

    pub(crate) fn cell(&mut self, cell: &Cell) -> String {
        let version = self.version(cell.version);
        match cell.kind {
            Kind::Tombstone => format!("{version} deleted"),
            Kind::Value => format!("{version} {:?}", text(&cell.value)),
        }
    }

    pub(crate) fn record(&mut self, key: &Key, cell: &Cell) -> String {
        match Space::from_byte(key.as_stored()[0]) {
            Some(Space::User) => format!("{} = {}", text(key.raw()), self.cell(cell)),
            Some(Space::Hint) => {
                let to = (0..self.sites.len()).find(|at| {
                    let mut hasher =
                        siphasher::sip::SipHasher13::new_with_key(&self.topology.hash_key());
                    let member = MemberIndex(u8::try_from(*at).expect("few members"));
                    std::hash::Hasher::write(
                        &mut hasher,
                        self.topology.member(member).url.as_bytes(),
                    );
                    key.raw()
                        .starts_with(&std::hash::Hasher::finish(&hasher).to_be_bytes())
                });
                let to = to.map_or('?', name);
                match cell.kind {
                    Kind::Tombstone => {
                        format!("no hint for {to} any more: {}", text(&key.raw()[8..]))
                    }
                    Kind::Value => {
                        let hinted = dendra_base::CellRef::decode(&cell.value)
                            .expect("a cell")
                            .to_owned();
                        format!(
                            "hint for {to}: {} = {}",
                            text(&key.raw()[8..]),
                            self.cell(&hinted)
                        )
                    }
                }
            }
            _ => format!("protocol of {}, {}", text(key.raw()), cell.version.hlc),
        }
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> String {
        match ask {
            Ask::Clock => "clock?".to_owned(),
            Ask::Read { key, known: None } => format!("read {}?", text(key)),
            Ask::Read {
                key,
                known: Some(known),
            } => {
                let known = self.version(known.version);
                format!("read {}, I have {known}?", text(key))
            }
            Ask::Write { key, cell } => format!("write {} = {}", text(key), self.cell(cell)),
            Ask::Prepare { key, ballot } => {
                format!("prepare {} {}", text(key), self.ballot(*ballot))
            }
            Ask::Accept { key, proposal } => {
                let (ballot, author) = (self.ballot(proposal.ballot), self.ballot(proposal.author));
                let cell = self.cell(&proposal.cell);
                let of = if ballot == author {
                    String::new()
                } else {
                    format!(" of {author}")
                };
                format!("accept {} {ballot}{of}: {cell}", text(key))
            }
            Ask::Page { range, .. } => format!("page from {}?", text(&range.start)),
            Ask::Compare { space, ranges, .. } => {
                format!("compare {} ranges of {space:?}?", ranges.len())
            }
            Ask::List { space, start, .. } => format!("list {space:?} from {:?}?", text(start)),
            Ask::Foreground => "foreground?".to_owned(),
            Ask::Changes { cursor, .. } => match cursor {
                None => "where do changes end?".to_owned(),
                Some(cursor) => format!("changes from {}?", cursor.next),
            },
            Ask::Load { space, start, .. } => format!("load {space:?} from {:?}?", text(start)),
        }
    }

    pub(crate) fn event(&mut self, event: &WatchEvent) -> String {
        match event {
            WatchEvent::Put {
                key,
                version,
                value,
                ..
            } => {
                let version = self.version(*version);
                format!("{} = {version} {:?}", text(key), text(value))
            }
            WatchEvent::Delete { key, version } => {
                format!("{} was deleted by {}", text(key), self.version(*version))
            }
            WatchEvent::Expire { key, version } => {
                format!("{} of {} has ended", text(key), self.version(*version))
            }
            WatchEvent::Live => "live".to_owned(),
            WatchEvent::Heartbeat => "heartbeat".to_owned(),
            WatchEvent::Reset => "reset".to_owned(),
            WatchEvent::End { reason } => format!("the end: {reason:?}"),
        }
    }

    pub(crate) fn answer(&mut self, answer: &Answer) -> String {
        match answer {
            Answer::Clock { readiness, .. } => match readiness {
                Readiness::Ready => "clock".to_owned(),
                Readiness::Behind => "clock, and it is behind".to_owned(),
                Readiness::DiskFull => "clock, and its disk is full".to_owned(),
                Readiness::DiskAndMemoryFull => "clock, and disk and memory are full".to_owned(),
            },
            Answer::Cell(None) => "nothing".to_owned(),
            Answer::Cell(Some(cell)) => self.cell(cell),
            Answer::Same => "the same".to_owned(),
            Answer::Written(version) => format!("written {}", self.version(*version)),
            Answer::Promised { stored, accepted } => {
                let stored = stored
                    .as_ref()
                    .map_or("nothing".to_owned(), |cell| self.cell(cell));
                let accepted = accepted.as_ref().map(|accepted| {
                    let (ballot, author) =
                        (self.ballot(accepted.ballot), self.ballot(accepted.author));
                    let version = self.version(accepted.cell.version);
                    format!(", accepted {version} of {author} under {ballot}")
                });
                format!("promised, has {stored}{}", accepted.unwrap_or_default())
            }
            Answer::Accepted => "accepted".to_owned(),
            Answer::Outbid { promised, .. } => format!("outbid by {}", self.ballot(*promised)),
            Answer::Page { records, rest } => format!(
                "{} records{}",
                records.len(),
                if rest.is_some() { ", more" } else { "" }
            ),
            Answer::Loaded { records, next } => format!(
                "{} records loaded{}",
                records.len(),
                if next.is_some() { ", more" } else { "" }
            ),
            Answer::Foreground(_) => "foreground".to_owned(),
            Answer::Changes {
                cursor, changes, ..
            } => {
                let keys: String = changes
                    .iter()
                    .map(|change| format!(" {}", text(&change.key)))
                    .collect();
                format!("changes up to {}:{keys}", cursor.next)
            }
            Answer::ChangesGone { .. } => "those changes are gone".to_owned(),
            Answer::Compared { looked, differing } => {
                format!("{differing:?} of {looked} ranges differ")
            }
            Answer::Listed { records, next } => format!(
                "{} records listed{}",
                records.len(),
                if next.is_some() { ", more" } else { "" }
            ),
            Answer::Refused(refused) => format!("refused: {refused:?}"),
        }
    }

    pub(crate) fn outcome(&mut self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Found { version, .. } => format!("found {}", self.version(*version)),
            Outcome::Stored { version } => format!("stored {}", self.version(*version)),
            Outcome::Deleted { version } => format!("deleted {}", self.version(*version)),
            Outcome::Touched { version, .. } => format!("touched {}", self.version(*version)),
            Outcome::ConditionFailed {
                current: Some(version),
            } => {
                format!("condition failed, it is {}", self.version(*version))
            }
            Outcome::ConditionFailed { current: None } => {
                "condition failed, there is nothing".to_owned()
            }
            Outcome::NotEnough {
                got,
                needed,
                from,
                known,
                refused,
            } => {
                let known = known.as_str();
                let refused =
                    refused.map(|(by, why)| format!(", {} refused: {why:?}", name(by.at())));
                let refused = refused.unwrap_or_default();
                format!("not enough, {got} of {from} and {needed} are needed, {known}{refused}")
            }
            Outcome::Unreachable {
                up,
                needed,
                from,
                missing,
            } => {
                let missing = name(missing.at());
                format!(
                    "{up} of {from} can be reached and {needed} are needed: no link to {missing}"
                )
            }
            other => format!("{other:?}"),
        }
    }
}
