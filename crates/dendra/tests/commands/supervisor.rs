//! The test plays systemd with `Type=notify` and a watchdog.
//!
//! Not here: an event loop that stands (crate `server`, `lifecycle/pulse.rs`).
//! See: docs/installing.md.

use crate::support::http::PATIENCE;
use crate::support::{dendra, finish, signal};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;

/// A node that tells `socket`, which is `name` in its environment: the messages of its life.
fn life(socket: &UnixDatagram, name: &str) -> Vec<String> {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut command = dendra(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    command.arg("--data").arg(data.path());
    command
        .env("NOTIFY_SOCKET", name)
        .env("WATCHDOG_USEC", "800000");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the binary was built");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let read = || {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut said = vec![read(), read(), read()];
    signal(&child, "TERM");
    while said.last().is_some_and(|last| last != "STOPPING=1") {
        said.push(read());
    }
    let run = finish(child);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    said.dedup();
    said
}

#[test]
fn a_supervisor_learns_that_a_node_serves_turns_and_stops() {
    let expected = ["READY=1", "WATCHDOG=1", "STOPPING=1"];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    assert_eq!(life(&socket, &path.display().to_string()), expected);
    let name = format!("dendra-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    assert_eq!(life(&socket, &format!("@{name}")), expected);
}
