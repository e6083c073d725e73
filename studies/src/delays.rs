//! A server with a known distribution of delays: generators have to agree about it.
//!
//! ```text
//! connection ─► its own thread: read one request ─► sleep the next delay ─► answer
//! steps      ─► 88 of 100: 8 ms    10 of 100: 20 ms    2 of 100: 60 ms     in a fixed shuffled order
//! even       ─► 0 to 20 ms, each as often as any other                     in a fixed shuffled order
//! ```
//!
//! Invariants
//! 1. The delays are long beside the time that any generator needs to wake up: differences are the
//!    generator's.
//! 2. Its threads run on the cores of servers, like those of any other server.
//! 3. At most `CONNECTIONS_MAX` connections; later ones are closed at once.
//!
//! Not here: the generators (`foreign.rs`, `run.rs`).

use super::place::{Place, Side};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Each has a thread.
const CONNECTIONS_MAX: usize = 1024;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";

/// How long an answer waits.
#[derive(Clone, Copy)]
pub(super) enum Law {
    /// Three delays: percentiles are known, and well apart.
    Steps,
    /// All delays between two bounds: requests of a closed loop do not come together in bursts.
    Even,
}

impl Law {
    /// The delay of answer number `n`.
    fn delay(self, n: usize) -> Duration {
        match self {
            Law::Steps => step(n),
            // The golden section puts any run of them evenly over the range.
            Law::Even => EVEN_MAX.mul_f64((n as f64 * 0.618_033_988_749_894_9).fract()),
        }
    }
}

/// The longest delay of those that are even.
const EVEN_MAX: Duration = Duration::from_millis(20);

/// A running server; it takes no new connections when dropped.
pub(super) struct Delays {
    /// Where it listens.
    pub(super) address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Delays {
    /// Listens on a free port.
    pub(super) fn start(place: &Place, law: Law) -> Result<Delays, String> {
        let listener =
            TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port ({e})"))?;
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        place.on(Side::Server, || {
            std::thread::spawn(move || accept(&listener, &over, law))
        })?;
        Ok(Delays { address, is_over })
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the thread that accepts; a refusal means that it is gone already.
        drop(TcpStream::connect(self.address));
    }
}

fn accept(listener: &TcpListener, is_over: &AtomicBool, law: Law) {
    let served = Arc::new(AtomicUsize::new(0));
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_over.load(Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if open.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Relaxed);
            continue;
        }
        let (served, open) = (served.clone(), open.clone());
        std::thread::spawn(move || {
            // A client that goes away ends its thread.
            drop(serve(stream, &served, law));
            open.fetch_sub(1, Relaxed);
        });
    }
}

fn serve(mut stream: TcpStream, served: &AtomicUsize, law: Law) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut held = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while let Some(end) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            held.drain(..end + 4);
            std::thread::sleep(law.delay(served.fetch_add(1, Relaxed)));
            stream.write_all(ANSWER)?;
        }
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        held.extend_from_slice(&buffer[..len]);
    }
}

/// In every 100 of these, 88 are short, 10 medium, 2 long: the median and the
/// 99th percentile lie well inside of a step.
fn step(n: usize) -> Duration {
    // 37 has no divisor in common with 100: every remainder comes once.
    match (n * 37) % 100 {
        0..88 => Duration::from_millis(8),
        88..98 => Duration::from_millis(20),
        _ => Duration::from_millis(60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundred_answers_have_the_same_delays() {
        let mut delays: Vec<Duration> = (700..800).map(|n| Law::Steps.delay(n)).collect();
        delays.sort();
        let ms = |at: usize| delays[at].as_millis();
        assert_eq!((ms(0), ms(87), ms(88), ms(97), ms(98)), (8, 8, 20, 20, 60));
    }

    #[test]
    fn even_delays_are_even_wherever_one_begins() {
        for first in [0, 12_345, 1_000_000] {
            let mut tenths = [0; 10];
            for n in first..first + 1000 {
                let delay = Law::Even.delay(n);
                assert!(delay < EVEN_MAX);
                tenths[(delay.as_micros() / 2000) as usize] += 1;
            }
            assert!(
                tenths.iter().all(|&n| (95..=105).contains(&n)),
                "{tenths:?}"
            );
        }
    }
}
