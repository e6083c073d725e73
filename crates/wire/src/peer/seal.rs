//! The checksum that ends a frame: keyed, where the cluster has a secret.
//!
//! ```text
//! without a secret   xxh3-64 of the frame                                       8 bytes
//! with a secret      HMAC-SHA256(key, count u64 | frame), its first half       16 bytes
//!   key    HMAC-SHA256(secret, "dendra-peer/2 frames" | role of the sender | length | asker's hello | length | acceptor's hello)
//!   count  frames that the sender sealed before on this link; 2^64 - 1 over plain HTTP, where requests come in any order
//! ```
//!
//! Invariants
//! 1. Both hellos hold fresh nonces, so a key is of one handshake, and each side has its own. A
//!    frame of another link, or one that is sent back to its maker, does not fit.
//! 2. On a link a frame that was left out, repeated or moved does not fit, nor does any after it.
//! 3. Checksums are compared in constant time.
//!
//! Not here: secrecy: frames are readable on the wire, see SECURITY.md.
//! See: docs/peer.md, section "Frames are authenticated"; RFC 2104.

use super::proof::{Role, keyed};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a checksum without a key.
pub(super) const PLAIN_BYTES: usize = 8;
/// Bytes of a checksum with a key.
const KEYED_BYTES: usize = 16;
/// In place of a count, where frames come in any order.
const UNCOUNTED: u64 = u64::MAX;

/// Makes, or checks, the checksums of the frames that one side sends.
#[derive(Clone)]
pub struct Seal(Option<Keyed>);

#[derive(Clone)]
struct Keyed {
    mac: Hmac<Sha256>,
    count: u64,
}

impl Seal {
    /// Without a key: finds accidents, not attackers.
    pub fn plain() -> Seal {
        Seal(None)
    }

    /// How long a checksum is.
    pub(super) fn bytes(&self) -> usize {
        match self.0 {
            None => PLAIN_BYTES,
            Some(_) => KEYED_BYTES,
        }
    }

    /// Appends the checksum of the frame that begins at `start`.
    pub(super) fn put(&mut self, out: &mut Vec<u8>, start: usize) {
        match &mut self.0 {
            None => {
                let checksum = xxh3_64(&out[start..]);
                out.extend_from_slice(&checksum.to_le_bytes());
            }
            Some(keyed) => {
                let tag = keyed.next(&out[start..]).finalize().into_bytes();
                out.extend_from_slice(&tag[..KEYED_BYTES]);
            }
        }
    }

    /// Is `checksum` that of `frame`, which came next?
    pub(super) fn fits(&mut self, frame: &[u8], checksum: &[u8]) -> bool {
        match &mut self.0 {
            None => checksum == xxh3_64(frame).to_le_bytes(),
            Some(keyed) => {
                checksum.len() == KEYED_BYTES
                    && keyed.next(frame).verify_truncated_left(checksum).is_ok()
            }
        }
    }
}

impl Keyed {
    fn next(&mut self, frame: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&self.count.to_le_bytes());
        mac.update(frame);
        if self.count != UNCOUNTED {
            self.count += 1;
        }
        mac
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "Seal(plain)",
            Some(_) => "Seal(keyed)",
        })
    }
}

/// The keys of one handshake; none, where the cluster has no secret.
#[derive(Clone)]
pub struct SessionKeys(Option<Box<Pair>>);

#[derive(Clone)]
struct Pair {
    asker: Hmac<Sha256>,
    acceptor: Hmac<Sha256>,
}

impl SessionKeys {
    /// From the secret and both hellos as they were sent.
    pub fn new(secret: Option<&[u8]>, asker: &str, acceptor: &str) -> SessionKeys {
        let key = |of_cluster, role| {
            let key = keyed(of_cluster, b"dendra-peer/2 frames", role, asker, acceptor);
            let key = key.finalize().into_bytes();
            Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length")
        };
        SessionKeys(secret.map(|secret| {
            Box::new(Pair {
                asker: key(secret, Role::Asker),
                acceptor: key(secret, Role::Acceptor),
            })
        }))
    }

    /// Seal of the frames that `sender` sends over a link, from the first on.
    pub fn of_link(&self, sender: Role) -> Seal {
        self.seal(sender, 0)
    }

    /// Seal of the frames that `sender` sends over plain HTTP, in any order.
    pub fn of_requests(&self, sender: Role) -> Seal {
        self.seal(sender, UNCOUNTED)
    }

    fn seal(&self, sender: Role, count: u64) -> Seal {
        Seal(self.0.as_deref().map(|pair| Keyed {
            mac: match sender {
                Role::Asker => pair.asker.clone(),
                Role::Acceptor => pair.acceptor.clone(),
            },
            count,
        }))
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are not shown.
        f.write_str("SessionKeys")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Malformed, Message, decode, encode_alive, encode_probe};
    use super::*;
    use bytes::Bytes;

    fn keys(secret: &[u8]) -> SessionKeys {
        SessionKeys::new(Some(secret), "asker", "acceptor")
    }

    fn probe(seal: &mut Seal, id: u64) -> Bytes {
        let mut out = Vec::new();
        encode_probe(&mut out, seal, id);
        out.into()
    }

    #[test]
    fn a_frame_that_is_changed_repeated_left_out_or_moved_does_not_fit() {
        let sent = || {
            let mut seal = keys(b"secret").of_link(Role::Asker);
            [
                probe(&mut seal, 1),
                probe(&mut seal, 2),
                probe(&mut seal, 3),
            ]
        };
        let read = |order: &[usize]| {
            let mut seal = keys(b"secret").of_link(Role::Asker);
            let frames = sent();
            let read = order.iter().map(|at| decode(&frames[*at], &mut seal));
            read.collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(read(&[0, 1, 2]).map(|read| read.len()), Ok(3));
        for order in [&[0, 0][..], &[1], &[0, 2], &[0, 1, 1]] {
            assert_eq!(read(order), Err(Malformed::Checksum), "{order:?}");
        }
        let [frame, ..] = sent();
        for at in 4..frame.len() {
            let mut bent = frame.to_vec();
            bent[at] ^= 1;
            let read = decode(&bent.into(), &mut keys(b"secret").of_link(Role::Asker));
            assert!(read.is_err(), "{at}");
        }
    }

    #[test]
    fn a_frame_fits_its_secret_its_handshake_and_its_sender_only() {
        let frame = probe(&mut keys(b"secret").of_link(Role::Asker), 7);
        let other = |asker, acceptor| SessionKeys::new(Some(b"secret"), asker, acceptor);
        for (mut seal, fits) in [
            (keys(b"secret").of_link(Role::Asker), true),
            (keys(b"secret").of_link(Role::Acceptor), false),
            (keys(b"secret").of_requests(Role::Asker), false),
            (keys(b"Secret").of_link(Role::Asker), false),
            (other("asker2", "acceptor").of_link(Role::Asker), false),
            (other("aske", "racceptor").of_link(Role::Asker), false),
            (Seal::plain(), false),
        ] {
            assert_eq!(decode(&frame, &mut seal).is_ok(), fits);
        }
        let plain = probe(&mut Seal::plain(), 7);
        let mut seal = keys(b"secret").of_link(Role::Asker);
        assert!(decode(&plain, &mut seal).is_err(), "a frame without a key");
        let none = SessionKeys::new(None, "asker", "acceptor");
        assert_eq!(probe(&mut none.of_link(Role::Asker), 7), plain);
    }

    #[test]
    fn over_plain_http_frames_come_in_any_order() {
        let keys = keys(b"secret");
        let frames = [1, 2].map(|id| {
            let mut out = Vec::new();
            encode_alive(&mut out, &mut keys.of_requests(Role::Acceptor), id);
            Bytes::from(out)
        });
        for at in [1, 0, 1] {
            let read = decode(&frames[at], &mut keys.of_requests(Role::Acceptor));
            assert_eq!(read, Ok(Message::Alive { id: at as u64 + 1 }));
        }
    }
}
