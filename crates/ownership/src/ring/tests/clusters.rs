//! Clusters with numbered names, for the tests of the ring and for its figures
//! (`examples/ring_figures.rs`): both say something of the same ones.

use super::{Member, Topology};

/// Names as operators choose them: numbered hosts, addresses, ports of one machine.
pub(crate) fn url(seed: u64, number: usize) -> String {
    match seed % 3 {
        0 => format!("http://node{number}.c{seed}:8080"),
        1 => format!("http://10.{seed}.{}.{}:8080", number / 200, number % 200),
        _ => format!("http://127.0.0.1:{}", 8080 + number),
    }
}

/// Three copies on these members.
pub(crate) fn topology(
    seed: u64,
    members: impl Iterator<Item = usize>,
    partitions: u16,
) -> Topology {
    let members = members.map(|number| Member::new(&url(seed, number)).expect("an address"));
    let name = format!("c{seed}");
    let topology = Topology::new(&name, members.collect(), 3).expect("a topology");
    topology.with_partitions(partitions).expect("a number")
}
