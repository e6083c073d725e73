//! How drivers reach servers: in clear, or sealed by their caller. And the login that they show.
//!
//! ```text
//! a driver asks for a connection            dial ─► opened, and sealed by the caller       etcd
//! a driver opens its connections itself     seal ─► what it seals them with                Cassandra
//! ```
//!
//! Invariants
//! 1. A password is shown nowhere.
//! 2. A connection is used for new requests only while it was opened with the papers that are shown
//!    now.
//! 3. The seal of a driver checks the other side as a connection that was asked for does.
//!
//! Not here: TLS (crate `server`, `front/dial.rs`), files (there, `front/papers.rs`).

use rustls::ClientConfig;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection to a server of an engine.
pub trait EngineLink: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> EngineLink for T {}

/// A connection that is being opened.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn EngineLink>>> + Send + 'a>>;

/// Opens connections to `host:port`, or gives the configuration that seals them.
pub trait EngineDial: Send + Sync + 'static {
    /// Opens one. Its caller has the deadline.
    fn dial<'a>(&'a self, server: &'a str) -> Dialing<'a>;

    /// The configuration with which a driver that opens connections itself seals them, from now
    /// until the next renewal; `None` = they are in clear. A server has to show a certificate for
    /// its address, or for one of `servers`, each `host:port`. It may have been found by its
    /// address alone.
    ///
    /// # Errors
    /// One of `servers` has a name that no certificate can hold.
    fn seal(&self, servers: &[String]) -> io::Result<Option<Arc<ClientConfig>>>;
}

/// Connections in clear text.
#[derive(Clone, Copy, Debug)]
pub struct ClearDial;

impl EngineDial for ClearDial {
    fn dial<'a>(&'a self, server: &'a str) -> Dialing<'a> {
        Box::pin(async move {
            let tcp = TcpStream::connect(server).await?;
            tcp.set_nodelay(true)?;
            Ok(Box::new(tcp) as Box<dyn EngineLink>)
        })
    }

    fn seal(&self, _servers: &[String]) -> io::Result<Option<Arc<ClientConfig>>> {
        Ok(None)
    }
}

/// The user that a front door is for its engine.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineLogin {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl EngineLogin {
    /// Reads `USER:PASSWORD`, without white space around it; the password may have colons.
    pub fn parse(text: &str) -> Option<EngineLogin> {
        let (user, password) = text.trim().split_once(':')?;
        (!user.is_empty()).then(|| EngineLogin {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

impl fmt::Debug for EngineLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineLogin({}:…)", self.user)
    }
}

/// The login and the certificate that a front door shows to its engine now: they may change while
/// drivers run.
#[derive(Debug, Default)]
pub struct EngineFace {
    login: Mutex<Option<EngineLogin>>,
    renewals: AtomicU64,
}

impl EngineFace {
    /// With this user; `None` = the engine asks for none.
    pub fn new(login: Option<EngineLogin>) -> EngineFace {
        EngineFace {
            login: Mutex::new(login),
            renewals: AtomicU64::new(0),
        }
    }

    /// The user in force.
    pub fn login(&self) -> Option<EngineLogin> {
        self.login.lock().expect("no holder panics").clone()
    }

    /// How often it has changed: connections of an earlier number are used no more.
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// From now on the dial shows this user. Connections from before are used no more.
    pub fn renew(&self, login: Option<EngineLogin>) {
        *self.login.lock().expect("no holder panics") = login;
        self.renewals.fetch_add(1, Ordering::Release);
    }
}

/// How an engine is reached.
#[derive(Clone)]
pub struct StoreAccess {
    /// Opens connections.
    pub dial: Arc<dyn EngineDial>,
    /// The user, and when connections have to be new ones.
    pub face: Arc<EngineFace>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_and_its_password_is_not_shown() {
        let login = EngineLogin::parse(" app:a:b\n").expect("a login");
        assert_eq!(
            (login.user.as_str(), login.password.as_str()),
            ("app", "a:b")
        );
        assert_eq!(format!("{login:?}"), "EngineLogin(app:…)");
        assert_eq!(EngineLogin::parse("app"), None);
        assert_eq!(EngineLogin::parse(":b"), None);
    }
}
