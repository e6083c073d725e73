//! From addresses to names, after the capture.
//!
//! ```text
//! capture ─► waits for ─► a thread of its own, of low priority, one in a process ─► named stacks
//! ```
//!
//! Invariants
//! 1. Reading the program's debug information is a good part of a second of work: it yields to
//!    requests.
//! 2. A return address is looked up one byte before itself: it finds the call, not the next
//!    instruction.
//! 3. Nothing that was read of the program stays in memory.
//! 4. Inlined functions are frames of their own when the line tables tell them.
//!
//! Not here: sampling (`sampler.rs`), cutting names for a drawing (`crates/flame`).

use super::elf::{SymbolTable, this_program};
use super::measure::Measure;
use super::roster::ThreadKind;
use dendra_flame::{Stacks, clean_name};
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Frames of the runtime and the C library below a thread's own first function are of no use.
const FLOOR: &str = "__rust_begin_short_backtrace";

/// Our hooks and the ways into them, which stand innermost in every stack that they leave.
const HOOKS: [&str; 7] = [
    "dendra_server::measure::profile::alloc::",
    "dendra_server::measure::profile::lock::",
    "dendra_server::measure::profile::sampler::",
    "dendra_engine::waits::",
    "alloc::alloc::",
    "core::alloc::",
    "__rust",
];

/// Inlined functions that only call a hook, directly or through others; known by their short names
/// alone.
const WAYS: [&str; 11] = [
    "hold",
    "alloc",
    "alloc_zeroed",
    "realloc",
    "alloc_impl",
    "alloc_impl_runtime",
    "grow_impl",
    "grow_impl_runtime",
    "allocate",
    "allocate_zeroed",
    "exchange_malloc",
];

/// How many of the innermost frames are a hook and the way into it. They are all frames up to the
/// outermost one that is certainly ours, and then the ways.
fn hook_frames(names: &[&str]) -> usize {
    const FRAMES_MAX: usize = 12;
    let is_hook = |name: &str| {
        let name = name.trim_start_matches('<');
        HOOKS.iter().any(|hook| name.starts_with(hook))
    };
    let near = &names[..names.len().min(FRAMES_MAX)];
    let ours = near.iter().rposition(|name| is_hook(name));
    let ours = ours.map_or(0, |last| last + 1);
    let is_way = |name: &&&str| WAYS.contains(&name.split('<').next().unwrap_or_default());
    ours + names[ours..].iter().take_while(is_way).count()
}

/// Below flushes, which free memory, and beside compactions.
const NICE: i32 = 10;

/// Held while names are looked up: two at once would take twice as much from the requests.
static NAMING: Mutex<()> = Mutex::new(());

/// Names stacks as `slots.rs` holds them, on a thread that yields to all others.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn name(counts: &HashMap<Vec<usize>, u64>, measure: Measure) -> io::Result<Stacks> {
    let _naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("names".to_owned())
            .spawn_scoped(scope, || {
                // On Linux this is the calling thread's own priority.
                if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                    tracing::debug!(%error, "names are looked up at the usual priority");
                }
                named(counts, measure)
            })?;
        thread
            .join()
            .map_err(|_| io::Error::other("the thread that names stacks panicked"))
    })
}

/// Kind, program counter, return addresses outwards.
fn named(counts: &HashMap<Vec<usize>, u64>, measure: Measure) -> Stacks {
    let mut known: HashMap<usize, Vec<String>> = HashMap::new();
    let exe = this_program();
    let table = SymbolTable::of(&exe);
    let mut stacks = Stacks::default();
    for (frames, count) in counts {
        let Some((kind, addresses)) = frames.split_first() else {
            continue;
        };
        // Innermost first, as they were walked.
        let mut names: Vec<&str> = Vec::new();
        for (at, address) in addresses.iter().enumerate() {
            let looked_up = address - usize::from(at > 0);
            known
                .entry(looked_up)
                .or_insert_with(|| resolve(&table, looked_up));
        }
        for (at, address) in addresses.iter().enumerate() {
            let looked_up = address - usize::from(at > 0);
            names.extend(
                known
                    .get(&looked_up)
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            );
        }
        if let Some(floor) = names.iter().position(|name| name.contains(FLOOR)) {
            names.truncate(floor);
        }
        if measure.is_hooked() {
            names.drain(..hook_frames(&names));
        }
        let kind = ThreadKind::of(*kind).map_or("unknown", ThreadKind::as_str);
        stacks.add(std::iter::once(kind).chain(names.into_iter().rev()), *count);
    }
    // It keeps what it has read of the debug information, more than a hundred mebibytes.
    backtrace::clear_symbol_cache();
    stacks
}

/// The functions at an address, innermost first. The line tables tell the inlined ones. The symbol
/// tells the last one, which is there as code, with its whole path.
fn resolve(table: &SymbolTable<'_>, address: usize) -> Vec<String> {
    let mut names = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
        if let Some(name) = symbol.name() {
            names.push(clean_name(&name.to_string()));
        }
    });
    if let Some(whole) = table.name(address) {
        names.pop();
        names.push(whole);
    }
    if names.is_empty() {
        names.push("[unknown]".to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_and_the_way_into_it_are_cut_and_nothing_else() {
        let allocated = [
            "dendra_server::measure::profile::alloc::note_watched",
            "note",
            "realloc<mimalloc::MiMalloc>",
            "__rustc::__rust_realloc",
            "alloc",
            "alloc_impl",
            "<alloc::raw_vec::RawVecInner>::finish_grow",
            "dendra_engine::batch::Batch::push",
        ];
        assert_eq!(hook_frames(&allocated), 6);
        let waited = [
            "dendra_server::measure::profile::lock::watched",
            "dendra_server::measure::profile::lock::Lock<T>::wait",
            "hold<alloc::vec::Vec<u8>>",
            "dendra_server::lanes::mailbox::Mailbox::post_all",
        ];
        assert_eq!(hook_frames(&waited), 3);
        assert_eq!(hook_frames(&["main", "hold_back"]), 0);
        assert_eq!(hook_frames(&[]), 0);
    }
}
