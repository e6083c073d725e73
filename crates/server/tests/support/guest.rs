//! A node of a cluster of two, and the hello of the other member, which the test plays.
//!
//! Not here: the questions of a guest (the tests).

use super::Node;
use dendra_engine::vfs::Vfs;
use dendra_server::settings::{ClusterSettings, Member, PeerTransport, Secret, Settings, Topology};
use dendra_wire::peer::hello::{VERSION_MAX, VERSION_MIN};
use dendra_wire::peer::{Hello, Nonce};
use std::sync::Arc;

/// How the node is known to the others; no lookup is made here.
pub(crate) const NODE: &str = "http://10.0.0.1:8080";
/// Where no process listens.
pub(crate) const GUEST: &str = "http://127.0.0.1:1";
/// Of the cluster.
pub(crate) const SECRET: &[u8] = b"hush, sixteen bytes at least";

/// The node and the member at `guest`.
pub(crate) fn topology(guest: &str) -> Topology {
    let members = [NODE, guest].map(|url| Member::new(url).expect("an address"));
    Topology::new("dendra", members.to_vec(), 2).expect("two members")
}

/// A node with one loop that asks by `transport`.
pub(crate) fn node(guest: &str, transport: PeerTransport) -> Node {
    node_with(guest, transport, Secret::new(SECRET))
}

/// The same with another secret, or none.
pub(crate) fn node_with(guest: &str, transport: PeerTransport, secret: Option<Secret>) -> Node {
    let mut cluster = ClusterSettings::new(topology(guest), NODE).expect("a member");
    cluster.secret = secret;
    cluster.transport = transport;
    Node::with(|settings| {
        settings.cluster = Some(cluster);
        settings.loops = Some(1);
    })
}

/// A node with one loop on this disk, with little memory.
pub(crate) fn node_on(vfs: Arc<dyn Vfs>) -> Node {
    node_on_with(vfs, |settings| {
        settings.memory_bytes = 16 << 20;
        settings.value_bytes_max = 64 << 10;
    })
}

/// The same with other settings.
pub(crate) fn node_on_with(vfs: Arc<dyn Vfs>, change: impl FnOnce(&mut Settings)) -> Node {
    let mut cluster = ClusterSettings::new(topology(GUEST), NODE).expect("a member");
    cluster.secret = Secret::new(SECRET);
    Node::on(vfs, |settings| {
        settings.cluster = Some(cluster);
        settings.loops = Some(1);
        change(settings);
    })
}

/// The hello of the member that the test plays.
pub(crate) fn hello(guest: &str, nonce: u8) -> Hello {
    let topology = topology(guest);
    Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        cluster: topology.id(),
        cluster_name: topology.name().to_owned(),
        epoch: topology.epoch(),
        topology: topology.digest(),
        description: topology.describe(),
        node: 0xb0b,
        origin: 0xb0b << 8,
        boot: 1,
        life: 0x11fe,
        clock: 1,
        url: guest.to_owned(),
        lane: 0,
        loops: 1,
        has_secret: true,
        nonce: Nonce([nonce; 16]),
        joins: false,
    }
}
