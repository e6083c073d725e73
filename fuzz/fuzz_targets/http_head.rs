//! Request heads and routes of any bytes: no panic, and packets decide nothing.
//!
//! ```text
//! bytes --> parse_head, whole and at a cut that the first byte names --> route
//! ```
//!
//! Invariants
//! 1. A prefix is `Incomplete` or has the answer of the whole.
//! 2. A refusal of a route, a host or a page leaves the connection open; one of a head closes it.
//!
//! Not here: bodies (`http_chunked.rs`).
//! See: docs/api.md.

#![no_main]

use dendra_wire::http::{Limits, Parsed, parse_head};
use dendra_wire::hosts::{HostRule, Hosts, Sender};
use dendra_wire::{KeyBuf, RequestRules, route};
use libfuzzer_sys::fuzz_target;

const SETTINGS: RequestRules = RequestRules {
    nodes: 3,
    replication_factor: 3,
    key_bytes_max: 1024,
    value_bytes_max: 1 << 20,
};

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    let limits = Limits {
        head_bytes_max: 512,
        target_bytes_max: 128,
    };
    let whole = parse_head(bytes, &limits);
    let cut = bytes.len() * usize::from(cut) / 256;
    let part = parse_head(&bytes[..cut], &limits);
    assert!(
        part == Parsed::Incomplete || part == whole,
        "{part:?} {whole:?}"
    );
    match whole {
        Parsed::Incomplete => {}
        Parsed::Bad(refusal) => assert!(refusal.close),
        Parsed::Head(head) => {
            assert!(head.consumed <= bytes.len());
            let hosts = Hosts::new(["h".to_owned()], &[HostRule::Below(".x".to_owned())]);
            let sender = Sender::from(&head);
            for checked in [hosts.check_host(&sender), hosts.check_page(&sender)] {
                if let Err(refusal) = checked {
                    assert!(!refusal.close && refusal.message.len() < 300);
                }
            }
            let mut key = KeyBuf::new();
            if let Err(refusal) = route(&head, &SETTINGS, &mut key) {
                assert!(!refusal.close && refusal.message.len() < 300);
            }
        }
    }
});
