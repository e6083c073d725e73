//! How long requests wait for their event loop, and the line in which they stand when that is too
//! long.
//!
//! ```text
//! open      bytes were read, or many requests answered ─► look ─ once a millisecond ─► ring ─► run queue of the loop ─► probe: its lag ─► Line
//!                               └ the probe still waits after STANDING_US: that is a sample, too
//! standing  socket is readable ─► stand ─► join ─► the loop's porter calls, once in a poll of the sockets
//!                                              ─► Serve: read   Refuse: read, 503   client gone: close
//!           WORK_OF_A_CALL bytes read or written, or requests answered ─► charge the source
//! ```
//!
//! Invariants
//! 1. A loop at rest is not woken for it, and a busy one once in a millisecond at most. Below the
//!    knee it costs a comparison for each read.
//! 2. A request that stands in line has not been read: its bytes wait in the socket, and hold no
//!    room.
//!
//! Not here: which request is called next (crate `node`, `standing/`), all loops together
//! (`lanes/overload.rs`).
//! See: docs/overload.md, "When the processor is what runs out".

use crate::clock;
use crate::event_loop::giving_way::{GivingWay, source_of};
use crate::lanes::lane::{LoopHandle, Loops};
use crate::waiting::seat::{LocalBell, Seat};
use dendra_node::Line;
use dendra_node::standing::{Called, Crowding, LineChange, STANDING_US, StackPlace};
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The least time between two probes of one loop.
const PROBE_US: u64 = 1_000;
/// Work for one connection in front of others is cut into pieces once the probe has waited for this
/// long.
const CROWDED_US: u64 = 2_000;

/// One loop's.
pub(crate) struct Delay {
    lanes: Arc<Loops>,
    /// Index of the loop.
    index: usize,
    giving_way: Rc<GivingWay>,
    line: RefCell<Line<Rc<InLineEntry>>>,
    is_standing: Cell<bool>,
    crowding: Cell<Crowding>,
    /// Wakes the porter: a request stands in line.
    porter: LocalBell,
    bell: LocalBell,
    probe: LagProbe,
}

/// When the probe of a loop is rung, and what is known of the delay from it.
#[derive(Default)]
struct LagProbe {
    /// When the probe was rung that waits now.
    rung_us: Cell<Option<u64>>,
    /// When the next probe, or the next sample of the one that waits, is due.
    due_us: Cell<u64>,
}

/// The result of a look at it.
#[derive(Debug, PartialEq, Eq)]
enum ProbeLook {
    /// Nothing is due.
    NotDue,
    /// The bell is to be rung.
    Rings,
    /// The bell still waits, for so many microseconds: a sample.
    Waits(u64),
}

impl LagProbe {
    fn look(&self, now_us: u64) -> ProbeLook {
        if now_us < self.due_us.get() {
            return ProbeLook::NotDue;
        }
        self.due_us.set(now_us + STANDING_US);
        match self.rung_us.get() {
            None => {
                self.rung_us.set(Some(now_us));
                ProbeLook::Rings
            }
            Some(rung_us) => ProbeLook::Waits(now_us.saturating_sub(rung_us)),
        }
    }

    /// Ends the probe, for the loop runs: the longest that a request waits for its loop, in the run
    /// queue or among those that give way. `None` = it was not rung.
    fn runs(&self, now_us: u64, giving_way: &GivingWay) -> Option<u64> {
        let rung_us = self.rung_us.take()?;
        self.due_us.set(now_us + PROBE_US);
        let lag_us = now_us.saturating_sub(rung_us);
        Some(lag_us.max(giving_way.waited_us(now_us)))
    }

    /// How long it waits.
    fn waits_us(&self, now_us: u64) -> u64 {
        let rung_us = self.rung_us.get().unwrap_or(now_us);
        now_us.saturating_sub(rung_us)
    }
}

/// A connection in line.
struct InLineEntry {
    seat: Rc<Seat>,
    called: Cell<Option<Called>>,
}

/// A place in line, left when dropped.
pub(crate) struct InLine<'a> {
    delay: &'a Delay,
    place: StackPlace,
    standee: Rc<InLineEntry>,
}

impl InLine<'_> {
    /// Was it called?
    pub(crate) fn called(&self) -> Option<Called> {
        self.standee.called.get()
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if self.called().is_none() {
            self.delay.line.borrow_mut().leave(self.place);
        }
    }
}

impl Delay {
    /// The loop `index` of `lanes`, at rest.
    pub(crate) fn new(
        target: Duration,
        lanes: &Arc<Loops>,
        index: usize,
        giving_way: &Rc<GivingWay>,
    ) -> Delay {
        Delay {
            lanes: Arc::clone(lanes),
            index,
            giving_way: Rc::clone(giving_way),
            line: RefCell::new(Line::new(target.as_micros() as u64)),
            is_standing: Cell::new(false),
            crowding: Cell::new(Crowding::None),
            porter: LocalBell::default(),
            bell: LocalBell::default(),
            probe: LagProbe::default(),
        }
    }

    fn handle(&self) -> &LoopHandle {
        &self.lanes[self.index]
    }

    /// Something was read: looks whether it is time for a probe, or whether one is late.
    pub(crate) fn look(&self, now_us: u64) {
        match self.probe.look(now_us) {
            ProbeLook::NotDue => {}
            ProbeLook::Rings => self.bell.ring(),
            ProbeLook::Waits(lag_us) => self.sample(now_us, lag_us),
        }
    }

    fn sample(&self, now_us: u64, lag_us: u64) {
        let change = self.line.borrow_mut().sample(now_us, lag_us);
        self.note(now_us, change);
    }

    fn note(&self, now_us: u64, change: Option<LineChange>) {
        let overload = &self.lanes.overload;
        match change {
            Some(LineChange::Begins) => {
                self.is_standing.set(true);
                self.handle().metrics.is_standing.set(1);
                self.porter.ring();
                self.giving_way.call_all();
            }
            Some(LineChange::Ends) => {
                self.is_standing.set(false);
                self.handle().metrics.is_standing.set(0);
            }
            None => {}
        }
        let crowding = self.line.borrow().crowding(now_us);
        overload.count(self.crowding.replace(crowding), crowding);
        if self.is_standing.get() {
            overload.say(now_us, self.line.borrow().delay_us(now_us));
        }
    }

    /// Do requests stand in line?
    pub(crate) fn is_standing(&self) -> bool {
        self.is_standing.get()
    }

    /// Do more requests stand in line than are served within the target?
    pub(crate) fn is_beyond(&self) -> bool {
        self.is_standing() && self.crowding.get() == Crowding::Beyond
    }

    /// A request of the connection in `seat`, from `source`, is there to be read. `None` when there
    /// is no line (any more).
    pub(crate) fn stand(&self, seat: &Rc<Seat>, source: IpAddr, now_us: u64) -> Option<InLine<'_>> {
        if !self.is_standing() {
            return None;
        }
        let standee = Rc::new(InLineEntry {
            seat: Rc::clone(seat),
            called: Cell::new(None),
        });
        let mut line = self.line.borrow_mut();
        let place = line.join(now_us, source_of(source), Rc::clone(&standee));
        self.porter.ring();
        Some(InLine {
            delay: self,
            place,
            standee,
        })
    }

    /// What a connection from `source` had done came to the work of so many calls beside its own.
    pub(crate) fn charge(&self, source: IpAddr, calls: usize) {
        if self.is_standing() {
            let mut line = self.line.borrow_mut();
            line.charge(source_of(source), calls as u64);
        }
    }

    fn call(&self, now_us: u64) {
        let mut called = Vec::new();
        let change = self.line.borrow_mut().call(now_us, &mut called);
        for (standee, what) in called {
            standee.called.set(Some(what));
            standee.seat.wake();
        }
        self.note(now_us, change);
    }

    /// Do others wait behind the connection that is worked on now? It may have read all that it is
    /// asked long ago, so that no read has rung a probe.
    pub(crate) fn is_crowded(&self, now_us: u64) -> bool {
        self.look(now_us);
        self.is_standing() || self.probe.waits_us(now_us) > CROWDED_US
    }

    /// The delay that was measured may be over.
    pub(crate) fn sweep(&self, now_us: u64) {
        let delay_us = self.line.borrow().delay_us(now_us);
        self.handle().metrics.standing_us.set(delay_us);
        self.handle()
            .metrics
            .standing
            .set(self.line.borrow().len() as u64);
        self.note(now_us, None);
        if self.is_standing() {
            self.porter.ring();
        }
    }
}

/// The probe of one loop: it waits in the run queue as every request does.
pub(crate) async fn probe(delay: Rc<Delay>) {
    loop {
        delay.bell.rung().await;
        let now_us = clock::monotonic_us();
        if let Some(lag_us) = delay.probe.runs(now_us, &delay.giving_way) {
            delay.sample(now_us, lag_us);
        }
    }
}

/// Calls requests out of the line of one loop. It calls as many at a time as take less than a
/// millisecond: the sockets are polled in between.
pub(crate) async fn porter(delay: Rc<Delay>) {
    loop {
        delay.porter.rung().await;
        while delay.is_standing() {
            delay.call(clock::monotonic_us());
            if delay.line.borrow().is_empty() {
                break;
            }
            // Behind all that is ready, and behind a look at the sockets.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_among_newcomers_is_delay() {
        let (probe, waiting) = (LagProbe::default(), GivingWay::default());
        assert_eq!(probe.look(1_000), ProbeLook::Rings);
        assert_eq!(probe.runs(1_005, &waiting), Some(5));
        assert_eq!(probe.runs(1_006, &waiting), None, "it was not rung");
        let seat = Rc::new(Seat::default());
        let source = IpAddr::from([10, 0, 0, 1]);
        let _place = waiting.join(&seat, source, 1_000);
        assert_eq!(probe.look(1_500), ProbeLook::NotDue);
        assert_eq!(probe.look(40_995), ProbeLook::Rings);
        assert_eq!(probe.runs(41_000, &waiting), Some(40_000));
    }

    #[test]
    fn a_probe_that_still_waits_is_a_sample_ten_times_a_second() {
        let probe = LagProbe::default();
        assert_eq!(probe.look(1_000), ProbeLook::Rings);
        let later = |n: u64| 1_000 + n * STANDING_US;
        assert_eq!(probe.look(later(1) - 1), ProbeLook::NotDue);
        for n in 1..4 {
            assert_eq!(probe.look(later(n)), ProbeLook::Waits(n * STANDING_US));
            assert_eq!(probe.look(later(n) + 1), ProbeLook::NotDue);
        }
        assert_eq!(probe.waits_us(later(3) + 7), 3 * STANDING_US + 7);
        assert_eq!(
            probe.runs(later(4), &GivingWay::default()),
            Some(4 * STANDING_US)
        );
        assert_eq!(probe.waits_us(later(5)), 0);
    }
}
