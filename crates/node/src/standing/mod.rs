//! Which request is begun next when the processor is short.
//!
//! ```text
//! open      run queue of the loop, in the order in which sockets became readable
//!             lag ─► sample ─ above the target for STANDING_US, in several samples ─► standing
//! standing  readable socket ─► join ─► call: TURN, round the sources, the newest of each ─► Serve ─► charge
//!                                            one for SERVED_PER_REFUSAL served, of the source with most
//!                                            beyond the target: the next of them, or the oldest ─► Refuse
//!                        late by the target, nothing newer waits, not empty for STALE_FROM_US ─► Refuse
//!                                            longer than a deadline: the oldest, EXPIRED_A_TURN ─► Refuse
//!             in the order of the sockets they would wait for less than half the target, for CALM_US ─► open
//! ```
//!
//! A late loop that keeps the order of arrival serves only clients that have given up already. By
//! taking the newest first it serves as many as it can, each at once. A refusal costs a third of a
//! small read, so refusals are rationed. A request that is neither served nor refused is not even
//! read: it stays in its socket.
//!
//! Invariants
//! 1. The order changes only after the delay stood above its target for `STANDING_US`, in several
//!    samples. A burst, or a process that was stopped for a moment, does not change it.
//! 2. Of `SERVED_PER_REFUSAL` + 1 requests that are called, at most one is refused, however many
//!    wait. `EXPIRED_A_TURN` are refused besides that have waited for `EXPIRED_US`. So are, once
//!    the line was not empty for `STALE_FROM_US`, those that have waited for the target, 20 ms at
//!    least, while none waits that came within the target: the loop has time for that.
//! 3. Every request that joined is called once, unless it leaves; an open line is empty.
//! 4. A round ends when each source that waits was called in it, however many there are. A source
//!    with a single connection waits for one call of each other source, not for their connections.
//!    A call whose work comes to that of several counts as so many rounds.
//! 5. A line that had to begin again at once stays twice as long the next time. Each try to end it
//!    costs the requests in it.
//!
//! Not here: how the lag is measured (the server's loops), gates of counts and bytes
//! (`admission/`), the stacks (`stacks/`).
//! See: docs/overload.md, "When the processor is what runs out".

pub use crate::stacks::{AddressGroup, StackPlace};
use crate::stacks::{AddressStacks, Late};

/// How long the delay must stay above its target before the order changes: CoDel's interval. It is
/// longer than a burst of requests, and shorter than a client's patience.
pub const STANDING_US: u64 = 100_000;
/// So many requests are called at once: less than a millisecond of work, so that newer ones are
/// seen soon.
pub const TURN: usize = 32;
/// At most one request is refused for so many that are served: a twentieth of the time, when a
/// refusal costs a third.
pub const SERVED_PER_REFUSAL: usize = 8;
/// So many samples in a row at least: one alone may be a process that was stopped.
const SAMPLES_MIN: u32 = 2;
/// The deadline of a request that names none: what has waited for longer is told so as soon as that
/// is cheap, because its client waits for nothing else.
const EXPIRED_US: u64 = 1_000_000;
/// So many of them in a turn: 2 % of its time.
const EXPIRED_A_TURN: usize = 2;
/// A loop that goes without samples for this long is at rest.
const QUIET_US: u64 = 500_000;
/// The line ends when, for so long, all requests in it could have been called in time. If it had to
/// begin again at once, the time is longer, up to the maximum.
const CALM_US: u64 = 500_000;
const CALM_US_MAX: u64 = 4_000_000;
/// Served requests are counted over so long.
const WINDOW_US: u64 = 50_000;
/// Once the line was not empty for so long, late requests are no remains of a burst. A shorter one
/// is served to its end: half of the deadline of a request that names none.
const STALE_FROM_US: u64 = 500_000;
/// And what has waited for less is not late, however small the target is.
const STALE_US_MIN: u64 = 20_000;
/// So long behind the last line another delay is no burst.
const ALERT_US: u64 = 1_000_000;

/// How near the delay of a loop is to its target: newcomers had better wait outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowding {
    /// Below half of it.
    None,
    /// Above half of it, or requests stand in line.
    Near,
    /// Above it.
    Beyond,
}

/// Did the order change?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineChange {
    /// From now on requests stand in line.
    Begins,
    /// From now on they do not.
    Ends,
}

/// The fate of a request that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The request is read and carried out.
    Serve,
    /// The request is read and refused: newer ones came all the time, or it is too old.
    Refuse,
}

/// The line of one event loop.
#[derive(Debug)]
pub struct Line<T> {
    target_us: u64,
    is_standing: bool,
    /// Open: since when every sample was above the target, and how many there were.
    above: Option<(u64, u32)>,
    sampled_us: u64,
    lag_us: u64,
    /// Standing: since when all could have been called in time, and for how long that has to be so.
    calm_since_us: u64,
    calm_us: u64,
    /// The window of the count: its beginning, the requests served in it, and the most that waited.
    window: (u64, u64, u64),
    /// Until when one sample is enough.
    alert_until_us: u64,
    waiting: AddressStacks<T>,
    /// Is the next one that is refused the oldest?
    is_oldest_next: bool,
    /// Served requests that have not been set against a refusal.
    credit: usize,
    /// Since when at least one request stands in line.
    busy_since_us: u64,
}

impl<T> Line<T> {
    /// Line of a loop at rest. With a target of 0 the order never changes.
    pub fn new(target_us: u64) -> Line<T> {
        Line {
            target_us,
            is_standing: false,
            above: None,
            sampled_us: 0,
            lag_us: 0,
            calm_since_us: 0,
            calm_us: CALM_US,
            window: (0, 0, 0),
            alert_until_us: 0,
            waiting: AddressStacks::new(),
            is_oldest_next: false,
            credit: 0,
            busy_since_us: 0,
        }
    }

    /// Do requests stand in line?
    pub fn is_standing(&self) -> bool {
        self.is_standing
    }

    /// A task that was woken at `now_us - lag_us` runs at `now_us`, or still waits then.
    pub fn sample(&mut self, now_us: u64, lag_us: u64) -> Option<LineChange> {
        let since_us = now_us.saturating_sub(self.sampled_us);
        if self.is_standing || self.target_us == 0 {
            return None;
        }
        if since_us > QUIET_US.max(2 * lag_us) {
            self.above = None;
        }
        (self.sampled_us, self.lag_us) = (now_us, lag_us);
        if lag_us <= self.target_us {
            self.above = None;
            return None;
        }
        let (from_us, samples) = self.above.unwrap_or((now_us.saturating_sub(lag_us), 0));
        self.above = Some((from_us, samples + 1));
        let stands = now_us - from_us >= STANDING_US && samples + 1 >= SAMPLES_MIN;
        if !stands && now_us >= self.alert_until_us {
            return None;
        }
        self.is_standing = true;
        self.above = None;
        self.calm_since_us = now_us;
        self.calm_us = if now_us < self.alert_until_us {
            CALM_US_MAX.min(2 * self.calm_us)
        } else {
            CALM_US
        };
        self.window = (now_us, 0, 0);
        self.credit = 0;
        Some(LineChange::Begins)
    }

    /// A request came from `source`.
    pub fn join(&mut self, now_us: u64, source: AddressGroup, request: T) -> StackPlace {
        if self.is_empty() {
            self.busy_since_us = now_us;
        }
        self.waiting.push(now_us, source, request)
    }

    /// A request goes, called or not.
    pub fn leave(&mut self, place: StackPlace) {
        let _gone = self.waiting.take(place);
    }

    /// Work for `source` came to that of so many calls more than it was called. Without a line this
    /// changes nothing.
    pub fn charge(&mut self, source: AddressGroup, calls: u64) {
        if self.is_standing {
            self.waiting.charge(source, calls);
        }
    }

    /// Calls the next ones.
    pub fn call(&mut self, now_us: u64, called: &mut Vec<(T, Called)>) -> Option<LineChange> {
        self.window.2 = self.window.2.max(self.waiting.len() as u64);
        let before = called.len();
        for _ in 0..TURN {
            let Some((place, request)) = self.waiting.pop() else {
                break;
            };
            if self.is_stale(now_us, place.came_us()) {
                called.push((request, Called::Refuse));
                continue;
            }
            called.push((request, Called::Serve));
            self.credit += 1;
        }
        while self.credit >= SERVED_PER_REFUSAL
            && let Some(request) = self.next_refused(now_us)
        {
            self.credit -= SERVED_PER_REFUSAL;
            called.push((request, Called::Refuse));
        }
        self.credit = self.credit.min(TURN);
        for _ in 0..EXPIRED_A_TURN {
            let expired = self.next_expired(now_us).into_iter();
            called.extend(expired.map(|request| (request, Called::Refuse)));
        }
        self.window.1 += (called.len() - before) as u64;
        self.close_window(now_us);
        let is_calm = now_us.saturating_sub(self.calm_since_us) >= self.calm_us;
        if !self.is_standing || !is_calm {
            return None;
        }
        let rest = self.waiting.drain().into_iter();
        called.extend(rest.map(|request| (request, Called::Serve)));
        self.is_standing = false;
        self.alert_until_us = now_us + ALERT_US;
        Some(LineChange::Ends)
    }

    /// How long the last one would have waited, had all been called in the order in which they
    /// came?
    fn close_window(&mut self, now_us: u64) {
        let (from_us, served, waited) = self.window;
        let took_us = now_us.saturating_sub(from_us);
        if took_us < WINDOW_US {
            return;
        }
        self.lag_us = waited * took_us / served.max(1);
        self.sampled_us = now_us;
        if self.lag_us > self.target_us / 2 {
            self.calm_since_us = now_us;
        }
        self.window = (now_us, 0, self.waiting.len() as u64);
    }

    /// How near is the delay to its target?
    pub fn crowding(&self, now_us: u64) -> Crowding {
        match self.delay_us(now_us) {
            delay_us if delay_us > self.target_us => Crowding::Beyond,
            delay_us if delay_us > self.target_us / 2 => Crowding::Near,
            _ if self.is_standing => Crowding::Near,
            _ => Crowding::None,
        }
    }

    /// Takes turns between a request with a client that most likely still waits, and the oldest
    /// one. The client of the oldest may have gone, but it must not wait for as long as the
    /// overload lasts.
    fn next_refused(&mut self, now_us: u64) -> Option<T> {
        let which = if self.is_oldest_next {
            Late::Oldest
        } else {
            Late::Newest
        };
        let until_us = now_us.saturating_sub(self.target_us);
        let refused = self.waiting.pop_late(until_us, which)?;
        self.is_oldest_next = !self.is_oldest_next;
        Some(refused)
    }

    /// The oldest of the source with the most that are late, if its deadline has passed.
    fn next_expired(&mut self, now_us: u64) -> Option<T> {
        let until_us = now_us.saturating_sub(self.target_us);
        let oldest = self.waiting.late_place(until_us, Late::Oldest)?;
        if now_us - oldest.came_us() > EXPIRED_US {
            self.waiting.take(oldest)
        } else {
            None
        }
    }

    /// Has a request that came at `came_us` waited for so long, in an overload that lasts, that a
    /// refusal serves its client better than a late answer? Not while newer ones wait: then it is
    /// called because its source has its turn.
    fn is_stale(&mut self, now_us: u64, came_us: u64) -> bool {
        let busy_us = now_us.saturating_sub(self.busy_since_us);
        let has_lasted = self.is_standing && busy_us >= STALE_FROM_US;
        let waited_us = now_us.saturating_sub(came_us);
        let until_us = now_us.saturating_sub(self.target_us);
        has_lasted && waited_us > self.stale_us() && !self.waiting.has_newer(until_us)
    }

    /// The longest wait of a request that is not late.
    fn stale_us(&self) -> u64 {
        STALE_US_MIN.max(self.target_us)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Does none wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }

    /// How long a request waits for its loop; while they stand in line, how long it would wait in
    /// the order of the sockets. 0 once there was nothing for a while.
    pub fn delay_us(&self, now_us: u64) -> u64 {
        if now_us.saturating_sub(self.sampled_us) > QUIET_US {
            0
        } else {
            self.lag_us
        }
    }
}

#[cfg(test)]
mod tests;
