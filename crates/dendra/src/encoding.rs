//! Keys and values as a terminal carries them: raw, hexadecimal or base64; and as JSON.
//!
//! ```text
//! --hex       00ff41            upper or lower case in, lower case out
//! --base64    AP9B              RFC 4648 with padding; missing padding is accepted
//! JSON        "key": "text"     or "key_base64": "AP9B" when the bytes are no UTF-8
//! ```
//!
//! Invariants
//! 1. `decode(encode(bytes)) == bytes` for every encoding and every bytes.
//! 2. White space around encoded text is no part of it; raw bytes are never trimmed.
//!
//! Not here: percent-encoding (crate `wire`).
//! See: docs/cli.md.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use dendra_base::hex;
use dendra_wire::meta::{Meta, MetaBuf};
use serde_json::{Map, Value};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Bytes as they are.
    Raw,
    /// Two hexadecimal digits a byte.
    Hex,
    /// RFC 4648.
    Base64,
}

impl Encoding {
    /// The bytes that `text` stands for; the error is the end of a sentence.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Vec<u8>, String> {
        let trimmed = text.trim_ascii();
        match self {
            Encoding::Raw => Ok(text.to_vec()),
            Encoding::Hex => decode_hex(trimmed),
            Encoding::Base64 => BASE64
                .decode(trimmed)
                .map_err(|e| format!("is not base64 ({e})")),
        }
    }

    /// `bytes` as text.
    pub(crate) fn encode(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Encoding::Raw => bytes.to_vec(),
            Encoding::Hex => encode_hex(bytes),
            Encoding::Base64 => BASE64.encode(bytes).into_bytes(),
        }
    }
}

fn encode_hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| DIGITS[usize::from(n)];
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn decode_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!(
            "is not hexadecimal ({} digits, and a byte has two)",
            text.len()
        ));
    }
    text.chunks_exact(2)
        .map(|pair| {
            let wrong = || format!("is not hexadecimal ({:?})", pair.escape_ascii().to_string());
            hex::pair(pair[0], pair[1]).ok_or_else(wrong)
        })
        .collect()
}

/// Puts `bytes` into `object` as `name`, or as `name_base64` when they are no UTF-8.
pub(crate) fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), Value::from(text)),
        Err(_) => object.insert(format!("{name}_base64"), Value::from(BASE64.encode(bytes))),
    };
}

/// Takes the field that `put_json` put; the error is a sentence.
pub(crate) fn take_json(object: &mut Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let encoded = format!("{name}_base64");
    match (object.remove(name), object.remove(&encoded)) {
        (Some(_), Some(_)) => Err(format!("has both {name:?} and {encoded:?}; keep one")),
        (Some(Value::String(text)), None) => Ok(text.into_bytes()),
        (None, Some(Value::String(text))) => Encoding::Base64
            .decode(text.as_bytes())
            .map_err(|rest| format!("{encoded:?} {rest}")),
        (None, None) => Err(format!("has neither {name:?} nor {encoded:?}")),
        _ => Err(format!("{name:?} is not a string")),
    }
}

/// Puts the metadata of a value, as far as there is any: `content_type`, and `meta`.
pub(crate) fn put_meta(object: &mut Map<String, Value>, meta: Meta<'_>) {
    if let Some(content_type) = meta.content_type() {
        object.insert("content_type".to_owned(), Value::from(content_type));
    }
    let named = meta.named();
    let named: Map<String, Value> = named.map(|(n, c)| (n.to_owned(), c.into())).collect();
    if !named.is_empty() {
        object.insert("meta".to_owned(), Value::Object(named));
    }
}

/// Takes the fields that `put_meta` put; the error is a sentence.
pub(crate) fn take_meta(object: &mut Map<String, Value>) -> Result<MetaBuf, String> {
    let content_type = match object.remove("content_type") {
        None => None,
        Some(Value::String(text)) => Some(text),
        Some(_) => return Err("\"content_type\" is not a string".to_owned()),
    };
    let named = match object.remove("meta") {
        None => Map::new(),
        Some(Value::Object(named)) => named,
        Some(_) => return Err("\"meta\" is not an object".to_owned()),
    };
    let text = |content: &Value| match content {
        Value::String(text) => Ok(text.clone()),
        _ => Err("\"meta\" has something else than strings".to_owned()),
    };
    let named = named
        .iter()
        .map(|(name, it)| text(it).map(|content| (name, content)));
    let named = named.collect::<Result<Vec<_>, String>>()?;
    MetaBuf::new(content_type.as_deref().map(str::as_bytes), &named)
        .map_err(|refusal| format!("has metadata that is none: {}", refusal.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(legal::cases(96))]

        #[test]
        fn any_legal_bytes_are_read_from_every_encoding(
            key in legal::raw_key(), value in legal::value(),
        ) {
            for bytes in [&key[..], &value] {
                for encoding in [Encoding::Raw, Encoding::Hex, Encoding::Base64] {
                    let read = encoding.decode(&encoding.encode(bytes));
                    prop_assert!(read.as_deref() == Ok(bytes), "{:?}", encoding);
                }
            }
            let mut object = Map::new();
            put_json(&mut object, "key", &key);
            put_json(&mut object, "value", &value);
            let line = Value::Object(object).to_string();
            prop_assert!(!line.contains('\n'), "a line of NDJSON");
            let mut object = serde_json::from_str(&line)?;
            prop_assert!(take_json(&mut object, "value").as_deref() == Ok(&value));
            prop_assert_eq!(take_json(&mut object, "key"), Ok(key));
            prop_assert!(object.is_empty());
        }
    }

    #[test]
    fn every_byte_survives_every_encoding() {
        let bytes: Vec<u8> = (0..=255).collect();
        for encoding in [Encoding::Raw, Encoding::Hex, Encoding::Base64] {
            let text = encoding.encode(&bytes);
            assert_eq!(encoding.decode(&text).as_deref(), Ok(bytes.as_slice()));
        }
        assert_eq!(Encoding::Hex.encode(b"\x00\xffA"), b"00ff41");
        assert_eq!(Encoding::Base64.encode(b"\x00\xffA"), b"AP9B");
    }

    #[test]
    fn encoded_text_may_end_in_a_line_feed_and_raw_bytes_keep_it() {
        assert_eq!(Encoding::Hex.decode(b"00FF\n"), Ok(vec![0, 255]));
        assert_eq!(Encoding::Base64.decode(b" YQ \n"), Ok(b"a".to_vec()));
        assert_eq!(Encoding::Raw.decode(b" a\n"), Ok(b" a\n".to_vec()));
    }

    #[test]
    fn broken_text_is_refused() {
        for (encoding, text) in [
            (Encoding::Hex, "0"),
            (Encoding::Hex, "0g"),
            (Encoding::Hex, "+1"),
            (Encoding::Base64, "A"),
            (Encoding::Base64, "AP9B AP9B"),
        ] {
            assert!(encoding.decode(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn json_carries_text_as_text_and_bytes_as_base64() {
        let mut object = Map::new();
        put_json(&mut object, "key", "grüße".as_bytes());
        put_json(&mut object, "value", b"\xff");
        assert_eq!(object["key"], "grüße");
        assert_eq!(object["value_base64"], "/w==");
        assert_eq!(
            take_json(&mut object, "key"),
            Ok("grüße".as_bytes().to_vec())
        );
        assert_eq!(take_json(&mut object, "value"), Ok(vec![0xff]));
        assert!(take_json(&mut object, "value").is_err());
    }
}
