//! Frames: one message each, several in one write, each with its length, its id and its checksum.
//!
//! ```text
//! | length u32 | kind u8 | flags u8 = 0 | zero u16 | id u64 | body … | checksum |   little-endian
//!   length    of the whole frame, from its own first byte to the checksum's last
//!   checksum  of everything before it: 8 bytes, or 16 that are keyed (`seal.rs`)
//! kind 01-06 questions   41-48 answers   4f refusal   81 proof   82 farewell   83 probe   84 alive   85 hail   86 welcome
//! 87 withdrawal   88 steward   89 enrol   8a enrolment
//! ```
//!
//! Invariants
//! 1. A length is checked against `PEER_FRAME_BYTES_MAX` before a byte is made room for.
//! 2. `decode` looks at a body only after its checksum held.
//! 3. An encoded frame reads back equal; a frame with one bit changed is refused.
//!
//! Not here: the bodies of questions and answers (`body.rs`), the numbers of kinds (`shape.rs`).
//! See: docs/peer.md.

use super::body::{self, BodyRest};
use super::proof::Proof;
use super::seal::Seal;
use super::shape::{FRAME_BYTES_MIN, HEADER_BYTES, Malformed, kind};
use crate::limits::{PEER_FRAME_BYTES_MAX, PEER_SENTENCE_BYTES_MAX, PEER_WITHDRAW_IDS_MAX};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Stamp};

/// The first frame of a link is a proof and as long as this.
pub const PROOF_FRAME_BYTES: usize = FRAME_BYTES_MIN + Proof::BYTES;

/// A question with its stamp and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Unique among the questions of a link; the answer repeats it.
    pub id: u64,
    /// The asker's clock when it was sent: milliseconds of any origin, modulo 2^32. See `age.rs`.
    pub sent_ms: u32,
    /// Cluster, epoch, time left.
    pub stamp: Stamp,
    /// The question.
    pub ask: Ask,
}

/// The content of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A question.
    Ask(Question),
    /// The answer to the question `id`.
    Answer {
        /// Id of the question.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// The asker knows the cluster's secret. The first frame of a link, from the asker alone.
    Proof(Proof),
    /// The sender ends the link; the sentence says why.
    Farewell(String),
    /// Is the peer there? Answered by `Alive` with the same id.
    Probe {
        /// The prober's mark.
        id: u64,
    },
    /// To `Probe`.
    Alive {
        /// Id of the probe.
        id: u64,
    },
    /// Would the acceptor let the asker in? No note is written. Answered by `Welcome`, or by
    /// `Farewell`.
    Hail,
    /// To `Hail`: yes.
    Welcome,
    /// The asker does not wait any more for the answers to these questions, which it asked on this
    /// link.
    Withdraw {
        /// Ids of the questions, 1 to `PEER_WITHDRAW_IDS_MAX` of them.
        ids: Vec<u64>,
    },
    /// From the asker's steward to the acceptor's: bytes that the crate `ownership` reads. Over
    /// plain HTTP answered by `Alive` with the same id.
    Steward {
        /// The sender's mark.
        id: u64,
        /// The message.
        body: Bytes,
    },
    /// A process asks to become a member: bytes that the crate `ownership` reads. Answered by
    /// `Enrolment`.
    Enrol(Bytes),
    /// To `Enrol`.
    Enrolment(Bytes),
}

/// Length of the frame at the front of `buffer`; `None` when its length is not there yet.
///
/// # Errors
/// `Length` when no frame is that short or that long.
pub fn frame_len(buffer: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length);
    match length as usize {
        len if (FRAME_BYTES_MIN..=PEER_FRAME_BYTES_MAX).contains(&len) => Ok(Some(len)),
        _ => Err(Malformed::Length(length)),
    }
}

/// Appends a question.
pub fn encode_ask(out: &mut Vec<u8>, seal: &mut Seal, question: &Question) {
    let Question {
        id,
        sent_ms,
        stamp,
        ask,
    } = question;
    frame(out, seal, body::kind_of_ask(ask), *id, |out| {
        out.extend_from_slice(&stamp.cluster.to_le_bytes());
        out.extend_from_slice(&stamp.epoch.to_le_bytes());
        out.extend_from_slice(&stamp.left_ms.to_le_bytes());
        out.extend_from_slice(&sent_ms.to_le_bytes());
        body::put_ask(out, ask);
    });
}

/// Appends the answer to question `id`.
pub fn encode_answer(out: &mut Vec<u8>, seal: &mut Seal, id: u64, answer: &Answer) {
    frame(out, seal, body::kind_of_answer(answer), id, |out| {
        body::put_answer(out, answer);
    });
}

/// Appends the proof of the secret. Its frame has no key: the proof is to show whether the sides
/// have the same one.
pub fn encode_proof(out: &mut Vec<u8>, proof: &Proof) {
    frame(out, &mut Seal::plain(), kind::PROOF, 0, |out| {
        out.extend_from_slice(proof.as_bytes());
    });
}

/// Appends the end of the link; a long sentence is cut.
pub fn encode_farewell(out: &mut Vec<u8>, seal: &mut Seal, sentence: &str) {
    let mut end = sentence.len().min(PEER_SENTENCE_BYTES_MAX);
    while !sentence.is_char_boundary(end) {
        end -= 1;
    }
    frame(out, seal, kind::FAREWELL, 0, |out| {
        out.extend_from_slice(&sentence.as_bytes()[..end]);
    });
}

/// Appends a probe of the link.
pub fn encode_probe(out: &mut Vec<u8>, seal: &mut Seal, id: u64) {
    frame(out, seal, kind::PROBE, id, |_| {});
}

/// Appends the answer to a probe.
pub fn encode_alive(out: &mut Vec<u8>, seal: &mut Seal, id: u64) {
    frame(out, seal, kind::ALIVE, id, |_| {});
}

/// Appends the question whether the asker would be let in.
pub fn encode_hail(out: &mut Vec<u8>, seal: &mut Seal) {
    frame(out, seal, kind::HAIL, 0, |_| {});
}

/// Appends the answer that it would.
pub fn encode_welcome(out: &mut Vec<u8>, seal: &mut Seal) {
    frame(out, seal, kind::WELCOME, 0, |_| {});
}

/// Appends that the answers to these questions are not wanted any more.
///
/// # Panics
/// When there are none, or more than `PEER_WITHDRAW_IDS_MAX`.
pub fn encode_withdraw(out: &mut Vec<u8>, seal: &mut Seal, ids: &[u64]) {
    assert!((1..=PEER_WITHDRAW_IDS_MAX).contains(&ids.len()));
    frame(out, seal, kind::WITHDRAW, 0, |out| {
        for id in ids {
            out.extend_from_slice(&id.to_le_bytes());
        }
    });
}

/// Appends a message of a steward.
///
/// # Panics
/// When it is longer than a frame may be.
pub fn encode_steward(out: &mut Vec<u8>, seal: &mut Seal, id: u64, body: &[u8]) {
    frame(out, seal, kind::STEWARD, id, |out| {
        out.extend_from_slice(body)
    });
}

/// Appends the request to become a member.
pub fn encode_enrol(out: &mut Vec<u8>, seal: &mut Seal, body: &[u8]) {
    frame(out, seal, kind::ENROL, 0, |out| out.extend_from_slice(body));
}

/// Appends the answer to a request to become a member.
pub fn encode_enrolment(out: &mut Vec<u8>, seal: &mut Seal, body: &[u8]) {
    frame(out, seal, kind::ENROLMENT, 0, |out| {
        out.extend_from_slice(body)
    });
}

fn frame(out: &mut Vec<u8>, seal: &mut Seal, kind: u8, id: u64, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&id.to_le_bytes());
    body(out);
    let len = out.len() - start + seal.bytes();
    debug_assert!(len <= PEER_FRAME_BYTES_MAX, "the limits bound every body");
    let len = u32::try_from(len).expect("the limits bound every body");
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    seal.put(out, start);
}

/// Reads one whole frame, as long as [`frame_len`] says, the next that came under `seal`. Keys and
/// values are slices of it.
///
/// # Errors
/// When the bytes are not those of an `encode_` function.
pub fn decode(frame: &Bytes, seal: &mut Seal) -> Result<Message, Malformed> {
    let len = frame_len(frame)?.filter(|len| *len == frame.len());
    let len = len.ok_or(Malformed::Length(frame.len() as u32))?;
    let end = len - seal.bytes();
    if end < HEADER_BYTES {
        return Err(Malformed::Checksum);
    }
    let (checked, checksum) = frame.split_at(end);
    if !seal.fits(checked, checksum) {
        return Err(Malformed::Checksum);
    }
    if checked[5..8] != [0; 3] {
        return Err(Malformed::Body("flags"));
    }
    let mut cursor = BodyRest::new(frame, 8, end);
    let id = cursor.u64("id")?;
    let message = match checked[4] {
        kind::PROOF => Message::Proof(Proof::from(cursor.array("proof")?)),
        kind::FAREWELL => {
            let text = cursor.rest();
            if text.len() > PEER_SENTENCE_BYTES_MAX {
                return Err(Malformed::Body("sentence"));
            }
            Message::Farewell(String::from_utf8_lossy(text).into_owned())
        }
        kind::PROBE => Message::Probe { id },
        kind::ALIVE => Message::Alive { id },
        kind::HAIL => Message::Hail,
        kind::WELCOME => Message::Welcome,
        kind::WITHDRAW => {
            let (ids, rest) = cursor.rest().as_chunks::<8>();
            if !rest.is_empty() || !(1..=PEER_WITHDRAW_IDS_MAX).contains(&ids.len()) {
                return Err(Malformed::Body("withdrawal"));
            }
            let ids = ids.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
            Message::Withdraw { ids }
        }
        kind::STEWARD => {
            let body = cursor.rest_of_frame();
            Message::Steward { id, body }
        }
        kind::ENROL => Message::Enrol(cursor.rest_of_frame()),
        kind::ENROLMENT => Message::Enrolment(cursor.rest_of_frame()),
        kind if kind < kind::CLOCK_IS => Message::Ask(Question {
            id,
            stamp: Stamp {
                cluster: cursor.u64("cluster")?,
                epoch: cursor.u64("epoch")?,
                left_ms: cursor.u32("left_ms")?,
            },
            sent_ms: cursor.u32("sent_ms")?,
            ask: body::take_ask(kind, &mut cursor)?,
        }),
        kind => Message::Answer {
            id,
            answer: body::take_answer(kind, &mut cursor)?,
        },
    };
    if !cursor.is_at_end() {
        return Err(Malformed::Body("more bytes than the message has"));
    }
    Ok(message)
}
