//! Proof that a member knows the cluster's secret, without saying it.
//!
//! ```text
//! proof = HMAC-SHA256(secret, "dendra-peer/2 proof" | role | length | asker's hello | length | acceptor's hello)
//!   the asker's is the first frame behind the 101; the acceptor's are the checksums of its frames (`seal.rs`)
//! ```
//!
//! Invariants
//! 1. Each side's hello holds a fresh nonce, so a proof is of use in one handshake only.
//! 2. The role is a part of the proof: one that is sent back to its maker is no proof.
//! 3. Proofs are compared in constant time.
//!
//! 4. A stranger gets none: the asker proves first, and the acceptor sends no byte made with the
//!    secret before.
//!
//! Not here: the keys of the frames that follow (`seal.rs`); their secrecy: see SECURITY.md.
//! See: docs/peer.md, section "Secret"; RFC 2104.

use dendra_base::hex;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The maker of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The member that opened the connection.
    Asker,
    /// The member that answered.
    Acceptor,
}

/// Sixteen bytes that were never used before, from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 16]);

/// The keyed hash over both hellos.
#[derive(Clone, PartialEq, Eq)]
pub struct Proof([u8; Proof::BYTES]);

impl Proof {
    /// Length of a proof.
    pub const BYTES: usize = 32;

    /// The proof of `role` over both hellos as they were sent.
    pub fn new(secret: &[u8], role: Role, asker: &str, acceptor: &str) -> Proof {
        Proof(
            keyed(secret, PROOF, role, asker, acceptor)
                .finalize()
                .into_bytes()
                .into(),
        )
    }

    /// Does this prove that the member in `role` knows `secret`? In constant time.
    pub fn holds(&self, secret: &[u8], role: Role, asker: &str, acceptor: &str) -> bool {
        keyed(secret, PROOF, role, asker, acceptor)
            .verify_slice(&self.0)
            .is_ok()
    }

    /// For a frame or a header.
    pub fn as_bytes(&self) -> &[u8; Proof::BYTES] {
        &self.0
    }

    /// Reads the text of `Display`.
    pub fn from_hex(text: &[u8]) -> Option<Proof> {
        unhex(text).map(Proof)
    }
}

const PROOF: &[u8] = b"dendra-peer/2 proof";

/// The keyed hash over a purpose, a role and both hellos.
pub(super) fn keyed(
    secret: &[u8],
    purpose: &[u8],
    role: Role,
    asker: &str,
    acceptor: &str,
) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(purpose);
    mac.update(match role {
        Role::Asker => b"asker",
        Role::Acceptor => b"accpt",
    });
    for hello in [asker, acceptor] {
        mac.update(&(hello.len() as u64).to_le_bytes());
        mac.update(hello.as_bytes());
    }
    mac
}

/// Exactly `2 * N` hexadecimal digits to bytes.
pub(super) fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = hex::pair(pair[0], pair[1])?;
    }
    Some(out)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl From<[u8; Proof::BYTES]> for Proof {
    fn from(bytes: [u8; Proof::BYTES]) -> Proof {
        Proof(bytes)
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_its_role_and_its_hellos_only() {
        let proof = Proof::new(b"secret", Role::Asker, "a", "b");
        assert!(proof.holds(b"secret", Role::Asker, "a", "b"));
        assert!(!proof.holds(b"Secret", Role::Asker, "a", "b"));
        assert!(!proof.holds(b"secret", Role::Acceptor, "a", "b"));
        assert!(!proof.holds(b"secret", Role::Asker, "b", "a"));
        assert!(!proof.holds(b"secret", Role::Asker, "ab", ""));
        assert!(!proof.holds(b"", Role::Asker, "a", "b"));
    }

    #[test]
    fn the_text_of_a_proof_reads_back() {
        let proof = Proof::new(b"secret", Role::Acceptor, "a", "b");
        assert_eq!(Proof::from_hex(proof.to_string().as_bytes()), Some(proof));
        assert_eq!(Proof::from_hex(b"00"), None);
        assert_eq!(Proof::from_hex(&[b'g'; 64]), None);
    }
}
