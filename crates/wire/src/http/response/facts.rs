//! The facts of an answer and their text, for heads and for lines alike.
//!
//! Invariants
//! 1. A text stands the same wherever it is shown.
//!
//! Not here: whole answers (`mod.rs`), lines of a batch (`http/lines.rs`).

use crate::refusal::Known;
use dendra_base::{Consistency, Durability, Version};

/// The achievement: the text of `Dendra-Receipt` after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Replicas that answered.
    pub acks: u8,
    /// Replicas that were addressed.
    pub from: u8,
    /// The promise that stands behind the number of answers.
    pub level: Consistency,
    /// How durable the copies are.
    pub durability: Durability,
}

/// A live value's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Version of the value.
    pub version: Version,
    /// Wall milliseconds of its expiry, if it has one.
    pub expiry_ms: Option<u64>,
    /// The achievement.
    pub receipt: Receipt,
}

/// Appends the text of a version.
pub(in crate::http) fn version_text(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&sixteen_digits(version.hlc));
    out.push(b'-');
    hexadecimal(out, version.origin);
    out.push(b'-');
    hexadecimal(out, version.rmw);
}

/// Appends the text of a receipt.
pub(in crate::http) fn receipt_text(out: &mut Vec<u8>, receipt: Receipt) {
    out.extend_from_slice(b"acks=");
    decimal(out, u64::from(receipt.acks));
    out.push(b'/');
    decimal(out, u64::from(receipt.from));
    out.extend_from_slice(b"; level=");
    out.extend_from_slice(receipt.level.as_str().as_bytes());
    out.extend_from_slice(b"; durability=");
    out.extend_from_slice(receipt.durability.as_str().as_bytes());
}

/// Appends the text of the receipt of a failure.
pub(in crate::http) fn known_text(out: &mut Vec<u8>, acks: Option<(u8, u8)>, known: Known) {
    if let Some((acks, from)) = acks {
        out.extend_from_slice(b"acks=");
        decimal(out, u64::from(acks));
        out.push(b'/');
        decimal(out, u64::from(from));
        out.extend_from_slice(b"; ");
    }
    out.extend_from_slice(b"outcome=");
    out.extend_from_slice(known.as_str().as_bytes());
}

/// Decimal digits of `number`. Most numbers here have one.
#[inline]
pub(in crate::http) fn decimal(out: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => out.push(b'0' + number as u8),
        _ => long_decimal(out, number),
    }
}

/// Writes any number in decimal: several times as fast as formatting, on the path of every answer.
fn long_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Hexadecimal digits of `number`, as few as it takes.
pub(super) fn hexadecimal(out: &mut Vec<u8>, number: u32) {
    match number {
        0..10 => out.push(b'0' + number as u8),
        _ => {
            let zeros = number.leading_zeros() as usize / 4;
            out.extend_from_slice(&eight_digits(number)[zeros..]);
        }
    }
}

/// All sixteen hexadecimal digits of `number`.
pub(super) fn sixteen_digits(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    digits[..8].copy_from_slice(&eight_digits((number >> 32) as u32));
    digits[8..].copy_from_slice(&eight_digits(number as u32));
    digits
}

/// All eight hexadecimal digits of `number`, worked out side by side in one word.
fn eight_digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Every nibble moves to a byte of its own, in three halvings.
    let mut nibbles = u64::from(number);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // Six more carries ten and above, and no digit below, into the upper half of the byte.
    let is_letter = ((nibbles + 6 * EACH) >> 4) & EACH;
    let from_zero = u64::from(b'a' - 10 - b'0');
    (nibbles + u64::from(b'0') * EACH + from_zero * is_letter).to_be_bytes()
}
