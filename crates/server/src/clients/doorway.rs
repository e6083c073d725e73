//! The steps of a connection before its first request, where the port speaks TLS.
//!
//! ```text
//! accepted ─► first byte ─┬─ a handshake ─► its turn ─► session, within the deadline of a head ─► requests
//!                         └─ clear text  ─┬─ the change-over is on ─► requests
//!                                         └─ 400 tls-required, closed
//! ```
//!
//! Invariants
//! 1. The connection counts at the gate of connections all the while.
//! 2. A loop has at most its share of `HANDSHAKES_MAX` handshakes under way: a new one ends the
//!    oldest.
//! 3. A handshake begins when it is called (`event_loop/giving_way.rs`): a storm of them leaves
//!    connections that work their turns.
//! 4. Nothing that came in clear is looked at beyond its first byte, but for the change-over.
//!
//! Not here: sessions and certificates (`tls/`), the admin port (`admin/`).
//! See: SECURITY.md, docs/overload.md.

use crate::audit::{self, Port};
use crate::clock;
use crate::event_loop::thread::EventLoop;
use crate::exchange::socket::{ConnectionEnd, Linger, Socket};
use crate::tls::{ByteStream, Opening, Tls, clear_text};
use crate::waiting::seat::Seat;
use crate::waiting::status;
use dendra_wire::http::response::Style;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// Lets a connection in, or gives back the socket to be closed.
pub(crate) async fn enter(
    lane: &Rc<EventLoop>,
    seat: &Rc<Seat>,
    source: IpAddr,
    tls: &Tls,
    tcp: TcpStream,
) -> Result<ByteStream, Option<ByteStream>> {
    let timeouts = &lane.parts.settings.timeouts;
    // A client in clear may wait with its first request.
    let first = if tls.takes_clear() {
        timeouts.idle
    } else {
        timeouts.head
    };
    match within(lane, seat, first, tls.first_of(&tcp)).await {
        Some(Ok(Opening::Tls)) => {}
        Some(Ok(Opening::Clear)) if tls.takes_clear() => return Ok(ByteStream::Clear(tcp)),
        Some(Ok(Opening::Clear)) => {
            tls.gauges.clear.fetch_add(1, Ordering::Relaxed);
            let stream = ByteStream::Clear(tcp);
            let mut socket = Socket::new(Rc::clone(lane), Rc::clone(seat), source, stream);
            status::write_refusal(socket.out(), Style::CLOSING, &clear_text());
            let end = match socket.flush().await {
                Ok(()) => ConnectionEnd::Done,
                Err(end) => end,
            };
            return Err(Some(socket.close(end, Linger::Bytes).await));
        }
        Some(Err(_)) | None => return Err(Some(ByteStream::Clear(tcp))),
    }
    let turn = lane
        .giving_way
        .join_handshake(seat, source, clock::monotonic_us());
    let shaking = async {
        turn.called().await;
        let place = lane.rooms.handshakes.enter();
        let shaken = place.unless_evicted(tls.accept(tcp)).await;
        if let Ok(Ok(_)) = &shaken {
            place.prove();
        }
        shaken
    };
    match within(lane, seat, timeouts.head, shaking).await {
        Some(Ok(Ok(stream))) => {
            lane.refresh();
            Ok(stream)
        }
        Some(Ok(Err(in_clear))) => {
            audit::note_handshake(lane.parts.border.audit.as_deref(), source, Port::Data);
            Err(Some(ByteStream::Clear(in_clear)))
        }
        Some(Err(_)) | None => {
            lane.metrics().timed_out.add(1);
            Err(None)
        }
    }
}

/// The result of a future, if it comes in time and before the node drains.
async fn within<T>(
    lane: &EventLoop,
    seat: &Seat,
    time: Duration,
    what: impl Future<Output = T>,
) -> Option<T> {
    seat.arm(lane.now_us() + time.as_micros() as u64);
    let mut what = pin!(what);
    poll_fn(|cx| {
        if seat.is_late() || lane.is_draining() {
            return Poll::Ready(None);
        }
        match what.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => {
                seat.register(cx);
                Poll::Pending
            }
        }
    })
    .await
}
