//! Where the generator runs: facts that a reader has to know before comparing figures.
//!
//! Unknown facts are left empty; no figure depends on them.

use crate::run::Machine;

/// The machine of this process.
pub fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str, mark: char| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let (_, value) = line.split_once(mark)?;
        Some(value.trim().trim_matches('"').to_owned())
    };
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal", ':')
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .unwrap_or(0);
    let release = read("/proc/sys/kernel/osrelease");
    Machine {
        cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u32),
        cpu_model: field(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
        memory_bytes: memory_kib * 1024,
        kernel: format!(
            "{} {}",
            read("/proc/sys/kernel/ostype").trim(),
            release.trim()
        ),
        system: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default(),
    }
}
