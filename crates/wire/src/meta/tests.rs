use super::*;
use crate::legal;
use dendra_base::limits::{VALUE_BYTES_MAX_LIMIT, WRAPPED_VALUE_BYTES_MAX, WRAPPER_BYTES_MAX};
use proptest::prelude::*;

const LETTERS: &str = "[a-z0-9!#$%&'*+.^_`|~-]{1,12}";

/// Metadata of any legal shape: none, some, the most entries, the most bytes.
pub(crate) fn meta() -> impl Strategy<Value = MetaBuf> {
    let content = prop_oneof![
        Just(String::new()),
        "[!-~]([ -~\u{80}-\u{2fff}]{0,20}[!-~])?"
    ];
    let names = prop::collection::btree_map(LETTERS, content, 0..6);
    let kind = prop::option::of("[a-z]{1,8}/[a-z]{1,8}(; q=[a-z]{1,9})?");
    prop_oneof![
        2 => Just(MetaBuf::default()),
        6 => (kind, names).prop_map(|(kind, names)| {
            let named: Vec<_> = names.into_iter().collect();
            MetaBuf::new(kind.as_deref().map(str::as_bytes), &named).expect("it is legal")
        }),
        1 => Just(largest(META_LEN_MAX)),
        1 => Just(largest(1)),
    ]
}

/// As many bytes as there may be, in `len` entries.
fn largest(len: usize) -> MetaBuf {
    let mut named: Vec<_> = (0..len)
        .map(|n| (format!("n{n:02}"), String::new()))
        .collect();
    let names: usize = named.iter().map(|(name, _)| name.len()).sum();
    named[0].1 = "c".repeat(META_BYTES_MAX - names);
    MetaBuf::new(None, &named).expect("it is as large as it may be")
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let stored = (meta(), legal::small_value());
    prop_oneof![
        3 => legal::small_value().prop_map(|value| value.to_vec()),
        1 => legal::small_value().prop_map(|value| [&MAGIC[..], &value].concat()),
        1 => (0..HEAD_BYTES).prop_map(|len| EMPTY[..len].to_vec()),
        1 => stored.prop_map(|(meta, value)| wrap(&meta, &value).unwrap_or(value.to_vec())),
    ]
}

proptest! {
    #![proptest_config(legal::cases(512))]

    #[test]
    fn any_legal_metadata_and_value_are_unwrapped_as_they_were_wrapped(
        meta in meta(), value in value(),
    ) {
        let stored = wrap(&meta, &value);
        let has_more = !meta.as_meta().is_empty() || value.starts_with(&MAGIC);
        prop_assert_eq!(stored.is_some(), has_more);
        let stored = stored.unwrap_or_else(|| value.clone());
        prop_assert_eq!(unwrap(&stored), (meta.as_meta(), value.as_slice()));
        prop_assert!(stored.len() <= value.len() + WRAPPER_BYTES_MAX);
        let mut behind = [meta.front(), &value].concat();
        wrap_behind(&meta, &mut behind);
        prop_assert_eq!(&behind, &stored);
        prop_assert_eq!(MetaBuf::from(unwrap(&stored).0), meta);
    }

    #[test]
    fn other_bytes_are_values_and_those_that_are_wrapped_are_wrapped_once(
        mut bytes in value(), at in 0..40_usize, byte: u8,
    ) {
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        let (meta, value) = unwrap(&bytes);
        if meta.is_empty() && value == bytes {
            prop_assert!(unwrap_exact(&bytes).is_none());
        } else {
            prop_assert_eq!(wrap(&meta.into(), value), Some(bytes));
        }
    }

    #[test]
    fn any_header_line_that_a_client_may_send_is_refused_or_comes_back(
        name in prop::collection::vec(any::<u8>(), 0..4),
        content in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        if let Ok(built) = MetaBuf::new(None, &[(&name, &content)]) {
            let shown: Vec<_> = built.as_meta().named().collect();
            let name = String::from_utf8(name).expect("a token").to_ascii_lowercase();
            let content = String::from_utf8(content).expect("it is UTF-8");
            prop_assert!(!content.contains(['\r', '\n', '\0']));
            prop_assert_eq!(content.trim_matches([' ', '\t']), &content);
            prop_assert_eq!(shown, [(name.as_str(), content.as_str())]);
        }
    }
}

#[test]
fn the_largest_metadata_and_the_largest_value_have_the_largest_wrapper() {
    let stored = wrap(&largest(META_LEN_MAX), &vec![7; VALUE_BYTES_MAX_LIMIT]);
    assert_eq!(
        stored.expect("it is wrapped").len(),
        WRAPPED_VALUE_BYTES_MAX
    );
}

#[test]
fn metadata_that_is_refused_is_told_why() {
    let long = "c".repeat(META_BYTES_MAX);
    let many: Vec<_> = (0..=META_LEN_MAX).map(|n| (n.to_string(), "")).collect();
    let refuse = |kind: Option<&str>, named: &[(&str, &str)]| {
        let refused = MetaBuf::new(kind.map(str::as_bytes), named).expect_err("it is refused");
        assert_eq!((refused.status, refused.code), (400, "bad-metadata"));
        refused.message.into_owned()
    };
    let table = [
        (refuse(None, &[("", "x")]), "`` is no name"),
        (refuse(None, &[("a b", "x")]), "`a b` is no name"),
        (
            refuse(None, &[("a", "x\r\nSet-Cookie: y")]),
            "content of `a`",
        ),
        (refuse(None, &[("a", " x")]), "content of `a`"),
        (
            refuse(Some("text/html\r\nX: y"), &[]),
            "content of the content type",
        ),
        (
            refuse(None, &[("a", "1"), ("A", "2")]),
            "`a` is there more than once",
        ),
        (refuse(None, &[("a", &long)]), "at most 4096 bytes"),
        (
            refuse(Some(&long[1..]), &[("a", "b")]),
            "at most 4096 bytes",
        ),
    ];
    for (message, part) in table {
        assert!(message.contains(part), "{message}");
    }
    let refused = MetaBuf::new(None, &many).expect_err("there are too many");
    assert!(
        refused.message.contains("at most 32 entries"),
        "{}",
        refused.message
    );
}

#[test]
fn a_content_type_that_says_nothing_is_none() {
    for kind in [
        "",
        "application/octet-stream",
        "Application/X-WWW-Form-Urlencoded; charset=utf-8",
    ] {
        let built = MetaBuf::new::<&str, &str>(Some(kind.as_bytes()), &[]);
        assert_eq!(built, Ok(MetaBuf::default()), "{kind}");
    }
    let built = MetaBuf::new(Some(b"text/plain"), &[("B", "2"), ("a", "")]).expect("it is legal");
    assert_eq!(built.as_meta().content_type(), Some("text/plain"));
    let named: Vec<_> = built.as_meta().named().collect();
    assert_eq!(named, [("a", ""), ("b", "2")]);
}

/// The bytes of the format, so that another version reads them.
#[test]
fn a_wrapped_value_has_these_bytes() {
    let meta = MetaBuf::new(Some(b"a/b"), &[("n", "c")]).expect("it is legal");
    let stored = b"\xf5dm\xff\x01\x00\x0d\x00\x00\x00\x03a/b\x00\x01\x00\x01ncvalue";
    assert_eq!(wrap(&meta, b"value").as_deref(), Some(&stored[..]));
}

#[test]
fn entries_that_were_not_checked_are_no_metadata() {
    let of = |entries: &[(&str, &str)]| {
        let mut bytes = Vec::new();
        for (name, content) in entries {
            bytes.extend_from_slice(&(name.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&(content.len() as u16).to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(content.as_bytes());
        }
        [&front(&bytes)[..], b"value"].concat()
    };
    assert!(unwrap_exact(&of(&[("", "text/plain"), ("a", "x")])).is_some());
    for entries in [
        &[("a", "x\r\nSet-Cookie: y")][..],
        &[("A", "x")],
        &[("a:", "x")],
        &[("b", ""), ("a", "")],
        &[("a", ""), ("a", "")],
        &[("", "application/octet-stream")],
        &[],
    ] {
        let stored = of(entries);
        assert_eq!(
            unwrap(&stored),
            (Meta::default(), &stored[..]),
            "{entries:?}"
        );
    }
}
