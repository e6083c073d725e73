//! The supervisor of the process, as systemd with `Type=notify`: it is told that the node serves,
//! that its event loops turn, and that it stops.
//!
//! ```text
//! NOTIFY_SOCKET                /run/systemd/notify, or @NAME: a datagram for each message
//! WATCHDOG_USEC, WATCHDOG_PID  WATCHDOG=1 four times in this time or more, while every event loop turns
//! READY=1, STOPPING=1          clients are accepted; the node stops, by a signal or by itself
//! ```
//!
//! Invariants
//! 1. A node whose event loop stands sends no WATCHDOG=1: the supervisor ends it.
//! 2. A stop is watched by its own timeout, not by the watchdog.
//! 3. The supervisor never makes the node wait: a full socket loses the message, and a log line
//!    says so.
//!
//! Not here: the unit (`deploy/systemd/dendra.service`), the loops (crate `server`, `LoopPulse`).
//! See: docs/installing.md.

use dendra_server::LoopPulse;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks at the loops, at most.
const LOOK: Duration = Duration::from_secs(1);

/// The socket of the supervisor, and how often it wants to be told.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
    knows_of_stop: AtomicBool,
}

impl Supervisor {
    /// The supervisor that the environment names, if it names one that can be reached.
    pub(crate) fn of_environment() -> Option<Arc<Supervisor>> {
        let name = env::var("NOTIFY_SOCKET").ok().filter(|it| !it.is_empty())?;
        let open = || -> io::Result<Supervisor> {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok(Supervisor {
                socket,
                address: address(&name)?,
                watchdog: watchdog(|variable| env::var(variable).ok(), std::process::id()),
                knows_of_stop: AtomicBool::new(false),
            })
        };
        match open() {
            Ok(supervisor) => Some(Arc::new(supervisor)),
            Err(error) => {
                tracing::warn!(%error, name, "the socket of NOTIFY_SOCKET is of no use: the supervisor is told nothing");
                None
            }
        }
    }

    /// Clients are accepted: from now on it is told that the loops turn, until the stop.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn ready(self: &Arc<Supervisor>, mut pulse: LoopPulse) -> io::Result<()> {
        self.tell("READY=1");
        let own = Arc::clone(self);
        let look = self.watchdog.map_or(LOOK, |every| LOOK.min(every / 4));
        let thread = std::thread::Builder::new().name("supervisor".to_owned());
        thread.spawn(move || {
            while !pulse.is_ending() {
                if own.watchdog.is_some() && pulse.beats() {
                    own.tell("WATCHDOG=1");
                }
                std::thread::sleep(look);
            }
            own.stopping();
            while own.watchdog.is_some() {
                own.tell("WATCHDOG=1");
                std::thread::sleep(look);
            }
        })?;
        Ok(())
    }

    /// The node stops, or has stopped.
    pub(crate) fn stopping(&self) {
        if !self.knows_of_stop.swap(true, Ordering::Relaxed) {
            self.tell("STOPPING=1");
        }
    }

    fn tell(&self, message: &str) {
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::warn!(%error, message, "the supervisor could not be told");
        }
    }
}

/// The address of `NOTIFY_SOCKET`.
fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None if name.starts_with('/') => SocketAddr::from_pathname(name),
        None => Err(io::Error::other("neither a path nor @NAME")),
    }
}

/// How often this process has to show that it lives, by the variables of the watchdog.
fn watchdog(variable: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    let pid = variable("WATCHDOG_PID");
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let every_us = variable("WATCHDOG_USEC")?.parse().ok()?;
    Some(Duration::from_micros(every_us)).filter(|every| !every.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let of = |pid: Option<&str>, every: Option<&str>| {
            let found = |name: &str| match name {
                "WATCHDOG_PID" => pid.map(str::to_owned),
                _ => every.map(str::to_owned),
            };
            watchdog(found, 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(of(Some("7"), Some("1000000")), second);
        assert_eq!(of(None, Some("1000000")), second);
        assert_eq!(of(Some("8"), Some("1000000")), None);
        assert_eq!(of(Some("7"), None), None);
        assert_eq!(of(Some("7"), Some("0")), None);
        assert_eq!(of(Some("7"), Some("often")), None);
    }

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        let path = address("/run/notify").expect("a path");
        assert_eq!(path.as_pathname(), Some("/run/notify".as_ref()));
        let name = address("@notify").expect("a name");
        assert_eq!(name.as_abstract_name(), Some(&b"notify"[..]));
        assert!(address("vsock:2:1").is_err());
    }
}
