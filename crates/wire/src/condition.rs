//! Conditions: `If-Match` and `If-None-Match` as one typed question about the current record.
//!
//! ```text
//! field                       PUT, DELETE          GET, HEAD
//! If-Match: "v"               Matches(v)   412     Matches(v)   412 (absent is 404 anyway)
//! If-Match: *                 Present      412     Present      (absent is 404 anyway)
//! If-None-Match: *            Absent       412     Absent       304
//! If-None-Match: "v"          Differs(v)   412     Differs(v)   304, also for W/"v"
//! If-None-Match: foreign tag  400                  None: it matches nothing of ours
//! If-None-Match: "a", "v"     400                  Differs(v), where no other tag is ours
//! ```
//!
//! Invariants
//! 1. At most one condition, of one entity tag of ours: two of them, a repeated field or both
//!    fields are 400, never half obeyed.
//! 2. A weak tag never permits a write.
//!
//! Not here: the evaluation, which is the committer's (crate `engine`), in commit order.
//! See: RFC 9110, section 13; docs/api.md, section "Conditions".

use crate::refusal::Refusal;
use dendra_base::Version;

pub use dendra_base::peer::Condition;

/// Is the request one that only reads?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// GET and HEAD.
    Read,
    /// PUT and DELETE.
    Write,
}

/// One entity tag as a client may write it.
enum Tag {
    Any,
    Ours { version: Version, is_weak: bool },
    Foreign,
}

fn refuse<T>(sentence: &'static str) -> Result<T, Refusal> {
    Err(Refusal::bad("bad-condition", sentence))
}

/// The tag in front of `value`, and the rest behind it.
fn first_tag(value: &[u8]) -> Result<(Tag, &[u8]), Refusal> {
    let (is_weak, quoted) = match value.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, value),
    };
    let cut = quoted.strip_prefix(b"\"").and_then(|rest| {
        let end = rest.iter().position(|&b| b == b'"')?;
        Some((&rest[..end], &rest[end + 1..]))
    });
    let Some((text, rest)) = cut else {
        return refuse("an entity tag stands in double quotes, as in \"<version>\", or is *");
    };
    let version = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let tag = match version {
        Some(version) => Tag::Ours { version, is_weak },
        None => Tag::Foreign,
    };
    Ok((tag, rest))
}

/// The one tag of a field.
fn parse_tag(value: &[u8]) -> Result<Tag, Refusal> {
    if value == b"*" {
        return Ok(Tag::Any);
    }
    match first_tag(value)? {
        (tag, []) => Ok(tag),
        (_, _) => refuse(
            "several entity tags are supported in If-None-Match of GET and HEAD alone: name one, \
             or *",
        ),
    }
}

/// What `If-None-Match` asks of a read. A tag of another server matches nothing here.
fn parse_none_match(value: &[u8]) -> Result<Condition, Refusal> {
    if value == b"*" {
        return Ok(Condition::Absent);
    }
    let mut found = Condition::None;
    let mut rest = value;
    loop {
        // A cache between us and the client may have weakened the tag. The bytes of the value
        // under one version are always the same, so the weak comparison is exact.
        let (tag, behind) = first_tag(rest)?;
        if let Tag::Ours { version, .. } = tag {
            let differs = Condition::Differs(version);
            if found != Condition::None && found != differs {
                return refuse("two versions in one If-None-Match are not supported: name one");
            }
            found = differs;
        }
        rest = behind.trim_ascii_start();
        if rest.is_empty() {
            return Ok(found);
        }
        let Some(next) = rest.strip_prefix(b",") else {
            return refuse("entity tags of a list stand in double quotes, with commas between");
        };
        rest = next.trim_ascii_start();
    }
}

/// Reads the two fields of one request.
pub(crate) fn parse(
    if_match: Option<&[u8]>,
    if_none_match: Option<&[u8]>,
    access: Access,
) -> Result<Condition, Refusal> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::None),
        (Some(_), Some(_)) => refuse("give If-Match or If-None-Match, not both"),
        (Some(value), None) => match parse_tag(value)? {
            Tag::Any => Ok(Condition::Present),
            Tag::Ours { is_weak: true, .. } => {
                refuse("If-Match compares strongly: a weak tag (W/) never matches")
            }
            Tag::Ours { version, .. } => Ok(Condition::Matches(version)),
            Tag::Foreign => refuse(NOT_OURS),
        },
        (None, Some(value)) if access == Access::Read => parse_none_match(value),
        (None, Some(value)) => match parse_tag(value)? {
            Tag::Any => Ok(Condition::Absent),
            Tag::Ours { is_weak: true, .. } => refuse("a weak tag (W/) cannot guard a write"),
            Tag::Ours { version, .. } => Ok(Condition::Differs(version)),
            Tag::Foreign => refuse(NOT_OURS),
        },
    }
}

const NOT_OURS: &str = "this entity tag is not a version; use the ETag of an earlier answer, as in \"0000000000000001-1-0\"";

#[cfg(test)]
mod tests {
    use super::*;

    const V: Version = Version {
        hlc: 0x1f,
        origin: 2,
        rmw: 0,
    };
    const TAG: &[u8] = b"\"000000000000001f-2-0\"";
    const WEAK: &[u8] = b"W/\"000000000000001f-2-0\"";

    #[test]
    fn each_form_has_one_meaning() {
        use Access::{Read, Write};
        for access in [Read, Write] {
            assert_eq!(parse(None, None, access), Ok(Condition::None));
            assert_eq!(parse(Some(b"*"), None, access), Ok(Condition::Present));
            assert_eq!(parse(None, Some(b"*"), access), Ok(Condition::Absent));
            assert_eq!(parse(Some(TAG), None, access), Ok(Condition::Matches(V)));
            assert_eq!(parse(None, Some(TAG), access), Ok(Condition::Differs(V)));
        }
        assert_eq!(parse(None, Some(WEAK), Read), Ok(Condition::Differs(V)));
        assert_eq!(parse(None, Some(b"\"other\""), Read), Ok(Condition::None));
        let lists: [(&[u8], Condition); 4] = [
            (
                b"\"a, b\", W/\"000000000000001f-2-0\"",
                Condition::Differs(V),
            ),
            (b"\"000000000000001f-2-0\" ,\"b\"", Condition::Differs(V)),
            (
                b"\"000000000000001f-2-0\",W/\"000000000000001f-2-0\"",
                Condition::Differs(V),
            ),
            (b"\"a\", \"b\"", Condition::None),
        ];
        for (list, condition) in lists {
            assert_eq!(parse(None, Some(list), Read), Ok(condition));
            let refused = parse(None, Some(list), Write).expect_err("it guards a write");
            assert!(refused.message.contains("several"), "{refused}");
        }
    }

    #[test]
    fn what_could_be_misread_is_refused() {
        use Access::{Read, Write};
        type Given = Option<&'static [u8]>;
        let table: [(Given, Given, Access, &str); 13] = [
            (Some(TAG), Some(b"*"), Write, "not both"),
            (Some(WEAK), None, Write, "strongly"),
            (Some(WEAK), None, Read, "strongly"),
            (None, Some(WEAK), Write, "weak"),
            (Some(b"\"other\""), None, Write, "not a version"),
            (None, Some(b"\"other\""), Write, "not a version"),
            (Some(b"000000000000001f-2-0"), None, Write, "double quotes"),
            (Some(b""), None, Write, "double quotes"),
            (Some(b"\"a\", \"b\""), None, Read, "several"),
            (
                None,
                Some(b"\"000000000000001f-2-0\", \"000000000000001f-2-1\""),
                Read,
                "two versions",
            ),
            (None, Some(b"\"a\" \"b\""), Read, "commas between"),
            (None, Some(b"\"a\", *"), Read, "double quotes"),
            (None, Some(b"\"a\","), Read, "double quotes"),
        ];
        for (if_match, if_none_match, access, part) in table {
            let refusal = parse(if_match, if_none_match, access).expect_err(part);
            assert_eq!((refusal.status, refusal.code), (400, "bad-condition"));
            assert!(refusal.message.contains(part), "{refusal}");
        }
    }
}
