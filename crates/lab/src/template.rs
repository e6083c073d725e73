//! Requests as bytes: the fixed parts are rendered once, the rest is filled in.
//!
//! ```text
//! | PUT /v0/entity?id= | key, percent-encoded |  HTTP/1.1 CR LF Host: … CR LF fields |
//! | Content-Length: N CR LF | condition CR LF | CR LF | body |
//! ```
//!
//! Invariants
//! 1. Only `{key}`, `{key_base64}`, `{value}`, `{value_base64}` and `{limit}` are places to fill;
//!    other braces are themselves, so that JSON needs no escapes.
//! 2. A request that has a body says its exact length.
//!
//! Not here: which key and which value (`source.rs`).
//! See: docs/api.md for the requests of Dendra.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dendra_base::workload::{OPERATIONS, RequestKind};
use dendra_wire::percent;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Vec<u8>),
    Key,
    KeyBase64,
    Value,
    ValueBase64,
    Limit,
}

/// Names of the places to fill.
const PLACES: [(&str, TemplatePart); 5] = [
    ("{key}", TemplatePart::Key),
    ("{key_base64}", TemplatePart::KeyBase64),
    ("{value}", TemplatePart::Value),
    ("{value_base64}", TemplatePart::ValueBase64),
    ("{limit}", TemplatePart::Limit),
];

/// The places that can be filled in, for a sentence.
pub fn places() -> String {
    PLACES.map(|(name, _)| name).join(", ")
}

/// The first thing in braces in the path and query `target` that is no place. In bodies braces are
/// themselves.
pub fn unknown_place(target: &str) -> Option<&str> {
    let mut rest = target;
    while let Some(at) = rest.find('{') {
        rest = &rest[at..];
        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
        let place = &rest[..end];
        if !PLACES.iter().any(|(name, _)| *name == place) {
            return Some(place);
        }
        rest = &rest[end..];
    }
    None
}

fn pieces(text: &str) -> Vec<TemplatePart> {
    let mut out = Vec::new();
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match PLACES.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, place)) => {
                if !plain.is_empty() {
                    out.push(TemplatePart::Text(std::mem::take(&mut plain)));
                }
                out.push(place.clone());
                rest = &rest[name.len()..];
            }
            None => {
                let len = first.len_utf8();
                plain.extend_from_slice(&rest.as_bytes()[..len]);
                rest = &rest[len..];
            }
        }
    }
    if !plain.is_empty() {
        out.push(TemplatePart::Text(plain));
    }
    out
}

/// The values to fill in.
#[derive(Clone, Copy, Debug)]
pub struct Fill<'a> {
    /// Raw bytes of the key.
    pub key: &'a [u8],
    /// Raw bytes of the value.
    pub value: &'a [u8],
    /// Records of a scan.
    pub limit: u32,
    /// One header line without its end, such as `If-None-Match: *`; empty for none.
    pub condition: &'a [u8],
}

/// One kind of request to one target.
#[derive(Clone, Debug)]
pub struct Template {
    /// Method, a space, and the target.
    line: Vec<TemplatePart>,
    /// Everything from ` HTTP/1.1` to the last line that never changes.
    fields: Vec<u8>,
    body: Option<Vec<TemplatePart>>,
}

fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

impl Template {
    /// `target` is path and query with places; `body` with places, or none.
    pub fn new(
        method: &str,
        target: &str,
        host: &str,
        fields: &[String],
        body: Option<&str>,
    ) -> Template {
        let mut lines = format!(" HTTP/1.1\r\nHost: {host}\r\n");
        for field in fields {
            lines.push_str(field);
            lines.push_str("\r\n");
        }
        Template {
            line: pieces(&format!("{method} {target}")),
            fields: lines.into_bytes(),
            body: body.map(pieces),
        }
    }

    /// Appends the request to `out`.
    pub fn render(&self, fill: &Fill<'_>, out: &mut Vec<u8>) {
        for piece in &self.line {
            match piece {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Key => percent::encode_into(fill.key, out),
                TemplatePart::Value => percent::encode_into(fill.value, out),
                TemplatePart::KeyBase64 => {
                    percent::encode_into(STANDARD.encode(fill.key).as_bytes(), out)
                }
                TemplatePart::ValueBase64 => {
                    percent::encode_into(STANDARD.encode(fill.value).as_bytes(), out);
                }
                TemplatePart::Limit => decimal(u64::from(fill.limit), out),
            }
        }
        out.extend_from_slice(&self.fields);
        if !fill.condition.is_empty() {
            out.extend_from_slice(fill.condition);
            out.extend_from_slice(b"\r\n");
        }
        let Some(body) = &self.body else {
            out.extend_from_slice(b"\r\n");
            return;
        };
        out.extend_from_slice(b"Content-Length: ");
        decimal(body_len(body, fill), out);
        out.extend_from_slice(b"\r\n\r\n");
        for piece in body {
            match piece {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Key => out.extend_from_slice(fill.key),
                TemplatePart::Value => out.extend_from_slice(fill.value),
                TemplatePart::KeyBase64 => {
                    out.extend_from_slice(STANDARD.encode(fill.key).as_bytes())
                }
                TemplatePart::ValueBase64 => {
                    out.extend_from_slice(STANDARD.encode(fill.value).as_bytes());
                }
                TemplatePart::Limit => decimal(u64::from(fill.limit), out),
            }
        }
    }
}

fn body_len(body: &[TemplatePart], fill: &Fill<'_>) -> u64 {
    let in_base64 = |bytes: &[u8]| bytes.len().div_ceil(3) * 4;
    let len: usize = body
        .iter()
        .map(|piece| match piece {
            TemplatePart::Text(text) => text.len(),
            TemplatePart::Key => fill.key.len(),
            TemplatePart::Value => fill.value.len(),
            TemplatePart::KeyBase64 => in_base64(fill.key),
            TemplatePart::ValueBase64 => in_base64(fill.value),
            TemplatePart::Limit => fill
                .limit
                .checked_ilog10()
                .map_or(1, |log| log as usize + 1),
        })
        .sum();
    len as u64
}

/// How requests of a target look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestStyle {
    /// Path and query with places, for every operation; none means Dendra's own routes.
    pub path: Option<String>,
    /// Method for every operation; none means GET, PUT and DELETE by operation.
    pub method: Option<String>,
    /// Body of every request; none means the value where one is written.
    pub body: Option<String>,
    /// Header lines, without their ends.
    pub fields: Vec<String>,
    /// Appended to the query of Dendra's own routes: `ack=1&from=1`.
    pub query: String,
}

/// Templates of one target.
#[derive(Clone, Debug)]
pub struct Templates {
    read: Template,
    write: Template,
    delete: Template,
    scan: Template,
    /// For recorded requests: host, and fields that never change.
    host: String,
    fields: Vec<String>,
}

impl Templates {
    /// Templates of `style` for a target whose base path is `base`.
    pub fn new(style: &RequestStyle, host: &str, base: &str) -> Templates {
        let base = base.trim_end_matches('/');
        let and = |mark: &str| match style.query.as_str() {
            "" => String::new(),
            query => format!("{mark}{query}"),
        };
        let make = |method: &str, own: String, body: Option<&str>, more: &[&str]| {
            let path = style.path.clone().unwrap_or(own);
            let method = style.method.as_deref().unwrap_or(method);
            let mut fields = style.fields.clone();
            if style.path.is_none() {
                fields.extend(more.iter().map(|&field| field.to_owned()));
            }
            let body = style.body.as_deref().or(body);
            Template::new(method, &path, host, &fields, body)
        };
        let entity = format!("{base}/v0/entity?id={{key}}{}", and("&"));
        let entities = format!("{base}/v0/entities?start={{key}}&limit={{limit}}");
        Templates {
            read: make("GET", entity.clone(), None, &[]),
            write: make("PUT", entity.clone(), Some("{value}"), &[]),
            delete: make("DELETE", entity, None, &[]),
            scan: make(
                "GET",
                entities,
                None,
                &["Accept: application/vnd.dendra.records"],
            ),
            host: host.to_owned(),
            fields: style.fields.clone(),
        }
    }

    /// The first request of an operation.
    pub fn first(&self, operation: RequestKind) -> &Template {
        match operation {
            RequestKind::Get | RequestKind::ReadModifyWrite | RequestKind::CompareAndSet => {
                &self.read
            }
            RequestKind::Put | RequestKind::Insert | RequestKind::Create => &self.write,
            RequestKind::Delete => &self.delete,
            RequestKind::Scan => &self.scan,
        }
    }

    /// The second request of an operation that reads and then writes.
    pub fn second(&self) -> &Template {
        &self.write
    }

    /// Appends a request whose target was recorded.
    pub fn recorded(&self, method: &str, target: &[u8], body: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(self.host.as_bytes());
        out.extend_from_slice(b"\r\n");
        for field in &self.fields {
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        if method == "PUT" || !body.is_empty() {
            out.extend_from_slice(b"Content-Length: ");
            decimal(body.len() as u64, out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }
}

const _: () = assert!(OPERATIONS == 8);

#[cfg(test)]
mod tests {
    use super::*;

    fn text(templates: &Templates, operation: RequestKind, condition: &[u8]) -> String {
        let fill = Fill {
            key: b"a b",
            value: b"\"v\"",
            limit: 10,
            condition,
        };
        let mut out = Vec::new();
        templates.first(operation).render(&fill, &mut out);
        String::from_utf8(out).expect("it is ASCII")
    }

    #[test]
    fn a_write_to_dendra_is_its_own_route_with_the_condition() {
        let style = RequestStyle {
            query: "ack=1".to_owned(),
            ..RequestStyle::default()
        };
        let templates = Templates::new(&style, "h:1", "/");
        assert_eq!(
            text(&templates, RequestKind::Create, b"If-None-Match: *"),
            "PUT /v0/entity?id=a%20b&ack=1 HTTP/1.1\r\nHost: h:1\r\nIf-None-Match: *\r\n\
             Content-Length: 3\r\n\r\n\"v\""
        );
        let scan = text(&templates, RequestKind::Scan, b"");
        assert!(
            scan.starts_with("GET /v0/entities?start=a%20b&limit=10 HTTP/1.1\r\n"),
            "{scan}"
        );
    }

    #[test]
    fn what_is_no_place_in_a_path_is_found() {
        assert_eq!(unknown_place("/kv/{key}?n={limit}"), None);
        assert_eq!(unknown_place("/kv/{key}/{foo}/{bar}"), Some("{foo}"));
        assert_eq!(unknown_place("/kv/{key"), Some("{key"));
    }

    #[test]
    fn another_store_is_asked_by_templates_and_json_braces_stay() {
        let style = RequestStyle {
            path: Some("/v3/kv/put".to_owned()),
            method: Some("POST".to_owned()),
            body: Some(r#"{"key": "{key_base64}", "n": {limit}, "x": {}}"#.to_owned()),
            fields: vec!["A: b".to_owned()],
            ..RequestStyle::default()
        };
        let templates = Templates::new(&style, "h", "");
        let body = r#"{"key": "YSBi", "n": 10, "x": {}}"#;
        let expected = format!(
            "POST /v3/kv/put HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(text(&templates, RequestKind::Get, b""), expected);
    }

    #[test]
    fn numbers_are_written_whole() {
        for number in [0, 7, 10, 99, 100, u64::MAX] {
            let mut out = Vec::new();
            decimal(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
