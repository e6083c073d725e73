//! The floor: a server that only receives and sends, with no parser, no store and no bookkeeping.
//!
//! ```text
//! epoll_wait ─► recv ─► send the same bytes as always ─► next event
//! ```
//!
//! Invariants
//! 1. One `recv` and one `send` for each readable event: the least that any server must pay.
//! 2. One thread; it never ends by itself.
//!
//! Not here: HTTP. A request that arrives in two pieces gets two answers; the generator would
//! notice, and small requests over loopback do not.
//! See: docs/lab/README.md, the floor.

use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;

/// Serves for ever, answering `status` and `body_bytes` bytes of body to everything.
pub(crate) fn serve(status: &str, body_bytes: &str) -> Result<(), String> {
    let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number"));
    let (status, body_bytes) = (number(status)?, number(body_bytes)?);
    answer_all(status, body_bytes).map_err(|e| format!("the floor: {e}"))
}

fn answer_all(status: usize, body_bytes: usize) -> std::io::Result<()> {
    let body = "x".repeat(body_bytes);
    let answer = format!(
        "HTTP/1.1 {status} OK\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {body_bytes}\r\n\r\n{body}"
    );
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        epoll::EventData::new_u64(LISTENER),
        epoll::EventFlags::IN,
    )?;
    eprintln!("listening on http://{}", listener.local_addr()?);

    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut buffer = [0; 16 << 10];
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        for event in &events {
            let slot = event.data.u64();
            if slot == LISTENER {
                let Ok((stream, _)) = listener.accept() else {
                    continue;
                };
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let data = epoll::EventData::new_u64(connections.len() as u64);
                epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
                connections.push(Some(stream));
                continue;
            }
            let connection = &mut connections[slot as usize];
            let Some(stream) = connection else { continue };
            match stream.read(&mut buffer) {
                Ok(0) => *connection = None,
                Ok(_) => stream.write_all(answer.as_bytes())?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => *connection = None,
            }
        }
    }
}
