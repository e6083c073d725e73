//! Chunked bodies, piece by piece: where the data lies in the read buffer, and where the body ends.
//!
//! ```text
//! | 1a ; ext CR LF | data: 26 bytes | CR LF | 0 CR LF | Name: trailer CR LF | CR LF |
//!
//!   Size --size line--> Data(left) --all data--> DataEnd --CR LF--> Size
//!     \--size line "0"--> Trailer --empty line--> End
//! ```
//!
//! Invariants
//! 1. When `decode` wants more, it leaves in the buffer at most one size line or one trailer
//!    section. Both are bounded in `limits.rs`.
//! 2. The sum of all data never exceeds `body_bytes_max`: the first size line that would exceed it
//!    is refused with 413, before its data is read.
//! 3. Lines end in CR LF, sizes are 1 to 16 hexadecimal digits, no byte is skipped or repaired.
//! 4. The data does not depend on how the bytes were cut into packets.
//!
//! Not here: bodies with a Content-Length, which need no decoder.
//! See: RFC 9112, section 7.1.

use crate::limits::{
    CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX, TRAILER_LINES_MAX,
};
use crate::refusal::Refusal;
use dendra_base::hex;

/// The item at the front of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkItem {
    /// No data yet: drop the first `consumed` bytes, keep the rest, read more.
    More {
        /// Bytes of framing that are done with.
        consumed: usize,
    },
    /// `buf[start..end]` is data: drop the first `end` bytes and go on.
    Data {
        /// Where the data starts.
        start: usize,
        /// Where it ends, at most the buffer's end.
        end: usize,
    },
    /// The body is over: drop the first `consumed` bytes; the next request follows.
    End {
        /// Bytes of framing, the empty line behind the trailer included.
        consumed: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// A size line is next.
    Size,
    /// Bytes of the current chunk that are still to come, at least one.
    Data(u64),
    /// The line end behind a chunk's data is next.
    DataEnd,
    /// The size line `0` is done with: the trailer section is next.
    Trailer,
    /// Everything has been read.
    End,
}

/// Decoder of one chunked body.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    state: ChunkState,
    body_bytes: u64,
    body_bytes_max: u64,
    extension_bytes: usize,
    trailer_len: usize,
}

impl ChunkDecoder {
    /// A decoder for one body of at most `body_bytes_max` bytes.
    pub fn new(body_bytes_max: u64) -> ChunkDecoder {
        ChunkDecoder {
            state: ChunkState::Size,
            body_bytes: 0,
            body_bytes_max,
            extension_bytes: 0,
            trailer_len: 0,
        }
    }

    /// Behind `End`: how many of the last consumed bytes are the trailer section, its empty line
    /// included. Our client reads the end of a scan there; the server ignores trailers.
    pub fn trailer_len(&self) -> usize {
        self.trailer_len
    }

    /// Looks at the bytes that have not been dropped yet.
    ///
    /// # Errors
    /// 400 for broken framing, 413 for a body above the limit; both close the connection. After an
    /// error the decoder must not be asked again.
    pub fn decode(&mut self, buf: &[u8]) -> Result<ChunkItem, Refusal> {
        let mut at = 0;
        loop {
            let rest = buf.get(at..).unwrap_or_default();
            match self.state {
                ChunkState::Size => match self.size_line(rest)? {
                    Some(line_len) => at += line_len,
                    None => return Ok(ChunkItem::More { consumed: at }),
                },
                ChunkState::Data(_) if rest.is_empty() => {
                    return Ok(ChunkItem::More { consumed: at });
                }
                ChunkState::Data(left) => {
                    let here =
                        usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                    self.state = match left - here as u64 {
                        0 => ChunkState::DataEnd,
                        left => ChunkState::Data(left),
                    };
                    let (start, end) = (at, at + here);
                    return Ok(ChunkItem::Data { start, end });
                }
                ChunkState::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        self.state = ChunkState::Size;
                        at += 2;
                    }
                    [] | [b'\r'] => return Ok(ChunkItem::More { consumed: at }),
                    _ => return Err(Refusal::framing("a chunk is longer than its size says")),
                },
                ChunkState::Trailer => match trailer_len(rest)? {
                    Some(trailer_len) => {
                        self.state = ChunkState::End;
                        self.trailer_len = trailer_len;
                        at += trailer_len;
                    }
                    None => return Ok(ChunkItem::More { consumed: at }),
                },
                ChunkState::End => return Ok(ChunkItem::End { consumed: at }),
            }
        }
    }

    /// Reads one size line; its length, or `None` when it has not arrived whole.
    fn size_line(&mut self, rest: &[u8]) -> Result<Option<usize>, Refusal> {
        // The digits are checked as they arrive, so that garbage is not waited for.
        let digits_len = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let digits = &rest[..digits_len];
        if digits_len > 16 {
            return Err(Refusal::framing("a chunk size has more than 16 digits"));
        }
        match rest.get(digits_len) {
            None => return Ok(None),
            Some(b'\r' | b';') if digits_len > 0 => {}
            Some(_) => return Err(Refusal::framing("a chunk size is not hexadecimal digits")),
        }
        let extension_len = extension_len(&rest[digits_len..])?;
        let line_len = digits_len + extension_len;
        match rest.get(line_len..) {
            Some([b'\r', b'\n', ..]) => {}
            Some([] | [b'\r']) | None => return Ok(None),
            Some(_) => return Err(Refusal::framing("a chunk size line must end in CR LF")),
        }
        let values = digits.iter().filter_map(|&digit| hex::digit(digit));
        let size = values.fold(0u64, |size, value| (size << 4) | u64::from(value));
        self.extension_bytes += extension_len;
        if self.extension_bytes > CHUNK_EXTENSION_BYTES_MAX {
            return Err(Refusal::framing("the chunk extensions are too long"));
        }
        if size > self.body_bytes_max - self.body_bytes {
            return Err(Refusal::value_too_large(self.body_bytes_max).closing());
        }
        self.body_bytes += size;
        self.state = match size {
            0 => ChunkState::Trailer,
            size => ChunkState::Data(size),
        };
        Ok(Some(line_len + 2))
    }
}

/// Bytes from the `;` to the CR, as far as they have arrived. Their meaning is of no interest.
fn extension_len(rest: &[u8]) -> Result<usize, Refusal> {
    let is_text = |&&b: &&u8| b == b'\t' || (b >= b' ' && b != 0x7f);
    let len = rest.iter().take_while(is_text).count();
    if len > CHUNK_LINE_BYTES_MAX - 16 {
        return Err(Refusal::framing("a chunk extension is too long"));
    }
    match rest.get(len) {
        None | Some(b'\r') => Ok(len),
        Some(_) => Err(Refusal::framing("a chunk extension holds a control byte")),
    }
}

/// Length of the trailer section with its empty line, or `None` when it has not arrived whole. The
/// lines are checked and forgotten: no trailer changes the meaning of a request.
fn trailer_len(rest: &[u8]) -> Result<Option<usize>, Refusal> {
    let window = rest.get(..TRAILER_BYTES_MAX).unwrap_or(rest);
    let mut lines = [httparse::EMPTY_HEADER; TRAILER_LINES_MAX];
    match httparse::parse_headers(window, &mut lines) {
        Ok(httparse::Status::Complete((len, _))) => {
            let section = &window[..len];
            let is_bare = |at: usize| section[at] == b'\n' && (at == 0 || section[at - 1] != b'\r');
            if (0..len).any(is_bare) {
                return Err(Refusal::framing("a trailer line must end in CR LF"));
            }
            Ok(Some(len))
        }
        Ok(httparse::Status::Partial) if window.len() < TRAILER_BYTES_MAX => Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Err(Refusal::framing("the trailer section is too long"))
        }
        Err(_) => Err(Refusal::framing("a trailer line is not `Name: value`")),
    }
}

#[cfg(test)]
mod tests;
