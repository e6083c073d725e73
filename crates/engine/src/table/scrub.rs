//! One part of a table as the disk has it, and its damaged spots.
//!
//! ```text
//! part i      filter, index and data blocks of partition i
//! last part   top index, properties, footer
//! ```
//!
//! Invariants
//! 1. Reads go past the caches and leave them as they were.
//! 2. Damage is a spot, never an error.
//! 3. A block without a spot shows all its records, and each value is as its writer stored it.
//!
//! Not here: the walk through a partition (`walk.rs`), which part is read when
//! (`engine/src/scrub/`), sums over all of a table (`verify.rs`).
//! See: docs/operating.md, "Damage".

use super::Table;
use super::reader::read_end;
use super::walk::{Flaw, ScrubRead, TableWalk, WalkOptions};
use crate::vfs::PastCache;
use crate::{Error, Result};

impl Table {
    /// How many parts it has.
    pub(crate) fn scrub_parts(&self) -> usize {
        self.top.len() + 1
    }

    /// Reads part `part` and adds its damaged spots to `spots`. An error says that the disk could
    /// not be asked.
    pub(crate) fn scrub_part(
        &self,
        part: usize,
        read: &mut ScrubRead,
        spots: &mut Vec<Flaw>,
    ) -> Result<()> {
        if part < self.top.len() {
            let mut walk = TableWalk::new(part..part + 1, WalkOptions::SCRUB);
            let mut on_flaw = |flaw| {
                spots.push(flaw);
                Ok(())
            };
            let done = loop {
                match walk.next(self, &mut |_, _| Ok(()), &mut on_flaw) {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            read.bytes += walk.read.bytes;
            read.blocks += walk.read.blocks;
            return done;
        }
        let file = PastCache(&*self.file);
        let offset = self.footer.top.offset;
        read.bytes += self.meta.bytes - offset;
        let found = read_end(&file, &self.name(), Some(self.meta.id));
        let damage = match found {
            Ok(end) => {
                let difference = self.meta.difference(&end.meta);
                difference.map(|difference| (offset, difference))
            }
            Err(Error::Damaged {
                offset: at, reason, ..
            }) => Some((at, reason)),
            Err(Error::Unusable { reason }) => Some((offset, reason)),
            Err(error) => return Err(error),
        };
        spots.extend(damage.map(|(at, reason)| Flaw {
            offset: at,
            span: None,
            reason,
        }));
        Ok(())
    }
}
