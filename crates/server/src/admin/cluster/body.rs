//! Bodies of orders: JSON to a [`ClusterOrder`], or a sentence that names the field.
//!
//! Invariants
//! 1. Every name in a body is one of its order's; each value has the shape that the sentence names.
//!
//! Not here: whether the order makes sense (crate `ownership`, `steward/`).
//! See: docs/api.md, section "Admin plane".

use dendra_ownership::steward::face::{ClusterOrder, DraftId, PlanWish};
use serde_json::{Map, Value};

/// The orders that have a body.
pub(super) const ORDERS: [&str; 8] = [
    "plan",
    "apply",
    "cancel",
    "readdress",
    "rekey",
    "throttle",
    "finalize",
    "accept-loss",
];

/// Why a body is no order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadBody {
    /// No order has this name.
    Unknown,
    /// The way out.
    Sentence(String),
}

fn bad<T>(sentence: impl Into<String>) -> Result<T, BadBody> {
    Err(BadBody::Sentence(sentence.into()))
}

/// The order `name` with this body.
pub(super) fn order(name: &str, bytes: &[u8]) -> Result<ClusterOrder, BadBody> {
    if !ORDERS.contains(&name) {
        return Err(BadBody::Unknown);
    }
    let mut fields = BodyFields::of(bytes)?;
    let order = match name {
        "plan" => ClusterOrder::Plan(PlanWish {
            remove: fields.texts("remove")?,
            weights: fields.map("weights", "a number from 0 to 65535", |value| {
                u16::try_from(value.as_u64()?).ok()
            })?,
            zones: fields.map("zones", "a text", |value| value.as_str().map(str::to_owned))?,
            replication_factor: fields.one(
                "replication_factor",
                "a number from 1 to 100",
                |it| u8::try_from(it.as_u64()?).ok(),
            )?,
        }),
        "apply" => {
            let shape = "the id of a plan: 16 hexadecimal digits";
            match fields.one("plan", shape, draft_id)? {
                Some(draft) => ClusterOrder::Apply { draft },
                None => return bad(format!("\"plan\" is missing: give {shape}")),
            }
        }
        "readdress" => ClusterOrder::Readdress {
            from: fields.text("from")?,
            to: fields.text("to")?,
        },
        "throttle" => match fields.one("bytes_per_second", RATE, rate)? {
            Some(bytes_per_second) => ClusterOrder::Throttle { bytes_per_second },
            None => return bad(format!("\"bytes_per_second\" is missing: give {RATE}")),
        },
        "accept-loss" => ClusterOrder::AcceptLoss {
            member: fields.text("member")?,
            confirm: fields.one(
                "confirm",
                "the id of a loss that was shown: 16 hexadecimal digits",
                draft_id,
            )?,
        },
        "rekey" => ClusterOrder::Rekey,
        "finalize" => ClusterOrder::Finalize,
        _ => ClusterOrder::Cancel,
    };
    fields.end(name)?;
    Ok(order)
}

/// A look for copies that differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LookWish {
    /// URLs of the members to compare with; none = all others.
    pub(super) with: Vec<String>,
    pub(super) bytes_per_second: Option<u64>,
}

/// The wish to look.
pub(super) fn look(bytes: &[u8]) -> Result<LookWish, BadBody> {
    let mut fields = BodyFields::of(bytes)?;
    let wish = LookWish {
        with: fields.texts("with")?,
        bytes_per_second: fields.one("bytes_per_second", RATE, rate)?,
    };
    fields.end("compare")?;
    Ok(wish)
}

const RATE: &str = "a number of bytes above 0";

fn rate(value: &Value) -> Option<u64> {
    value.as_u64().filter(|bytes| *bytes > 0)
}

fn draft_id(value: &Value) -> Option<DraftId> {
    value.as_str().and_then(DraftId::parse)
}

/// Fields of a body that were not read yet.
struct BodyFields(Map<String, Value>);

impl BodyFields {
    fn of(bytes: &[u8]) -> Result<BodyFields, BadBody> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(BodyFields(Map::new()));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(BodyFields(fields)),
            Ok(_) => {
                bad("the body is no JSON object: write it like {\"remove\": [\"http://h3:8080\"]}")
            }
            Err(error) => bad(format!("the body is no JSON: {error}")),
        }
    }

    /// A field, if it is there.
    fn one<T>(
        &mut self,
        name: &str,
        shape: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, BadBody> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => bad(format!("{name:?} is not {shape}")),
            },
        }
    }

    /// A text that has to be there.
    fn text(&mut self, name: &str) -> Result<String, BadBody> {
        let read = |value: &Value| value.as_str().map(str::to_owned);
        match self.one(name, "the URL of a member", read)? {
            Some(text) => Ok(text),
            None => bad(format!("{name:?} is missing: give the URL of a member")),
        }
    }

    fn texts(&mut self, name: &str) -> Result<Vec<String>, BadBody> {
        let read = |value: &Value| {
            let items = value.as_array()?.iter();
            let texts = items.map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>()
        };
        let texts = self.one(name, "a list of URLs of members", read)?;
        Ok(texts.unwrap_or_default())
    }

    /// An object from URLs of members to values.
    fn map<T>(
        &mut self,
        name: &str,
        shape: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<(String, T)>, BadBody> {
        let entries = |value: &Value| {
            let entries = value.as_object()?.iter();
            let entries = entries.map(|(url, entry)| Some((url.clone(), read(entry)?)));
            entries.collect::<Option<Vec<(String, T)>>>()
        };
        let shape = format!("an object from the URL of a member to {shape}");
        Ok(self.one(name, &shape, entries)?.unwrap_or_default())
    }

    /// No field is left.
    fn end(self, order: &str) -> Result<(), BadBody> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => bad(format!("the order {order} has no field {name:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_has_its_name_in_the_audit_log() {
        for order in ORDERS {
            let what = crate::audit::what_of("POST", &format!("/v0/cluster/{order}"));
            assert_eq!(what, format!("POST /v0/cluster/{order}"));
        }
    }

    #[test]
    fn a_look_is_read() {
        let wish = |with: &[&str], bytes_per_second| LookWish {
            with: with.iter().map(|url| (*url).to_owned()).collect(),
            bytes_per_second,
        };
        assert_eq!(look(b""), Ok(wish(&[], None)));
        let all = br#"{"with": ["http://a:1"], "bytes_per_second": 7}"#;
        assert_eq!(look(all), Ok(wish(&["http://a:1"], Some(7))));
        for bad in [
            r#"{"without": []}"#,
            r#"{"bytes_per_second": 0}"#,
            r#"{"with": 1}"#,
        ] {
            let read = look(bad.as_bytes());
            assert!(matches!(read, Err(BadBody::Sentence(_))), "{bad}: {read:?}");
        }
    }

    #[test]
    fn each_order_is_read() {
        let wish = br#"{"remove": ["http://a:1"], "weights": {"http://b:1": 0},
            "zones": {"http://c:1": "z"}, "replication_factor": 3}"#;
        assert_eq!(
            order("plan", wish),
            Ok(ClusterOrder::Plan(PlanWish {
                remove: vec!["http://a:1".to_owned()],
                weights: vec![("http://b:1".to_owned(), 0)],
                zones: vec![("http://c:1".to_owned(), "z".to_owned())],
                replication_factor: Some(3),
            }))
        );
        let draft = DraftId(0xab);
        let apply = format!("{{\"plan\": \"{draft}\"}}");
        assert_eq!(
            order("apply", apply.as_bytes()),
            Ok(ClusterOrder::Apply { draft })
        );
        let (member, confirm) = ("http://a:1".to_owned(), Some(draft));
        assert_eq!(
            order("accept-loss", br#"{"member": "http://a:1"}"#),
            Ok(ClusterOrder::AcceptLoss {
                member: member.clone(),
                confirm: None
            })
        );
        let accept = format!(r#"{{"member": "http://a:1", "confirm": "{draft}"}}"#);
        assert_eq!(
            order("accept-loss", accept.as_bytes()),
            Ok(ClusterOrder::AcceptLoss { member, confirm })
        );
        assert_eq!(order("cancel", b" \n"), Ok(ClusterOrder::Cancel));
        assert_eq!(order("rekey", b"{}"), Ok(ClusterOrder::Rekey));
        assert_eq!(order("finalize", b""), Ok(ClusterOrder::Finalize));
        assert_eq!(
            order(
                "readdress",
                br#"{"from": "http://a:1", "to": "http://b:1"}"#
            ),
            Ok(ClusterOrder::Readdress {
                from: "http://a:1".to_owned(),
                to: "http://b:1".to_owned()
            })
        );
        assert_eq!(
            order("throttle", br#"{"bytes_per_second": 7}"#),
            Ok(ClusterOrder::Throttle {
                bytes_per_second: 7
            })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, body, said) in [
            ("plan", r#"{"removes": []}"#, "has no field \"removes\""),
            (
                "plan",
                r#"{"remove": "http://a:1"}"#,
                "\"remove\" is not a list",
            ),
            ("plan", r#"{"remove": [1]}"#, "\"remove\" is not a list"),
            (
                "plan",
                r#"{"weights": {"http://a:1": 65536}}"#,
                "0 to 65535",
            ),
            ("plan", r#"{"replication_factor": 256}"#, "from 1 to 100"),
            ("plan", "[]", "no JSON object"),
            ("plan", "{", "no JSON"),
            ("apply", "{}", "\"plan\" is missing"),
            ("apply", r#"{"plan": "+00000000000000a"}"#, "16 hexadecimal"),
            (
                "readdress",
                r#"{"from": "http://a:1"}"#,
                "\"to\" is missing",
            ),
            ("accept-loss", "{}", "\"member\" is missing"),
            (
                "accept-loss",
                r#"{"member": "http://a:1", "confirm": "yes"}"#,
                "16 hexadecimal",
            ),
            ("throttle", r#"{"bytes_per_second": 0}"#, "above 0"),
            ("cancel", r#"{"plan": "x"}"#, "has no field \"plan\""),
        ] {
            let Err(BadBody::Sentence(sentence)) = order(name, body.as_bytes()) else {
                panic!("{name} {body} is wrong");
            };
            assert!(sentence.contains(said), "{name} {body}: {sentence}");
        }
        assert_eq!(order("plans", b"{}"), Err(BadBody::Unknown));
    }
}
