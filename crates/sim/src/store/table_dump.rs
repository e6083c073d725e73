//! The text of `dendra dump` of a table, read back: blocks, and records of clients.
//!
//! Invariants
//! 1. A line that is none of a block or of a client's record is left out.
//!
//! Not here: writing the text (crate `engine`, `dump.rs`).

/// A table as its dump has it: keys and versions as text, in their order.
#[derive(Debug, Default)]
pub struct TableDump {
    /// The first stored key, of any space.
    pub smallest: String,
    /// The data blocks.
    pub blocks: Vec<DumpedBlock>,
    /// The records of clients, as many as were dumped.
    pub records: Vec<DumpedRecord>,
}

/// A data block.
#[derive(Debug)]
pub struct DumpedBlock {
    /// Where it begins in the file.
    pub offset: u64,
    /// Length of the block in the file.
    pub bytes: u64,
    /// Last key of the block, or a separator after that.
    pub up_to: String,
}

/// A record of a client.
#[derive(Debug)]
pub struct DumpedRecord {
    /// The stored key.
    pub key: String,
    /// The version: equal lengths, so that texts order as versions do.
    pub version: String,
    /// Is it a tombstone?
    pub is_delete: bool,
}

impl DumpedBlock {
    /// Does it end with a key of clients?
    pub fn is_of_clients(&self) -> bool {
        is_of_clients(&self.up_to)
    }
}

impl TableDump {
    /// Blocks between whose keys lie keys of clients alone, each with the records in it.
    pub fn blocks_of_clients(&self) -> Vec<(&DumpedBlock, Vec<&DumpedRecord>)> {
        let (mut above, mut found) = (&self.smallest, Vec::new());
        for block in &self.blocks {
            if is_of_clients(above) && block.is_of_clients() {
                let is_first = *above == self.smallest;
                let is_in = |it: &&DumpedRecord| {
                    (it.key > *above || is_first && it.key == *above) && it.key <= block.up_to
                };
                found.push((block, self.records.iter().filter(is_in).collect()));
            }
            above = &block.up_to;
        }
        found
    }

    /// Reads the text of a dump; `None` when a number in it cannot be read.
    pub fn read(text: &str) -> Option<TableDump> {
        let mut dump = TableDump::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [
                    "block",
                    bytes,
                    "bytes",
                    "at",
                    offset,
                    "newest",
                    _,
                    "up",
                    "to",
                    up_to,
                ] => {
                    dump.blocks.push(DumpedBlock {
                        offset: offset.trim_end_matches(',').parse().ok()?,
                        bytes: bytes.parse().ok()?,
                        up_to: up_to.to_owned(),
                    });
                }
                ["smallest", smallest] => dump.smallest = smallest.to_owned(),
                [key, version, "copies", _, kind, ..] if is_of_clients(key) => {
                    dump.records.push(DumpedRecord {
                        key: key.to_owned(),
                        version: version.to_owned(),
                        is_delete: kind.starts_with("tombstone"),
                    });
                }
                _ => {}
            }
        }
        Some(dump)
    }
}

/// Is it the text of a stored key in the space of clients?
fn is_of_clients(key: &str) -> bool {
    key.starts_with("\\x10")
}
