//! A power loss at every operation of a workload.
//!
//! ```text
//! run once, count n operations
//! for each of them: run again on a new folder, lose the power there ─► several images ─► check
//! ```
//!
//! Invariants
//! 1. The workload is deterministic: the same folder gives the same operations. This is checked.
//! 2. `check` gets the writes that the workload had acknowledged when the power went, and one
//!    possible disk.
//!
//! Not here: the claims about that disk.

use dendra_base::Prng;
use dendra_engine::vfs::MemVfs;

/// How thoroughly to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crashes {
    /// Where the images come from.
    pub(crate) seed: u64,
    /// Images of the disk per crash, besides that of a killed process.
    pub(crate) images: u32,
    /// Operations from one crash to the next: 1 looks at all of them.
    pub(crate) stride: u64,
}

/// Runs `workload` once for every operation it does, and loses the power there. `check` gets the
/// result of the workload, a folder as it may be found afterwards, and a sentence that says which.
/// Returns the number of folders that were checked.
pub(crate) fn crash_everywhere<T>(
    crashes: Crashes,
    workload: impl Fn(&MemVfs) -> T,
    check: impl Fn(&T, MemVfs, &str),
) -> u64 {
    let whole = MemVfs::new();
    workload(&whole);
    let operations = whole.operations();
    assert!(operations > 0, "a workload without operations has no crash");
    let mut prng = Prng::named(crashes.seed, "crash images");
    let mut checked = 0;
    for operation in (0..operations).step_by(crashes.stride as usize) {
        let vfs = MemVfs::new();
        vfs.crash_at(operation);
        let acknowledged = workload(&vfs);
        assert!(
            vfs.has_crashed(),
            "operation {operation} of {operations} never came: the workload is not deterministic"
        );
        let at = format!("crash at operation {operation}, seed {}", crashes.seed);
        for image in 0..crashes.images {
            let folder = vfs.crash_image(&mut prng);
            check(&acknowledged, folder, &format!("{at}, image {image}"));
        }
        let folder = vfs.process_crash_image();
        check(&acknowledged, folder, &format!("{at}, killed"));
        checked += u64::from(crashes.images) + 1;
    }
    checked
}
