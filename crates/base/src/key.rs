//! Keys: raw bytes behind one byte that names their space.
//!
//! ```text
//! stored key   | space: 1 byte | raw key: 1 ..= 1024 bytes |      order = plain byte order
//! ```
//!
//! Invariants
//! 1. Stored keys sort by space first, so that one space is one contiguous range.
//! 2. A raw key is any bytes; no key is ever decoded lossily.
//!
//! Not here: partitions (a keyed hash, decided by the ring), percent-decoding (crate `wire`).

/// The purpose of a record. One byte in front of every stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Space {
    /// The node's own notes: never visible to clients.
    Meta = 0x01,
    /// Protocol state: promises and accepted proposals.
    Protocol = 0x02,
    /// Writes kept for another member until it is back.
    Hint = 0x03,
    /// Records of clients.
    User = 0x10,
}

impl Space {
    /// The byte in front of every key of this space.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The space that `byte` names, if it names one.
    pub const fn from_byte(byte: u8) -> Option<Space> {
        match byte {
            0x01 => Some(Space::Meta),
            0x02 => Some(Space::Protocol),
            0x03 => Some(Space::Hint),
            0x10 => Some(Space::User),
            _ => None,
        }
    }
}

/// An owned stored key: the space byte and the raw key behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Puts `raw` into `space`.
    pub fn new(space: Space, raw: &[u8]) -> Key {
        let mut stored = Vec::with_capacity(raw.len() + 1);
        stored.push(space.byte());
        stored.extend_from_slice(raw);
        Key(stored.into_boxed_slice())
    }

    /// A key of the space that clients see.
    pub fn user(raw: &[u8]) -> Key {
        Key::new(Space::User, raw)
    }

    /// The bytes as the engine sorts them: space byte, then raw key.
    pub fn as_stored(&self) -> &[u8] {
        &self.0
    }

    /// The bytes the client named.
    pub fn raw(&self) -> &[u8] {
        &self.0[1..]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.as_stored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_is_one_contiguous_range() {
        let mut keys = [
            Key::user(b""),
            Key::user(b"\xff\xff"),
            Key::new(Space::Meta, b"\xff"),
            Key::new(Space::Hint, b"a"),
        ];
        keys.sort();
        let spaces: Vec<u8> = keys.iter().map(|k| k.as_stored()[0]).collect();
        assert_eq!(spaces, [0x01, 0x03, 0x10, 0x10]);
        assert_eq!(keys[3].raw(), b"\xff\xff");
    }

    #[test]
    fn every_space_byte_reads_back() {
        for space in [Space::Meta, Space::Protocol, Space::Hint, Space::User] {
            assert_eq!(Space::from_byte(space.byte()), Some(space));
        }
        assert_eq!(Space::from_byte(0), None);
    }
}
