//! Request heads and routes: any bytes, cut anywhere.
#![no_main]

use dendra_wire::http::{Limits, Parsed, parse_head};
use dendra_wire::{KeyBuf, Settings, route};
use libfuzzer_sys::fuzz_target;

const SETTINGS: Settings = Settings {
    nodes: 3,
    replication_factor: 3,
    key_bytes_max: 1024,
    value_bytes_max: 1 << 20,
};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let cut = usize::from(cut).min(bytes.len());
    let whole = parse_head(bytes, &Limits::USUAL);
    let prefix = parse_head(&bytes[..cut], &Limits::USUAL);
    assert!(
        prefix == Parsed::Incomplete || prefix == whole,
        "packets decide nothing: {prefix:?} became {whole:?}"
    );
    if let Parsed::Head(head) = whole {
        assert!(head.consumed <= bytes.len());
        let mut key = KeyBuf::new();
        if let Err(refusal) = route(&head, &SETTINGS, &mut key) {
            assert!((400..600).contains(&refusal.status));
            assert!(!refusal.message.contains(['\r', '\n']), "{refusal}");
        }
    }
});
