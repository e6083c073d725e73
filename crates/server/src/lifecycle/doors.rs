//! The addresses of a node, taken early and opened late.
//!
//! Invariants
//! 1. Addresses with a number are bound first: a port that the system chooses is none of them.
//!
//! Not here: accepting connections (`clients/listener.rs`, `admin/`).

use crate::clients::listener::{self, Door};
use crate::settings::Settings;
use crate::start_error::StartError;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// The addresses of a node, taken before its folder is touched.
pub(super) struct Doors {
    pub(super) admin: Option<(SocketAddr, Door)>,
    pub(super) data: Vec<(SocketAddr, Door)>,
}

impl Doors {
    pub(super) fn bind(settings: &Settings) -> Result<Doors, StartError> {
        // Those with a number first: a free port that the system chooses must not be one that is
        // asked for.
        let is_numbered = |addr: &SocketAddr| addr.port() != 0;
        let mut admin = settings
            .admin
            .filter(is_numbered)
            .map(bind_admin)
            .transpose()?;
        let mut data = settings
            .listen
            .iter()
            .map(|&addr| (addr, None))
            .collect::<Vec<_>>();
        for (addr, door) in data.iter_mut().filter(|(addr, _)| is_numbered(addr)) {
            *door = Some(bind_data(*addr)?);
        }
        if admin.is_none() {
            admin = settings.admin.map(bind_admin).transpose()?;
        }
        let data = data.into_iter().map(|(addr, door)| match door {
            Some(door) => Ok((addr, door)),
            None => Ok((addr, bind_data(addr)?)),
        });
        Ok(Doors {
            admin,
            data: data.collect::<Result<_, StartError>>()?,
        })
    }
}

fn bind_admin(addr: SocketAddr) -> Result<(SocketAddr, Door), StartError> {
    let door = listener::bind(addr).map_err(not_ours("admin", addr))?;
    Ok((addr, door))
}

fn bind_data(addr: SocketAddr) -> Result<Door, StartError> {
    listener::bind(addr).map_err(not_ours("data", addr))
}

/// Two may bind an address before one of them opens it.
pub(super) fn open(
    plane: &'static str,
    addr: SocketAddr,
    door: Door,
) -> Result<TcpListener, StartError> {
    door.open().map_err(not_ours(plane, addr))
}

fn not_ours(plane: &'static str, addr: SocketAddr) -> impl Fn(io::Error) -> StartError {
    move |error| StartError::Address {
        reason: match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "{plane} address {addr} is taken by another process: stop it or choose another port"
            ),
            _ => format!("{plane} address {addr} cannot be bound: {error}"),
        },
    }
}
