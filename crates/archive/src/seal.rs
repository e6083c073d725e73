//! The key of a repository: everything in it is encrypted, authenticated, and bound to its name.
//!
//! ```text
//! key file ─► 32 bytes ─HKDF─┬─► id, 8 bytes: told in clear, so that a wrong key has a sentence
//!                            ├─► names of objects
//!                            ├─► a key for each object: its salt, the name of its content
//!                            └─► a key for each manifest: its salt, the backup's name
//! a chunk: AES-256-GCM, nonce = kind u32, number u64; bound to the head of its file
//! ```
//!
//! Invariants
//! 1. No key seals two chunks under one nonce. Each file has a salt of 32 random bytes, and so a
//!    key of its own; each of its chunks has a number.
//! 2. A chunk that was changed, moved, left out, or taken from another file does not open.
//! 3. The key is shown nowhere.
//!
//! Not here: the content of the chunks (`object.rs`, `manifest.rs`), the file of a key (crate
//! `dendra`).
//! See: docs/format/backup.md, "Encryption".

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::io;

/// Random bytes in front of the sealed part of a file.
pub const SALT_BYTES: usize = 32;
/// The bytes that sealing adds to a chunk.
pub const TAG_BYTES: usize = 16;
/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedPart {
    /// The part of the content with this number.
    Part(u64),
    /// The end, after so many parts.
    End(u64),
}

/// The key of a repository.
#[derive(Clone)]
pub struct BackupKey {
    prk: Prk,
    id: u64,
}

impl fmt::Debug for BackupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackupKey({:016x})", self.id)
    }
}

struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl BackupKey {
    /// The key of these random bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> BackupKey {
        let prk = Salt::new(HKDF_SHA256, b"dendra backup key 1").extract(&bytes);
        let mut key = BackupKey { prk, id: 0 };
        key.id = u64::from_be_bytes(key.derive(&[b"id"]));
        key
    }

    /// Names the key, and does not reveal it.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn derive<const N: usize>(&self, info: &[&[u8]]) -> [u8; N] {
        let mut out = [0; N];
        let filled = self
            .prk
            .expand(info, Bytes(N))
            .and_then(|it| it.fill(&mut out));
        filled.expect("a few bytes can be derived");
        out
    }

    /// The name of the object with this content: the destination cannot guess the content by it.
    pub fn name_of(&self, content: u128) -> u128 {
        u128::from_be_bytes(self.derive(&[b"name", &content.to_be_bytes()]))
    }

    /// The key of one file: `of` names its purpose, and is part of the key.
    pub fn chunks(&self, salt: &[u8; SALT_BYTES], of: &[u8]) -> ChunkKey {
        let key: [u8; KEY_BYTES] = self.derive(&[b"chunks", salt, of]);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the right length");
        ChunkKey(LessSafeKey::new(key))
    }
}

/// The key of one file.
pub struct ChunkKey(LessSafeKey);

impl fmt::Debug for ChunkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkKey")
    }
}

impl ChunkKey {
    fn nonce(chunk: SealedPart) -> Nonce {
        let (kind, number) = match chunk {
            SealedPart::Part(number) => (0u32, number),
            SealedPart::End(number) => (1, number),
        };
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&kind.to_le_bytes());
        nonce[4..].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals a chunk in its place. Requires: each chunk is sealed once.
    pub fn seal(&self, chunk: SealedPart, head: &[u8], bytes: &mut Vec<u8>) {
        let sealed =
            self.0
                .seal_in_place_append_tag(ChunkKey::nonce(chunk), Aad::from(head), bytes);
        sealed.expect("a chunk is not longer than the cipher allows");
    }

    /// Opens it in its place; `None` when it is not the chunk that was sealed.
    pub fn open<'a>(
        &self,
        chunk: SealedPart,
        head: &[u8],
        bytes: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let nonce = ChunkKey::nonce(chunk);
        let opened = self.0.open_in_place(nonce, Aad::from(head), bytes);
        opened.ok().map(|it| &*it)
    }
}

/// Random bytes of the system.
///
/// # Errors
/// The system has none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("no randomness from the system"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_opens_in_its_own_place_alone() {
        let key = BackupKey::new([7; KEY_BYTES]);
        let salt = [9; SALT_BYTES];
        let chunks = key.chunks(&salt, b"object 5");
        let mut sealed = b"a chunk".to_vec();
        chunks.seal(SealedPart::Part(3), b"head", &mut sealed);
        assert_eq!(sealed.len(), 7 + TAG_BYTES);
        let open = |key: &ChunkKey, chunk, head: &[u8]| {
            let mut sealed = sealed.clone();
            key.open(chunk, head, &mut sealed).map(<[u8]>::to_vec)
        };
        assert_eq!(
            open(&chunks, SealedPart::Part(3), b"head"),
            Some(b"a chunk".to_vec())
        );
        assert_eq!(open(&chunks, SealedPart::Part(2), b"head"), None);
        assert_eq!(open(&chunks, SealedPart::End(3), b"head"), None);
        assert_eq!(open(&chunks, SealedPart::Part(3), b"tail"), None);
        assert_eq!(
            open(
                &key.chunks(&salt, b"object 6"),
                SealedPart::Part(3),
                b"head"
            ),
            None
        );
        assert_eq!(
            open(
                &key.chunks(&[8; 32], b"object 5"),
                SealedPart::Part(3),
                b"head"
            ),
            None
        );
        let other = BackupKey::new([8; KEY_BYTES]);
        assert_eq!(
            open(
                &other.chunks(&salt, b"object 5"),
                SealedPart::Part(3),
                b"head"
            ),
            None
        );
        assert_ne!(other.id(), key.id());
        assert_ne!(key.name_of(5), key.name_of(6));
        assert_ne!(key.name_of(5), 5);
    }

    /// A repository of today opens for ever: all that is derived from a key stays as it is.
    #[test]
    fn what_is_derived_from_a_key_never_changes() {
        let key = BackupKey::new(std::array::from_fn(|at| at as u8));
        let mut sealed = b"content".to_vec();
        let chunks = key.chunks(&[1; SALT_BYTES], b"of");
        chunks.seal(SealedPart::End(2), b"head", &mut sealed);
        let found = format!(
            "{:016x} {:032x} {}",
            key.id(),
            key.name_of(1),
            sealed
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        );
        assert_eq!(
            found,
            "42c83b30b47ce973 9b730152ddd153e423f91c3da3c1d22a \
             2d841a24934ab0382146d90b8715bb78252b07359a886a"
        );
    }
}
