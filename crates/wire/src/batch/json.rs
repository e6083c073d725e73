//! JSON objects: one on a line, with strings, numbers and flat objects in it, and nothing deeper.
//!
//! ```text
//! {"name": "text\n", "other": 12, "more": {"a": "b"}}
//!    ─► (name, Text), (other, Number), (more, Object)
//! ```
//!
//! Invariants
//! 1. It takes no text that is not JSON, and allocates nothing.
//! 2. A string stands for its characters exactly: an escape of half a character is refused.
//!
//! Not here: the fields that an item has (`mod.rs`).
//! See: RFC 8259.

use crate::refusal::Refusal;
use std::borrow::Cow;

/// The refusal of an item that has not the form of one.
pub(super) fn bad(sentence: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::bad("bad-item", sentence)
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    /// A string, as it stands between its quotes.
    Text {
        raw: &'a [u8],
        /// Is there a backslash in it?
        has_escapes: bool,
    },
    /// A number, as it stands there.
    Number(&'a [u8]),
    /// An object without objects in it, as it stands there.
    Object(&'a [u8]),
}

/// How deep an object may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// An object whose fields may be objects.
    Line,
    Flat,
}

/// Where a reader of one line is.
struct LineReader<'a> {
    line: &'a [u8],
    at: usize,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Calls `field` for each field of the object in `line`, in their order.
pub(super) fn parse_object<'a>(
    line: &'a [u8],
    mut field: impl FnMut(&'a [u8], Scalar<'a>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if str::from_utf8(line).is_err() {
        return Err(bad("the line is not UTF-8: send bytes in base64"));
    }
    let mut reader = LineReader { line, at: 0 };
    reader.object(Depth::Line, &mut field)?;
    reader.end()
}

impl<'a> LineReader<'a> {
    fn object(
        &mut self,
        depth: Depth,
        field: &mut dyn FnMut(&'a [u8], Scalar<'a>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.expect(b'{', "the line is not a JSON object")?;
        if self.next_is(b'}') {
            return Ok(());
        }
        loop {
            let (name, _) = self.string()?;
            self.expect(b':', "a colon is missing behind the name of a field")?;
            let scalar = self.scalar(depth)?;
            field(name, scalar)?;
            if self.next_is(b'}') {
                return Ok(());
            }
            self.expect(b',', "a comma is missing between two fields")?;
        }
    }

    fn skip_space(&mut self) {
        let rest = &self.line[self.at..];
        self.at += rest.iter().take_while(|&&byte| is_space(byte)).count();
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_it = self.line.get(self.at) == Some(&byte);
        self.at += usize::from(is_it);
        is_it
    }

    /// The refusal for what stands here.
    fn wrong(&self, sentence: &str) -> Refusal {
        bad(format!("{sentence}, at byte {} of the line", self.at + 1))
    }

    fn expect(&mut self, byte: u8, sentence: &'static str) -> Result<(), Refusal> {
        if self.next_is(byte) {
            Ok(())
        } else {
            Err(self.wrong(sentence))
        }
    }

    fn end(&mut self) -> Result<(), Refusal> {
        self.skip_space();
        if self.at == self.line.len() {
            Ok(())
        } else {
            Err(self.wrong("there is more behind the object"))
        }
    }

    /// A string, and whether it has escapes.
    fn string(&mut self) -> Result<(&'a [u8], bool), Refusal> {
        self.expect(b'"', "a string is missing")?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = &self.line[self.at..];
            let ends = rest
                .iter()
                .position(|&b| b < 0x20 || b == b'"' || b == b'\\');
            self.at += ends.unwrap_or(rest.len());
            match self.line.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok((&self.line[start..self.at - 1], has_escapes));
                }
                Some(b'\\') if self.at + 1 < self.line.len() => {
                    has_escapes = true;
                    self.at += 2;
                }
                Some(b'\\') | None => return Err(self.wrong("a string does not end")),
                Some(_) => return Err(self.wrong("a control byte stands in a string")),
            }
        }
    }

    fn scalar(&mut self, depth: Depth) -> Result<Scalar<'a>, Refusal> {
        self.skip_space();
        match self.line.get(self.at) {
            Some(b'{') if depth == Depth::Line => {
                let start = self.at;
                self.object(Depth::Flat, &mut |_, _| Ok(()))?;
                Ok(Scalar::Object(&self.line[start..self.at]))
            }
            Some(b'"') => {
                let (raw, has_escapes) = self.string()?;
                Ok(Scalar::Text { raw, has_escapes })
            }
            Some(b'0'..=b'9') => {
                let rest = &self.line[self.at..];
                let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                self.at += len;
                if len > 1 && rest[0] == b'0' {
                    return Err(self.wrong("a number begins with 0"));
                }
                Ok(Scalar::Number(&rest[..len]))
            }
            _ => Err(self.wrong("a string or a whole number is missing")),
        }
    }
}

/// Appends the characters of the string `raw` to `out`.
pub(super) fn unescape_into(
    raw: &[u8],
    has_escapes: bool,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    if !has_escapes {
        out.extend_from_slice(raw);
        return Ok(());
    }
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let letter = rest.get(at + 1).copied().unwrap_or_default();
        rest = rest.get(at + 2..).unwrap_or_default();
        let plain = match letter {
            b'"' | b'\\' | b'/' => letter,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, behind) = unicode(rest)?;
                rest = behind;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(bad("a string holds a backslash with an unknown letter")),
        };
        out.push(plain);
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// The character behind `\u`, two escapes of a pair included, and the rest behind it.
fn unicode(digits: &[u8]) -> Result<(char, &[u8]), Refusal> {
    let half = || bad("a string holds \\u without a whole character behind it");
    let (first, behind) = four_digits(digits).ok_or_else(half)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, behind));
    }
    let pair = behind.strip_prefix(b"\\u").and_then(four_digits);
    let (second, rest) = pair.ok_or_else(half)?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return Err(half());
    }
    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    let character = char::from_u32(code).ok_or_else(half)?;
    Ok((character, rest))
}

fn four_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let (&[a, b, c, d], behind) = text.split_first_chunk::<4>()?;
    let high = dendra_base::hex::pair(a, b)?;
    let low = dendra_base::hex::pair(c, d)?;
    Some((u32::from(high) << 8 | u32::from(low), behind))
}
