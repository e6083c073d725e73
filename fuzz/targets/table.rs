//! A table file of any bytes: read, or refused with a reason.
#![no_main]

use dendra_engine::table::{Table, describe, file_name};
use dendra_engine::vfs::MemVfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let vfs = MemVfs::new();
    let name = file_name(1);
    vfs.install(&name, bytes);
    let mut text = Vec::new();
    let described = describe(&vfs, &name, &mut text, 100);
    if let Ok(table) = Table::open_unknown(&vfs, &name) {
        let mut last: Option<Vec<u8>> = None;
        let whole = table.verify(|key, _| {
            if let Some(last) = &last {
                assert!(last.as_slice() < key, "keys rise");
            }
            last = Some(key.to_vec());
            Ok(())
        });
        assert!(
            whole.is_err() || described.is_ok(),
            "a whole table can be shown"
        );
    }
});
