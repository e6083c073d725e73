//! Any bytes as an object of a backup: every frame is whole, or there is a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

#[allow(dead_code, reason = "the binary uses more of it")]
#[path = "../../crates/dendra/src/backup/object.rs"]
mod object;
use object::ObjectReader;

static PLACE: OnceLock<std::path::PathBuf> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let name = || format!("dendra-fuzz-object-{}", std::process::id());
    let place = PLACE.get_or_init(|| std::env::temp_dir().join(name()));
    std::fs::write(place, bytes).expect("a place for a file");
    let Ok(object) = ObjectReader::open(place) else {
        return;
    };
    let mut seen = 0;
    if object.verify(|n| seen += n).is_ok() {
        assert!(object.frame_at(0).is_ok() || seen == 0);
    }
});
