//! A manifest of any bytes behind a `CURRENT` that names it.
#![no_main]

use dendra_engine::check;
use dendra_engine::tree::edit::{Edit, Fact};
use dendra_engine::tree::manifest::{self, Manifest};
use dendra_engine::vfs::MemVfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(edit) = Edit::decode(bytes) {
        let mut encoded = Vec::new();
        edit.encode(&mut encoded);
        assert!(
            Edit::decode(&encoded).is_ok(),
            "what is read can be written"
        );
    }
    let vfs = MemVfs::new();
    // A valid CURRENT comes from the code that writes it; then the manifest's bytes are replaced.
    let snapshot = Edit {
        facts: vec![Fact::LogFloor { segment: 1 }],
    };
    Manifest::create(&vfs, 1, &snapshot).expect("a folder in memory takes a manifest");
    vfs.install(&manifest::file_name(1), bytes);
    if let Err(error) = manifest::replay(&vfs, 1) {
        assert!(!error.to_string().is_empty());
    }
    std::hint::black_box(check::check_folder(&vfs).is_ok());
});
