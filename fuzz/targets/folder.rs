//! A whole folder with a few bytes changed: it opens and scans in order, or it is refused.
#![no_main]

use dendra_base::{CellRef, Key, Version};
use dendra_engine::vfs::MemVfs;
use dendra_engine::{
    Batch, Cursor, Direction, Engine, Flow, Guard, Identity, Lane, Options, Progress, Show,
};
use libfuzzer_sys::fuzz_target;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

const IDENTITY: Identity = Identity { node: 7, origin: 7 };

/// Files of a folder with tables on two levels and a log.
fn valid() -> &'static Vec<(String, Vec<u8>)> {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let vfs = Arc::new(MemVfs::new());
        let engine = Engine::open(vfs.clone(), Options::for_tests(), IDENTITY, 0)
            .expect("an empty folder opens");
        let (mut batch, mut done) = (Batch::new(), Vec::new());
        for n in 0..600u64 {
            let key = Key::user(format!("key {:03}", n % 200).as_bytes());
            let version = Version {
                hlc: n + 1,
                origin: 7,
                rmw: 0,
            };
            let value = [n as u8; 90];
            let cell = CellRef::value(key.as_stored(), version, &value);
            batch.push(n, key.as_stored(), &cell, Guard::None, 0);
            if n % 20 == 19 {
                engine.submit(&mut batch).expect("the queue has room");
                engine
                    .commit(&mut done)
                    .expect("a folder in memory takes writes");
                for lane in [Lane::Flush, Lane::Compact] {
                    engine
                        .maintain(lane, 0, 64 << 10)
                        .expect("and background work");
                }
            }
        }
        engine.seal().expect("the last batch is attested");
        drop(engine);
        let names = vfs.names();
        names
            .into_iter()
            .map(|name| {
                let bytes = vfs.file_bytes(&name).unwrap_or_default();
                (name, bytes)
            })
            .collect()
    })
}

fuzz_target!(|edits: Vec<(u8, u32, u8)>| {
    let mut files = valid().clone();
    for (file, at, byte) in edits {
        let count = files.len();
        let bytes = &mut files[usize::from(file) % count].1;
        if !bytes.is_empty() {
            let at = at as usize % bytes.len();
            bytes[at] = byte;
        }
    }
    let vfs = Arc::new(MemVfs::new());
    for (name, bytes) in &files {
        vfs.install(name, bytes);
    }
    let Ok(engine) = Engine::open(vfs, Options::for_tests(), IDENTITY, 0) else {
        return;
    };
    let mut cursor = Cursor::new(
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
        Show::All,
    );
    let mut last: Option<Vec<u8>> = None;
    loop {
        let progress = engine.scan(&mut cursor, 16 << 10, |key, _| {
            if let Some(last) = &last {
                assert!(last.as_slice() < key, "keys rise");
            }
            last = Some(key.to_vec());
            Flow::Continue
        });
        if !matches!(progress, Ok(Progress::More)) {
            break;
        }
    }
});
