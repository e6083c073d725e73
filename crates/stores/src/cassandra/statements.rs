//! The statements that requests of clients become: each server prepares each of them once.
//!
//! Invariants
//! 1. A statement's text is the same for every request: values alone differ. So the number of
//!    prepared statements is the number of `CqlOrder`s, here and in Cassandra.
//!
//! Not here: statements of the start, which are sent as text (`mod.rs`); levels (`session.rs`).

/// A statement, by its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum CqlOrder {
    /// Shows the record of a key.
    Show,
    /// Shows the records of some keys.
    ShowMany,
    /// Shows the versions of some keys, and whether there are values.
    ShowMarks,
    /// Notes a key for scans.
    List,
    /// Shows which of some sections list a key.
    Listed,
    /// Takes a key out of some sections of the list.
    Unlist,
    /// Writes a record where none is.
    Create,
    /// Writes a record over one version.
    Replace,
    /// Writes a mark over one version of a record.
    Delete,
    /// Writes a mark where no record is.
    MarkAbsence,
    /// Shows the next splits of sections.
    Splits,
    /// Writes the next split.
    Split,
    /// Shows the next keys of some partitions.
    Keys,
    /// Shows the keys below an end.
    KeysTo,
    /// From the end.
    KeysBack,
    /// From an end that is given.
    KeysBackTo,
}

impl CqlOrder {
    pub(super) const ALL: [CqlOrder; 16] = [
        CqlOrder::Show,
        CqlOrder::ShowMany,
        CqlOrder::ShowMarks,
        CqlOrder::List,
        CqlOrder::Listed,
        CqlOrder::Unlist,
        CqlOrder::Create,
        CqlOrder::Replace,
        CqlOrder::Delete,
        CqlOrder::MarkAbsence,
        CqlOrder::Splits,
        CqlOrder::Split,
        CqlOrder::Keys,
        CqlOrder::KeysTo,
        CqlOrder::KeysBack,
        CqlOrder::KeysBackTo,
    ];

    /// The one for keys of a range.
    pub(super) fn keys(has_end: bool, is_reverse: bool) -> CqlOrder {
        match (has_end, is_reverse) {
            (false, false) => CqlOrder::Keys,
            (true, false) => CqlOrder::KeysTo,
            (false, true) => CqlOrder::KeysBack,
            (true, true) => CqlOrder::KeysBackTo,
        }
    }

    /// Text of the statement; `KS` stands for the keyspace. An update leaves no row whose cells
    /// have ended; an insertion would.
    pub(super) fn text(self) -> &'static str {
        match self {
            CqlOrder::Show => "SELECT version, value FROM KS.records WHERE key = ?",
            CqlOrder::ShowMany => "SELECT key, version, value FROM KS.records WHERE key IN ?",
            CqlOrder::ShowMarks => {
                "SELECT key, version, WRITETIME(value) FROM KS.records WHERE key IN ?"
            }
            CqlOrder::List => {
                "INSERT INTO KS.keys (section, bucket, key) VALUES (?, ?, ?) USING TIMESTAMP ?"
            }
            CqlOrder::Listed => {
                "SELECT section FROM KS.keys WHERE section IN ? AND bucket = ? AND key = ?"
            }
            CqlOrder::Unlist => {
                "DELETE FROM KS.keys USING TIMESTAMP ? WHERE section IN ? AND bucket = ? AND key = ?"
            }
            CqlOrder::Create => {
                "UPDATE KS.records USING TTL ? SET version = ?, value = ? WHERE key = ? IF version = null"
            }
            CqlOrder::Replace => {
                "UPDATE KS.records USING TTL ? SET version = ?, value = ? WHERE key = ? IF version = ?"
            }
            CqlOrder::Delete => {
                "UPDATE KS.records USING TTL ? SET version = ?, value = null WHERE key = ? IF version = ?"
            }
            CqlOrder::MarkAbsence => {
                "UPDATE KS.records USING TTL ? SET version = ?, value = null WHERE key = ? IF version = null"
            }
            CqlOrder::Splits => {
                "SELECT split, section, bounds, made_ms FROM KS.splits WHERE one = 1 AND split > ? LIMIT ?"
            }
            CqlOrder::Split => {
                "INSERT INTO KS.splits (one, split, section, bounds, made_ms) VALUES (1, ?, ?, ?, ?) \
                 IF NOT EXISTS"
            }
            CqlOrder::Keys => {
                "SELECT section, bucket, key FROM KS.keys WHERE section IN ? AND bucket IN ? \
                 AND key >= ? PER PARTITION LIMIT ?"
            }
            CqlOrder::KeysTo => {
                "SELECT section, bucket, key FROM KS.keys WHERE section IN ? AND bucket IN ? \
                 AND key >= ? AND key < ? PER PARTITION LIMIT ?"
            }
            CqlOrder::KeysBack => {
                "SELECT section, bucket, key FROM KS.keys WHERE section IN ? AND bucket IN ? \
                 AND key >= ? ORDER BY key DESC PER PARTITION LIMIT ?"
            }
            CqlOrder::KeysBackTo => {
                "SELECT section, bucket, key FROM KS.keys WHERE section IN ? AND bucket IN ? \
                 AND key >= ? AND key < ? ORDER BY key DESC PER PARTITION LIMIT ?"
            }
        }
    }
}

/// A text with `KS.` in it, for one keyspace.
pub(super) fn in_keyspace(text: &str, keyspace: &str) -> String {
    text.replace("KS.", &format!("{keyspace}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_stands_at_its_own_place_and_names_the_keyspace() {
        for (at, order) in CqlOrder::ALL.into_iter().enumerate() {
            assert_eq!(order as usize, at, "{order:?}");
            let text = in_keyspace(order.text(), "house");
            assert!(text.contains("house.") && !text.contains("KS"), "{text}");
        }
    }
}
