//! The storage engine as a library: one durable write and one read, without a server.
//!
//! ```text
//! cargo run -p dendra-engine --example embedded -- FOLDER
//! ```
//!
//! A program that runs on also calls `Engine::maintain` for both lanes after its commits, on a
//! thread of its own. The engine has no threads: docs/decisions/0003-engine-owns-no-thread.md says
//! why.

use dendra_base::{CellRef, Key, Version};
use dendra_engine::vfs::{Wait, os::OsVfs};
use dendra_engine::{Batch, Engine, Guard, Identity, Lookup, Options, WriteOutcome};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, error::Error, path::Path, sync::Arc};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: embedded FOLDER")?;
    write_and_read(Path::new(&folder))
}

fn write_and_read(folder: &Path) -> Result<(), Box<dyn Error>> {
    let now_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;

    // The identity counts only in a new folder. Draw `node` and `origin` at random.
    let proposed = Identity {
        node: u128::from(now_ms),
        origin: 1,
    };
    let options = Options::for_memory(64 << 20, 1 << 20);
    let engine = Engine::open(Arc::new(OsVfs::open(folder)?), options, proposed)?;

    // A version is the caller's. Its clock must be above every one that was used before.
    let hlc = engine.hlc_floor().max(now_ms << 16) + 1;
    engine.raise_hlc_ceiling(hlc);
    let version = Version {
        hlc,
        origin: engine.identity().origin,
        rmw: 0,
    };
    let key = Key::user(b"greeting");
    let cell = CellRef::value(key.as_stored(), version, b"hello");

    let (mut batch, mut done) = (Batch::new(), Vec::new());
    batch.push(7, key.as_stored(), &cell, Guard::Newest, now_ms)?; // 7 comes back with the outcome
    engine.submit(&mut batch)?;
    engine.commit(&mut done)?; // one write, one fdatasync; visible from here on
    assert_eq!(done, [(7, WriteOutcome::Applied { version })]);

    let found = engine.get(key.as_stored(), Wait::Block, |cell| cell.value.to_vec())?;
    assert_eq!(found, Lookup::Cell(b"hello".to_vec()));
    println!("greeting = hello, version {version}");
    Ok(engine.close(now_ms)?)
}

#[test]
fn the_example_runs_on_a_new_folder_and_again_on_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_and_read(folder.path()).expect("a new folder takes a write");
    write_and_read(folder.path()).expect("a later start has a later version");
}
