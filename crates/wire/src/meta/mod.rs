//! Metadata of values: checked where it comes in, and carried inside the stored value.
//!
//! ```text
//! Content-Type, Dendra-Meta-* ─┐              PUT                  GET  ┌─► header lines
//! "content_type", "meta" ──────┴─► MetaBuf ─► wrap ─► store ─► unwrap ──┴─► JSON fields
//!
//! without metadata   | value |                                      as it is, not a byte more
//! wrapped            | f5 64 6d ff | 1 | length u16 | entries | value |
//! entry              | name length u16 | content length u16 | name | content |   big-endian
//! ```
//!
//! The entry of the content type has the empty name. A value that begins with the four bytes is
//! wrapped, too, without entries.
//!
//! Invariants
//! 1. `unwrap(wrap(m, v))` is `(m, v)`, for all bytes `v`.
//! 2. Stored bytes are one of three: a value that does not begin with the four bytes, exactly what
//!    `wrap` makes, or bytes that `wrap` never makes. So no reading is ambiguous. The third kind
//!    comes from another writer (an earlier version, a client of the engine behind `--store`), and
//!    is a value without metadata. It may look wrapped only if that writer made it so.
//! 3. Entries are sorted by their names, which are different. Each has been checked, also when it
//!    comes out of a store: no content can end a header line.
//!
//! Not here: which requests may have metadata (`route/`, `batch/`), answers (`http/`).
//! See: docs/metadata.md, docs/format/cell.md.

use crate::refusal::{Refusal, echo};
use dendra_base::limits::{META_BYTES_MAX, META_LEN_MAX};
use std::borrow::Cow;

/// The begin of a wrapped value: no text is that.
pub const MAGIC: [u8; 4] = [0xf5, b'd', b'm', 0xff];
const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 7;
/// A wrapper without entries.
const EMPTY: [u8; HEAD_BYTES] = [0xf5, b'd', b'm', 0xff, FORMAT, 0, 0];

/// The begin of the name of a header with metadata.
pub const PREFIX: &str = "Dendra-Meta-";

/// Types that say nothing about a value: what an answer says without metadata, and what curl says
/// about every body.
const NO_TYPES: [&str; 2] = [
    "application/octet-stream",
    "application/x-www-form-urlencoded",
];

/// Checked entries, as they stand in a wrapper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta<'a>(&'a [u8]);

/// Checked metadata, as the bytes that stand in front of a stored value; none for no metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaBuf(Vec<u8>);

impl<'a> Meta<'a> {
    /// Is there no entry?
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The content type, if there is one.
    pub fn content_type(self) -> Option<&'a str> {
        self.entries()
            .find(|(name, _)| name.is_empty())
            .map(|it| it.1)
    }

    /// The other entries: names in lower case, and contents.
    pub fn named(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries().filter(|(name, _)| !name.is_empty())
    }

    /// Bytes of the entries.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    fn entries(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, content, behind) = split_entry(rest)?;
            rest = behind;
            Some((str::from_utf8(name).ok()?, str::from_utf8(content).ok()?))
        })
    }

    /// The entries in `bytes`, if they are as `MetaBuf` makes them.
    fn check(bytes: &'a [u8]) -> Option<Meta<'a>> {
        let (mut rest, mut before, mut size) = (bytes, None, MetaSize::default());
        while !rest.is_empty() {
            let (name, content, behind) = split_entry(rest)?;
            let is_next = before.is_none_or(|before| before < name);
            let is_name = name.is_empty() || (is_token(name) && !has_upper(name));
            let has_type = !name.is_empty() || !is_no_type(content);
            if !is_next || !is_name || !has_type || !is_content(content) {
                return None;
            }
            size.add(name, content).ok()?;
            (rest, before) = (behind, Some(name));
        }
        Some(Meta(bytes))
    }
}

/// Name, content and what stands behind the first entry.
fn split_entry(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&[n0, n1, c0, c1], rest) = bytes.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([n0, n1])))?;
    let (content, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([c0, c1])))?;
    Some((name, content, rest))
}

/// How much there is so far.
#[derive(Default)]
struct MetaSize {
    len: usize,
    bytes: usize,
}

impl MetaSize {
    fn add(&mut self, name: &[u8], content: &[u8]) -> Result<(), Refusal> {
        self.len += 1;
        self.bytes += name.len() + content.len();
        if self.bytes > META_BYTES_MAX {
            return Err(bad(format!(
                "names and contents have at most {META_BYTES_MAX} bytes together, the content type included"
            )));
        }
        if self.len > META_LEN_MAX {
            return Err(bad(format!(
                "there are at most {META_LEN_MAX} entries, the content type included"
            )));
        }
        Ok(())
    }
}

/// The refusal of metadata.
pub(crate) fn bad(sentence: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::bad("bad-metadata", sentence)
}

fn has_upper(name: &[u8]) -> bool {
    name.iter().any(u8::is_ascii_uppercase)
}

/// A token of RFC 9110, section 5.6.2.
fn is_token(name: &[u8]) -> bool {
    let is_letter = |&byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.iter().all(is_letter)
}

/// Can it stand in a header line and in a JSON string, and does it come back as it was?
fn is_content(content: &[u8]) -> bool {
    let ends_in_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_control = |&byte: &u8| (byte < 0x20 && byte != b'\t') || byte == 0x7f;
    !ends_in_space(content.first())
        && !ends_in_space(content.last())
        && !content.iter().any(is_control)
        && str::from_utf8(content).is_ok()
}

/// Does this content type count as none?
fn is_no_type(content_type: &[u8]) -> bool {
    let name = content_type.split(|&b| b == b';').next();
    let name = name.unwrap_or_default().trim_ascii();
    name.is_empty()
        || NO_TYPES
            .iter()
            .any(|no| name.eq_ignore_ascii_case(no.as_bytes()))
}

impl MetaBuf {
    /// Checks metadata: a content type, and names with their contents.
    ///
    /// # Errors
    /// A `400` that says what is wrong with it.
    pub fn new<N: AsRef<[u8]>, C: AsRef<[u8]>>(
        content_type: Option<&[u8]>,
        named: &[(N, C)],
    ) -> Result<MetaBuf, Refusal> {
        let content_type = content_type.filter(|it| !is_no_type(it));
        if content_type.is_none() && named.is_empty() {
            return Ok(MetaBuf::default());
        }
        let (mut size, mut entries) = (MetaSize::default(), Vec::new());
        if let Some(content) = content_type {
            size.add(b"", content)?;
            entries.push((Vec::new(), content));
        }
        for (name, content) in named {
            let (name, content) = (name.as_ref(), content.as_ref());
            if !is_token(name) {
                return Err(bad(format!(
                    "`{}` is no name: take letters, digits and !#$%&'*+-.^_`|~",
                    echo(name)
                )));
            }
            size.add(name, content)?;
            entries.push((name.to_ascii_lowercase(), content));
        }
        entries.sort_unstable();
        let mut bytes = Vec::new();
        for (name, content) in &entries {
            if !is_content(content) {
                return Err(bad(format!(
                    "the content of {} is not UTF-8, or has a control byte, or a space at an end: encode it",
                    shown_name(name)
                )));
            }
            for part in [&name[..], content] {
                let len = u16::try_from(part.len()).expect("all parts together are short");
                bytes.extend_from_slice(&len.to_be_bytes());
            }
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(content);
        }
        if let Some(twice) = entries.windows(2).find(|two| two[0].0 == two[1].0) {
            let name = shown_name(&twice[0].0);
            return Err(bad(format!("{name} is there more than once")));
        }
        Ok(MetaBuf(front(&bytes)))
    }

    /// The entries.
    pub fn as_meta(&self) -> Meta<'_> {
        Meta(self.0.get(HEAD_BYTES..).unwrap_or_default())
    }

    /// The bytes that stand in front of a value with this metadata; none for no metadata.
    pub fn front(&self) -> &[u8] {
        &self.0
    }
}

impl From<Meta<'_>> for MetaBuf {
    fn from(meta: Meta<'_>) -> MetaBuf {
        MetaBuf(match meta.0 {
            b"" => Vec::new(),
            entries => front(entries),
        })
    }
}

fn shown_name(name: &[u8]) -> String {
    match name {
        b"" => "the content type".to_owned(),
        name => format!("`{}`", echo(name)),
    }
}

fn front(entries: &[u8]) -> Vec<u8> {
    let len = u16::try_from(entries.len()).expect("metadata has at most 4 KiB, and few entries");
    [&EMPTY[..5], &len.to_be_bytes(), entries].concat()
}

/// A value as it is stored with `meta`; `None` = as it is.
pub fn wrap(meta: &MetaBuf, value: &[u8]) -> Option<Vec<u8>> {
    match meta.front() {
        b"" if value.starts_with(&MAGIC) => Some([&EMPTY, value].concat()),
        b"" => None,
        front => Some([front, value].concat()),
    }
}

/// A value without metadata as it is stored.
pub fn stored(value: &[u8]) -> Cow<'_, [u8]> {
    match wrap(&MetaBuf::default(), value) {
        Some(wrapped) => Cow::Owned(wrapped),
        None => Cow::Borrowed(value),
    }
}

/// Makes a value of the stored one that begins with `meta`, to which the value was appended.
pub fn wrap_behind(meta: &MetaBuf, stored: &mut Vec<u8>) {
    if meta.front().is_empty() && stored.starts_with(&MAGIC) {
        stored.splice(..0, EMPTY);
    }
}

/// Metadata and value of a stored value.
#[inline]
pub fn unwrap(stored: &[u8]) -> (Meta<'_>, &[u8]) {
    if !stored.starts_with(&MAGIC) {
        return (Meta::default(), stored);
    }
    unwrap_exact(stored).unwrap_or((Meta::default(), stored))
}

/// Metadata and value of bytes that `wrap` made; `None` for others.
pub fn unwrap_exact(stored: &[u8]) -> Option<(Meta<'_>, &[u8])> {
    let rest = stored.strip_prefix(&EMPTY[..5])?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let (entries, value) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let meta = Meta::check(entries)?;
    (!meta.is_empty() || value.starts_with(&MAGIC)).then_some((meta, value))
}

#[cfg(test)]
pub(crate) mod tests;
