//! Sealed connections to the servers of an engine.
//!
//! Invariants
//! 1. A connection that is open stays as it is; the next one is sealed with what was given last.
//! 2. A server whose certificate the CA did not sign, or that is for another name, is not spoken to.
//!
//! Not here: connections in clear (crate `stores`), what is said on them (its drivers).

use crate::tls::{ByteStream, TlsClient, server_name};
use arc_swap::ArcSwap;
use dendra_stores::{Dialing, EngineDial, EngineLink};
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Opens connections of TLS.
#[derive(Debug)]
pub struct SealedDial(ArcSwap<ClientConfig>);

impl SealedDial {
    /// With what this client trusts and shows.
    pub fn new(client: &TlsClient) -> SealedDial {
        SealedDial(ArcSwap::new(config_of(client)))
    }

    /// From now on, with what this client trusts and shows.
    pub fn renew(&self, client: &TlsClient) {
        self.0.store(config_of(client));
    }
}

fn config_of(client: &TlsClient) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&client.0);
    // Engines have protocols of their own, and none of them asks for its name.
    config.alpn_protocols.clear();
    Arc::new(config)
}

impl EngineDial for SealedDial {
    fn dial<'a>(&'a self, server: &'a str) -> Dialing<'a> {
        Box::pin(async move {
            let name = server_name(server).map_err(io::Error::other)?;
            let tcp = TcpStream::connect(server).await?;
            tcp.set_nodelay(true)?;
            let sealed = ByteStream::connect(tcp, self.0.load_full(), name).await?;
            Ok(Box::new(sealed) as Box<dyn EngineLink>)
        })
    }
}

impl EngineLink for ByteStream {
    fn is_quiet(&self) -> bool {
        let read = self.tcp().try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
