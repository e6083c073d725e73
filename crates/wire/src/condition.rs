//! Conditions: `If-Match` and `If-None-Match` as one typed question about the current record.
//!
//! ```text
//! field                     the condition           of a GET or HEAD that does not hold
//! If-Match: *               Present                 (absent is 404 anyway)
//! If-Match: "v"             Matches(v)              412
//! If-Match: "v", "w"        MatchesOneOf([v, w])    412
//! If-Match: "x", W/"v"      MatchesOneOf([])        412: strong comparison, and "x" is not ours
//! If-None-Match: *          Absent                  304
//! If-None-Match: W/"v"      Differs(v)              304: weak comparison
//! If-None-Match: "v", "w"   DiffersFromAll([v, w])  304
//! If-None-Match: "x"        None                    it matches nothing of ours
//! ```
//!
//! A PUT, DELETE or touch whose condition does not hold is 412.
//!
//! Invariants
//! 1. Several lines of a field are one list (RFC 9110, 5.3), and empty elements of it are skipped.
//! 2. At most `CONDITION_VERSIONS_MAX` versions. More of them, no tag at all, `*` beside a tag, or
//!    both fields are 400, never half obeyed.
//! 3. A weak tag never permits a write by `If-Match`.
//!
//! Not here: the evaluation, which is the committer's (crate `engine`), in commit order.
//! See: RFC 9110, sections 8.8.3 and 13.1; docs/api.md, section "Conditions".

use crate::limits::CONDITION_VERSIONS_MAX;
use crate::refusal::Refusal;
use dendra_base::Version;
use std::slice;

pub use dendra_base::peer::Condition;

fn refuse<T>(sentence: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Refusal> {
    Err(Refusal::bad("bad-condition", sentence))
}

/// Which comparison a field uses (RFC 9110, 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagComparison {
    /// A weak tag matches nothing.
    Strong,
    /// A cache between the node and the client may have weakened a tag. The bytes of the value
    /// under one version are always the same, so the weak comparison is exact.
    Weak,
}

/// Versions of a field that can match, each once.
struct NamedVersions {
    all: [Version; CONDITION_VERSIONS_MAX],
    len: usize,
}

impl NamedVersions {
    fn as_slice(&self) -> &[Version] {
        &self.all[..self.len]
    }
}

/// The tag at the front of `text`, as (is it weak, its opaque part, the rest).
fn first_tag(text: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let (is_weak, quoted) = match text.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let opaque = quoted.strip_prefix(b"\"")?;
    let end = opaque.iter().position(|&b| b == b'"')?;
    Some((is_weak, &opaque[..end], &opaque[end + 1..]))
}

/// The content of a field; `None` is `*`.
fn read(lines: &[&[u8]], comparison: TagComparison) -> Result<Option<NamedVersions>, Refusal> {
    if lines == [b"*"] {
        return Ok(None);
    }
    let (mut versions, mut len) = ([Version::ZERO; CONDITION_VERSIONS_MAX], 0);
    let mut is_empty = true;
    for line in lines {
        let mut rest = line.trim_ascii();
        while !rest.is_empty() {
            if let Some(next) = rest.strip_prefix(b",") {
                rest = next.trim_ascii_start();
                continue;
            }
            let Some((is_weak, opaque, behind)) = first_tag(rest) else {
                return refuse(
                    "an entity tag stands in double quotes, as in \"<version>\"; * stands alone",
                );
            };
            is_empty = false;
            rest = behind.trim_ascii_start();
            if !rest.is_empty() && rest[0] != b',' {
                return refuse("entity tags of a list stand in double quotes, with commas between");
            }
            let version = str::from_utf8(opaque).ok().and_then(|it| it.parse().ok());
            let Some(version) = version.filter(|it| !versions[..len].contains(it)) else {
                continue;
            };
            if is_weak && comparison == TagComparison::Strong {
                continue;
            }
            if len == versions.len() {
                return refuse(format!(
                    "a condition names at most {CONDITION_VERSIONS_MAX} versions"
                ));
            }
            versions[len] = version;
            len += 1;
        }
    }
    if is_empty {
        return refuse("the condition names no entity tag");
    }
    Ok(Some(NamedVersions { all: versions, len }))
}

/// Reads the lines of the two fields of one request.
pub(crate) fn parse(if_match: &[&[u8]], if_none_match: &[&[u8]]) -> Result<Condition, Refusal> {
    match (if_match, if_none_match) {
        ([], []) => Ok(Condition::None),
        (lines, []) => Ok(match read(lines, TagComparison::Strong)? {
            None => Condition::Present,
            Some(named) => Condition::matches_one_of(named.as_slice()),
        }),
        ([], lines) => Ok(match read(lines, TagComparison::Weak)? {
            None => Condition::Absent,
            Some(named) => Condition::differs_from_all(named.as_slice()),
        }),
        (_, _) => refuse("give If-Match or If-None-Match, not both"),
    }
}

/// Reads what a touch wants: a value that is there, of this version if it has `If-Match`.
pub(crate) fn of_touch(
    condition: Condition,
    has_if_none_match: bool,
) -> Result<Condition, Refusal> {
    match condition {
        _ if has_if_none_match => {
            refuse("a touch needs a value that is there: it takes If-Match, and not If-None-Match")
        }
        Condition::None => Ok(Condition::Present),
        condition => Ok(condition),
    }
}

/// Reads the two conditions of an item of a batch: a version stands there as in a header, or
/// without quotes.
pub(crate) fn parse_bare(
    if_match: Option<&[u8]>,
    if_none_match: Option<&[u8]>,
) -> Result<Condition, Refusal> {
    let version = |text: &[u8]| -> Result<Version, Refusal> {
        let read = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        read.map_or_else(|| refuse(NOT_OURS), Ok)
    };
    match (&if_match, &if_none_match) {
        (Some(text), None) if !has_marks(text) => version(text).map(Condition::Matches),
        (None, Some(text)) if !has_marks(text) => version(text).map(Condition::Differs),
        (if_match, if_none_match) => parse(
            if_match.as_ref().map_or(&[], slice::from_ref),
            if_none_match.as_ref().map_or(&[], slice::from_ref),
        ),
    }
}

/// Is it written as in a header?
fn has_marks(tag: &[u8]) -> bool {
    tag == b"*" || tag.contains(&b'"')
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
    const W: Version = Version { rmw: 1, ..V };
    const TAG: &[u8] = b"\"000000000000001f-2-0\"";
    const WEAK: &[u8] = b"W/\"000000000000001f-2-0\"";
    const OTHER: &[u8] = b"\"000000000000001f-2-1\"";

    #[test]
    fn each_form_has_one_meaning() {
        assert_eq!(parse(&[], &[]), Ok(Condition::None));
        let never = Condition::matches_one_of(&[]);
        let (both, neither) = (
            Condition::matches_one_of(&[V, W]),
            Condition::differs_from_all(&[V, W]),
        );
        let one = (Condition::Matches(V), Condition::Differs(V));
        let list = [TAG, b" ,, ", OTHER, b","].concat();
        let weakened = [b",", WEAK, b",", OTHER].concat();
        let foreign = [b"\"a, b\" ,", TAG, b", \"\""].concat();
        let table: [(&[&[u8]], Condition, Condition); 10] = [
            (&[b"*"], Condition::Present, Condition::Absent),
            (&[TAG], one.0.clone(), one.1.clone()),
            (&[TAG, TAG], one.0.clone(), one.1.clone()),
            (&[WEAK], never.clone(), one.1.clone()),
            (&[b"\"other\""], never.clone(), Condition::None),
            (&[b"\"a\",W/\"b\"", b""], never, Condition::None),
            (&[&foreign], one.0, one.1),
            (&[&list], both.clone(), neither.clone()),
            (&[TAG, OTHER], both, neither.clone()),
            (&[&weakened], Condition::Matches(W), neither),
        ];
        for (lines, if_match, if_none_match) in table {
            assert_eq!(parse(lines, &[]), Ok(if_match));
            assert_eq!(parse(&[], lines), Ok(if_none_match));
        }
    }

    #[test]
    fn a_condition_has_sixteen_versions_and_no_more() {
        let tag = |rmw: usize| format!("\"000000000000001f-2-{rmw:x}\"");
        let of = |len: usize| (0..len).map(tag).collect::<Vec<_>>().join(",");
        let (most, beyond) = (of(CONDITION_VERSIONS_MAX), of(CONDITION_VERSIONS_MAX + 1));
        let Ok(Condition::MatchesOneOf(versions)) = parse(&[most.as_bytes()], &[]) else {
            panic!("it is a list");
        };
        assert_eq!(versions.len(), CONDITION_VERSIONS_MAX);
        // FieldTags of others count for nothing, nor does a version that is there twice.
        let mixed = format!("{most}, \"a\", {}", tag(3));
        assert!(parse(&[], &[mixed.as_bytes()]).is_ok());
        let refusal = parse(&[], &[beyond.as_bytes()]).expect_err("too many");
        assert!(refusal.message.contains("at most 16"), "{refusal}");
    }

    #[test]
    fn what_could_be_misread_is_refused() {
        let table: [(&[&[u8]], &str); 9] = [
            (&[b"000000000000001f-2-0"], "double quotes"),
            (&[b"\"a"], "double quotes"),
            (&[b"w/\"a\""], "double quotes"),
            (&[b""], "no entity tag"),
            (&[b" , ", b","], "no entity tag"),
            (&[b"*", b"*"], "stands alone"),
            (&[b"\"a\", *"], "stands alone"),
            (&[b"\"a\"", b"*"], "stands alone"),
            (&[b"\"a\" \"b\""], "commas between"),
        ];
        let alone = table.iter().flat_map(|(lines, part)| {
            let both: [(&[&[u8]], &[&[u8]]); 2] = [(lines, &[]), (&[], lines)];
            both.map(|(if_match, if_none_match)| (if_match, if_none_match, *part))
        });
        let together: (&[&[u8]], &[&[u8]], &str) = (&[TAG], &[b"*"], "not both");
        for (if_match, if_none_match, part) in alone.chain([together]) {
            let refusal = parse(if_match, if_none_match).expect_err(part);
            assert_eq!((refusal.status, refusal.code), (400, "bad-condition"));
            assert!(refusal.message.contains(part), "{refusal}");
        }
    }
}
