//! The bytes of each answer.

use super::facts::{hexadecimal, sixteen_digits};
use super::*;
use crate::http::{Limits, Parsed, parse_head};
use dendra_base::{Consistency, Durability};

const VERSION: Version = Version {
    hlc: 0x0193_abcd_0000_0001,
    origin: 0x1f,
    rmw: 0,
};
const RECEIPT: Receipt = Receipt {
    acks: 1,
    from: 1,
    level: Consistency::Linearizable,
    durability: Durability::Sync,
};
const FOUND: Found = Found {
    version: VERSION,
    expiry_ms: None,
    receipt: RECEIPT,
};
const KEEP: Style = Style {
    page: None,
    connection: ConnectionFate::Persist,
    omits_body: false,
    line: None,
};
const HEAD_ONLY: Style = Style {
    page: None,
    connection: ConnectionFate::Persist,
    omits_body: true,
    line: None,
};
const TAG: &str = "ETag: \"0193abcd00000001-1f-0\"\r\n";
const ACHIEVED: &str = "Dendra-Receipt: acks=1/1; level=linearizable; durability=sync\r\n";

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("these answers are ASCII")
}

#[test]
fn only_the_answer_to_head_has_no_body() {
    for (method, omits_body) in [("HEAD", true), ("GET", false), ("PUT", false)] {
        let text = format!("{method} /v0/records/k HTTP/1.1\r\nHost: h\r\n\r\n");
        let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
            panic!("{text:?} is a head");
        };
        assert_eq!(Style::of(&head).omits_body, omits_body, "{method}");
    }
}

#[test]
fn a_client_that_waits_is_told_to_send_its_body() {
    assert_eq!(written(proceed), "HTTP/1.1 100 Continue\r\n\r\n");
}

#[test]
fn a_value_comes_with_its_version_and_receipt() {
    let start = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nX-Content-Type-Options: nosniff\r\n";
    let plain = written(|out| value(out, KEEP, &FOUND, b"abc"));
    assert_eq!(
        plain,
        format!("{start}{TAG}{ACHIEVED}Content-Length: 3\r\n\r\nabc")
    );
    let expiring = Found {
        expiry_ms: Some(1_754_000_000_000),
        ..FOUND
    };
    let head = written(|out| value(out, HEAD_ONLY, &expiring, b"abc"));
    let expires = "Dendra-Expires: 1754000000000\r\n";
    assert_eq!(
        head,
        format!("{start}{TAG}{ACHIEVED}{expires}Content-Length: 3\r\n\r\n")
    );
}

#[test]
fn writes_are_answered_without_a_body() {
    let end = "Content-Length: 0\r\n";
    let created = written(|out| created(out, KEEP, VERSION, RECEIPT));
    assert_eq!(
        created,
        format!("HTTP/1.1 201 Created\r\n{TAG}{ACHIEVED}{end}\r\n")
    );
    let accepted = written(|out| accepted(out, KEEP.closing(), VERSION, RECEIPT));
    assert_eq!(
        accepted,
        format!("HTTP/1.1 202 Accepted\r\n{TAG}{ACHIEVED}{end}Connection: close\r\n\r\n")
    );
}

#[test]
fn absence_is_an_outcome_with_a_receipt() {
    let receipt = Receipt {
        acks: 1,
        from: 3,
        level: Consistency::Eventual,
        durability: Durability::Os,
    };
    assert_eq!(
        written(|out| absent(out, KEEP, receipt)),
        "HTTP/1.1 404 Not Found\r\nDendra-Receipt: acks=1/3; level=eventual; durability=os\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn a_failed_condition_names_the_current_version() {
    let present = written(|out| condition_failed(out, KEEP, Some(VERSION)));
    assert!(present.starts_with("HTTP/1.1 412 Precondition Failed\r\n"));
    assert!(present.contains(TAG));
    assert!(present.contains("Dendra-Receipt: outcome=not-applied\r\n"));
    assert!(present.ends_with("\r\n\r\ncondition-failed: the record has the version in ETag\n"));
    let whole = written(|out| condition_failed_with(out, KEEP, VERSION, Some(7), b"value"));
    assert!(whole.starts_with("HTTP/1.1 412 "));
    for line in [
        "Preference-Applied: return=representation",
        "Dendra-Expires: 7",
        "Dendra-Receipt: outcome=not-applied",
        "Content-Length: 5",
    ] {
        assert!(whole.contains(&format!("\r\n{line}\r\n")), "{whole}");
    }
    assert!(whole.contains("\r\nETag: ") && whole.ends_with("\r\n\r\nvalue"));
    let absent = written(|out| condition_failed(out, KEEP, None));
    assert!(!absent.contains("ETag"));
}

#[test]
fn a_refusal_is_one_sentence_behind_its_code_word() {
    let bad = Refusal::bad("bad-quorum", "ack=3 exceeds from=2");
    assert_eq!(
        written(|out| refusal(out, KEEP, &bad)),
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\nContent-Length: 33\r\n\r\nbad-quorum: ack=3 exceeds from=2\n"
    );
    let method = written(|out| refusal(out, HEAD_ONLY, &Refusal::method_not_allowed("GET")));
    assert!(method.contains("\r\nAllow: GET\r\n") && method.ends_with("\r\n\r\n"));
    let few = Refusal::too_few_answers(1, 2, 3, Known::Unknown);
    let few = written(|out| refusal(out, KEEP, &few));
    assert!(few.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"));
    assert!(few.contains("\r\nDendra-Receipt: acks=1/3; outcome=unknown\r\n"));
    let overtaken = Refusal::overtaken(2, 3);
    let overtaken = written(|out| refusal(out, KEEP, &overtaken));
    assert!(overtaken.contains("\r\nDendra-Receipt: acks=2/3; outcome=unknown\r\n"));
    assert!(overtaken.contains("overtaken: another write came over this one"));
    let full = written(|out| refusal(out, KEEP, &Refusal::disk_full(5)));
    assert!(full.starts_with("HTTP/1.1 507 ") && full.contains("\r\nRetry-After: 5\r\n"));
    let broken = written(|out| refusal(out, KEEP, &Refusal::framing("broken")));
    assert!(
        broken.contains("\r\nConnection: close\r\n"),
        "broken framing closes"
    );
}

#[test]
fn an_http_1_0_client_is_told_that_its_connection_stays() {
    let keep = Style {
        connection: ConnectionFate::KeepAlive,
        ..KEEP
    };
    let text = written(|out| text(out, keep, 200, "serving\n"));
    assert!(text.contains("\r\nConnection: keep-alive\r\n\r\nserving\n"));
}

#[test]
fn every_answer_to_a_page_of_an_allowed_origin_says_so() {
    let origin = "https://app.example.com";
    let style = Style {
        page: Some(PageLines::new(origin)),
        ..KEEP
    };
    let told = format!("\r\nAccess-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n");
    for answer in [
        written(|out| text(out, style, 200, "serving\n")),
        written(|out| refusal(out, style, &Refusal::disk_full(5))),
        written(|out| scan_head(out, style, Framing::Ndjson, RECEIPT)),
        written(|out| absent(out, style, RECEIPT)),
        written(|out| preflight(out, style)),
    ] {
        assert!(answer.contains(&told), "{answer}");
        assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{answer}");
    }
}

#[test]
fn a_scan_declares_its_trailer() {
    assert_eq!(
        written(|out| scan_head(out, KEEP, Framing::Ndjson, RECEIPT)),
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nX-Content-Type-Options: nosniff\r\n{ACHIEVED}Transfer-Encoding: chunked\r\nTrailer: Dendra-Scan\r\n\r\n"
        )
    );
}

#[test]
fn the_longest_head_stays_below_its_bound() {
    let longest = Found {
        version: Version::MAX,
        expiry_ms: Some(u64::MAX),
        receipt: Receipt {
            acks: 255,
            from: 255,
            ..RECEIPT
        },
    };
    let style = Style {
        connection: ConnectionFate::KeepAlive,
        omits_body: true,
        line: None,
        page: None,
    };
    assert!(written(|out| value(out, style, &longest, b"")).len() < ANSWER_HEAD_BYTES_MAX);
}

#[test]
fn numbers_are_written_as_the_formatter_writes_them() {
    for shift in 0..64 {
        for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
            assert_eq!(written(|out| decimal(out, number)), number.to_string());
            assert_eq!(
                sixteen_digits(number).as_slice(),
                format!("{number:016x}").as_bytes()
            );
            let short = number as u32;
            assert_eq!(written(|out| hexadecimal(out, short)), format!("{short:x}"));
        }
    }
}

#[test]
fn every_status_that_a_refusal_uses_has_its_words() {
    for status in [
        400, 405, 406, 408, 413, 414, 415, 417, 431, 500, 501, 503, 504, 505, 507,
    ] {
        assert!(!reason(status).is_empty(), "{status}");
    }
}
