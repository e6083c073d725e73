//! One thread of the driver.
//!
//! ```text
//! loop:  take the request that is due ─► free connection of its target, or its queue ─► write
//!        wait (until the next instant) ─► read ─► account, free
//! ```
//!
//! Invariants
//! 1. Every request that was planned ends exactly once in the recorder, even if its connection
//!    breaks.
//! 2. A connection is in `free` at most once, and only while it is open and has room.
//! 3. No call here blocks but the wait, and that one at most until the next instant.
//!
//! Not here: reading answers (`worker/receive.rs`), sleeping (`worker/wait.rs`), sockets
//! (`connection.rs`). See: docs/lab/run-json.md.

mod looks;
mod receive;
mod wait;

use super::arrival::Reads;
use super::connection::{PendingRequest, TargetConnection, Wrote};
use super::patience::Patience;
use super::plan::{
    ArrivalProcess, DriveError, DriverPlan, QueueOrder, RunProgress, StopFlag, ThreadRecord,
};
use crate::limits::{
    BACKLOG_LEN_MAX, CONNECT_MS_MAX, CUT_GRACE_MS, NAP_MS_MAX, OPENING_MAX, READ_BYTES,
};
use crate::recorder::{Ended, Recorder, RequestEnd, SentAt, Used};
use crate::source::RequestSpec;
use crate::template::Fill;
use dendra_base::workload::RequestKind;
use looks::{EVENTS, Lateness, Looks};
use rustix::event::epoll::{self, CreateFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;

/// Connections are looked at for timeouts and reconnects this often.
const SWEEP_NS: u64 = NAP_MS_MAX * 1_000_000 / 2;

/// Numbers of failed requests that are kept for another attempt.
const FAILURES_KEPT_MAX: usize = 1_000_000;

/// Requests that become due in one round.
const TAKEN_MAX: usize = 4096;

/// A request that is due and waits.
#[derive(Clone, Copy)]
struct WaitingRequest {
    index: u64,
    operation: RequestKind,
    due_ns: u64,
}

pub(super) struct DriverWorker<'a> {
    plan: &'a DriverPlan,
    number: u64,
    step: u64,
    epoll: OwnedFd,
    connections: Vec<TargetConnection>,
    /// By target.
    free: Vec<VecDeque<u32>>,
    queues: Vec<VecDeque<WaitingRequest>>,
    dirty: Vec<u32>,
    recorder: Recorder,
    ends_ns: Vec<u64>,
    key: Vec<u8>,
    start: Instant,
    in_flight: u64,
    answered: u64,
    errors: u64,
    planned: u64,
    next_index: u64,
    trouble: Option<String>,
    refusal: Option<String>,
    failures: Vec<u64>,
    spun_ns: u64,
    /// Bytes that came sealed, in clear.
    plain: Vec<u8>,
    reads: Reads,
    looks: Looks,
    lateness: Lateness,
    patience: Patience,
    /// Did the last bytes tell when they came?
    is_stamped: bool,
    /// When they were read.
    read_ns: u64,
    /// The longest answer so far.
    answer_bytes_max: u64,
    /// Is there anything that waits for a read: operations that write then, requests longer than
    /// the socket, answers that end with their connection?
    reads_at_once: bool,
    sample: Sample,
}

/// Where the sampling of the generator's own cost is.
struct Sample {
    phase: usize,
    second: usize,
    at_ns: u64,
    last_ns: u64,
    cpu_ns: u64,
    starved_ns: u64,
    spun_ns: u64,
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

/// Time that this thread was ready to run and another one had the processor; zero where the kernel
/// does not say.
fn thread_starved_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field = text.split_ascii_whitespace().nth(1);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Does it read, and then write?
fn reads_first(operation: RequestKind) -> bool {
    matches!(
        operation,
        RequestKind::ReadModifyWrite | RequestKind::CompareAndSet
    )
}

fn system(errno: Errno) -> DriveError {
    DriveError::System(errno.into())
}

impl<'a> DriverWorker<'a> {
    /// A worker with its connections made.
    pub(super) fn connected(
        plan: &'a DriverPlan,
        number: u32,
        threads: u32,
    ) -> Result<DriverWorker<'a>, DriveError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system)?;
        let own = (number..plan.connections).step_by(threads as usize);
        let targets = plan.targets.len();
        // A closed loop sends when it has read: only that counts there.
        let is_stamped = !matches!(plan.pace, ArrivalProcess::Closed(_));
        let connections = own.enumerate().map(|(slot, global)| {
            // Neighbours go to different targets, and each thread reaches all of them.
            let target = (global / threads) as usize % targets;
            TargetConnection::new(slot as u64, target, &plan.targets[target], is_stamped)
        });
        let ends_ns = plan.ends_ns();
        let mut worker = DriverWorker {
            plan,
            number: u64::from(number),
            step: u64::from(threads),
            epoll,
            connections: connections.collect(),
            free: vec![VecDeque::new(); targets],
            queues: (0..targets).map(|_| VecDeque::new()).collect(),
            dirty: Vec::new(),
            recorder: Recorder::new(&ends_ns, targets, plan.lag_limit_us)
                .with_redirects(plan.redirects),
            sample: Sample {
                phase: 0,
                second: 0,
                at_ns: SECOND_NS.min(ends_ns[0]),
                last_ns: 0,
                cpu_ns: 0,
                starved_ns: 0,
                spun_ns: 0,
            },
            ends_ns,
            key: Vec::with_capacity(64),
            start: Instant::now(),
            in_flight: 0,
            answered: 0,
            errors: 0,
            planned: 0,
            next_index: plan.first_index,
            trouble: None,
            refusal: None,
            failures: Vec::new(),
            spun_ns: 0,
            reads: Reads::new(is_stamped),
            plain: Vec::new(),
            looks: Looks::default(),
            lateness: Lateness::new(),
            patience: Patience::new(plan.timeout.as_nanos() as u64),
            is_stamped: false,
            read_ns: 0,
            answer_bytes_max: 0,
            reads_at_once: false,
        };
        // Without this the kernel adds up to 50 µs to every sleep.
        let slack = std::num::NonZeroU64::new(1);
        rustix::thread::set_current_timer_slack(slack).map_err(system)?;
        worker.connect_all()?;
        Ok(worker)
    }

    /// Opens every connection, a few at a time. A burst of thousands would wait for the kernel to
    /// send lost first packets again, and the run would begin without them. The target that takes
    /// none at all is down.
    fn connect_all(&mut self) -> Result<(), DriveError> {
        let mut first_error: Vec<Option<String>> = vec![None; self.free.len()];
        let mut tried = vec![false; self.free.len()];
        let deadline = self.start + Duration::from_millis(CONNECT_MS_MAX);
        let mut events = Vec::with_capacity(EVENTS);
        let (mut opening, mut next) = (0, 0);
        while (next < self.connections.len() || opening > 0) && Instant::now() < deadline {
            while opening < OPENING_MAX && next < self.connections.len() {
                let connection = &mut self.connections[next];
                next += 1;
                tried[connection.target] = true;
                match connection.open(&self.epoll, 0) {
                    Ok(()) => opening += 1,
                    Err(errno) if matches!(errno, Errno::MFILE | Errno::NFILE) => {
                        return Err(system(errno));
                    }
                    Err(errno) => {
                        let error = std::io::Error::from(errno);
                        first_error[connection.target] = Some(error.to_string());
                    }
                }
            }
            self.poll(&mut events, SWEEP_NS)?;
            for slot in events.drain(..).map(|event| event.data.u64() as usize) {
                let connection = &mut self.connections[slot];
                let target = connection.target;
                let was_opening = connection.is_opening();
                if let Err(error) = connection.opened(&self.epoll, 0) {
                    first_error[target].get_or_insert(error.to_string());
                }
                // A handshake may be under way still.
                opening -= usize::from(was_opening && !connection.is_opening());
            }
        }
        for (target, (was_tried, error)) in tried.into_iter().zip(first_error).enumerate() {
            let mut own = self.connections.iter().filter(|c| c.target == target);
            if was_tried && !own.any(TargetConnection::is_open) {
                let late = || format!("no connection was accepted within {CONNECT_MS_MAX} ms");
                let why = error.unwrap_or_else(late);
                return Err(DriveError::Down {
                    target,
                    reason: why,
                });
            }
        }
        for slot in 0..self.connections.len() {
            if self.connections[slot].is_open() {
                self.recorder.connected(0);
                self.list(slot);
            }
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        // Before time zero this is zero.
        Instant::now()
            .saturating_duration_since(self.start)
            .as_nanos() as u64
    }

    /// Puts a connection with room into the list of its target.
    fn list(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let has_room = connection.in_flight.len() < self.plan.pipeline as usize;
        if connection.is_open() && has_room && !connection.is_listed {
            connection.is_listed = true;
            self.free[connection.target].push_back(slot as u32);
        }
    }

    /// Runs the plan to its end.
    pub(super) fn run(
        mut self,
        start: Instant,
        stop: &StopFlag,
        progress: &RunProgress,
    ) -> Result<ThreadRecord, DriveError> {
        self.start = start;
        self.sample.cpu_ns = thread_cpu_ns();
        self.sample.starved_ns = thread_starved_ns();
        let mut dues = self
            .plan
            .dues()
            .map(|dues| (self.plan.first_index..).zip(dues).peekable());
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0u8; READ_BYTES];
        let mut swept_ns = 0;
        let mut cut_ns = None;
        let mut shown = [0u64; 3];
        if let Some(dues) = &mut dues {
            for _ in 0..self.number {
                dues.next();
            }
        }
        loop {
            let now_ns = self.now_ns();
            let now_ns = if now_ns >= self.sample.at_ns || now_ns >= swept_ns + SWEEP_NS {
                self.catch_up(&mut events, &mut buffer)?;
                self.now_ns()
            } else {
                now_ns
            };
            if now_ns >= self.sample.at_ns {
                self.sample(now_ns);
            }
            let next_ns = match &mut dues {
                _ if cut_ns.is_some() => None,
                Some(dues) => self.take_due(dues, now_ns),
                None => self.take_free(now_ns),
            };
            self.dispatch(now_ns);
            self.flush();
            if now_ns >= swept_ns + SWEEP_NS {
                swept_ns = now_ns;
                self.sweep(now_ns);
                self.show(progress, &mut shown);
                if cut_ns.is_none() && stop.is_asked() {
                    cut_ns = Some(now_ns);
                    self.drop_queues(now_ns);
                }
                let grace_ns = CUT_GRACE_MS * 1_000_000;
                if cut_ns.is_some_and(|at_ns| now_ns > at_ns + grace_ns) {
                    self.give_up_all(now_ns);
                }
            }
            if next_ns.is_none() && !self.is_waiting() && self.in_flight == 0 {
                break;
            }
            self.wait(&mut events, next_ns, swept_ns + SWEEP_NS)?;
            self.take_events(&events, &mut buffer);
        }
        let now_ns = self.now_ns();
        self.sample(now_ns);
        self.show(progress, &mut shown);
        let mut phases = self.recorder.into_phases();
        if let Some(at_ns) = cut_ns {
            for phase in &mut phases {
                phase.cut(at_ns);
            }
        }
        Ok(ThreadRecord {
            phases,
            is_cut: cut_ns.is_some(),
            trouble: self.trouble,
            refusal: self.refusal,
            next_index: self.next_index,
            failures: self.failures,
        })
    }

    /// Takes everything that is due; the instant of the next one of this thread.
    fn take_due(
        &mut self,
        dues: &mut std::iter::Peekable<impl Iterator<Item = (u64, u64)>>,
        now_ns: u64,
    ) -> Option<u64> {
        let mut taken = 0;
        while let Some(&(index, due_ns)) = dues.peek() {
            // A bounded share at once: after a hiccup, answers are not left unread for long.
            if due_ns > now_ns || taken == TAKEN_MAX {
                return Some(due_ns);
            }
            taken += 1;
            // Numbers of one thread are a stride apart: without the division some targets would get
            // none.
            let target = (index / self.step) as usize % self.queues.len();
            self.plan_one(target, index, due_ns, now_ns);
            for _ in 0..self.step {
                dues.next();
            }
        }
        None
    }

    /// In a closed loop: as many requests as there is room for, so that all of one connection are
    /// one write.
    fn take_free(&mut self, now_ns: u64) -> Option<u64> {
        let ArrivalProcess::Closed(count_max) = self.plan.pace else {
            return None;
        };
        let end_ns = self.ends_ns.last().copied().unwrap_or(0);
        let targets = self.free.len();
        loop {
            let index = self.planned * self.step + self.number;
            if now_ns >= end_ns || count_max.is_some_and(|max| index >= max) {
                return None;
            }
            let index = self.plan.first_index + index;
            // The target is that of a free connection: the answer decides, not the plan.
            let preferred = index as usize % targets;
            let mut others = (preferred..targets).chain(0..preferred);
            let is_free = |&target: &usize| self.queues[target].is_empty() && self.has_free(target);
            let Some(target) = others.find(is_free) else {
                return Some(u64::MAX);
            };
            self.plan_one(target, index, now_ns, now_ns);
        }
    }

    /// A request is due: it goes to a free connection at once, or waits for one.
    fn plan_one(&mut self, target: usize, index: u64, due_ns: u64, now_ns: u64) {
        self.planned += 1;
        self.next_index = self.next_index.max(index + 1);
        let ask = self.plan.source.ask(index, &mut self.key);
        let operation = ask.operation;
        self.recorder.planned(operation, target, due_ns);
        let waiting = WaitingRequest {
            index,
            operation,
            due_ns,
        };
        let is_next = self.queues[target].is_empty() || self.plan.order == QueueOrder::NewestFirst;
        let is_next = is_next && !self.patience.is_hopeless(due_ns, now_ns);
        if is_next && self.has_free(target) {
            self.send_free(target, waiting, &ask);
            return;
        }
        if self.queues[target].len() >= BACKLOG_LEN_MAX {
            let last = match self.plan.order {
                QueueOrder::OldestFirst => Some(waiting),
                QueueOrder::NewestFirst => self.queues[target].pop_front(),
            };
            if let Some(last) = last {
                self.unsent(target, last, now_ns);
            }
        }
        if self.queues[target].len() < BACKLOG_LEN_MAX {
            self.queues[target].push_back(waiting);
        }
    }

    fn keep_failure(&mut self, index: u64) {
        if self.plan.keeps_failures && self.failures.len() < FAILURES_KEPT_MAX {
            self.failures.push(index);
        }
    }

    fn unsent(&mut self, target: usize, waiting: WaitingRequest, now_ns: u64) {
        self.keep_failure(waiting.index);
        self.errors += 1;
        self.recorder.ended(&Ended {
            operation: waiting.operation,
            target,
            due_ns: waiting.due_ns,
            sent_ns: 0,
            done_ns: now_ns,
            received_bytes: 0,
            body_bytes: 0,
            scanned: 0,
            end: RequestEnd::Unsent,
        });
    }

    fn drop_queues(&mut self, now_ns: u64) {
        for target in 0..self.queues.len() {
            while let Some(waiting) = self.queues[target].pop_front() {
                self.unsent(target, waiting, now_ns);
            }
        }
    }

    /// Gives up those that wait for a connection and have no time left for an answer.
    fn drop_hopeless(&mut self, target: usize, now_ns: u64) {
        while let Some(&waiting) = self.queues[target].front() {
            if !self.patience.is_hopeless(waiting.due_ns, now_ns) {
                break;
            }
            self.queues[target].pop_front();
            self.unsent(target, waiting, now_ns);
        }
    }

    /// Gives waiting requests to free connections.
    fn dispatch(&mut self, now_ns: u64) {
        for target in 0..self.queues.len() {
            self.drop_hopeless(target, now_ns);
            while !self.queues[target].is_empty() && self.has_free(target) {
                let next = match self.plan.order {
                    QueueOrder::OldestFirst => self.queues[target].pop_front(),
                    QueueOrder::NewestFirst => self.queues[target].pop_back(),
                };
                let waiting = next.expect("the queue is not empty");
                let ask = self.plan.source.ask(waiting.index, &mut self.key);
                self.send_free(target, waiting, &ask);
            }
        }
    }

    /// Does a connection with room head the list of this target? Those that were closed since leave
    /// it.
    fn has_free(&mut self, target: usize) -> bool {
        while let Some(&slot) = self.free[target].front() {
            let connection = &mut self.connections[slot as usize];
            if connection.is_open() {
                return true;
            }
            connection.is_listed = false;
            self.free[target].pop_front();
        }
        false
    }

    /// Renders a request into the buffer of a free connection. Requires: `has_free(target)`, and
    /// the key of `ask` in `self.key`.
    fn send_free(&mut self, target: usize, waiting: WaitingRequest, ask: &RequestSpec) {
        let slot = self.free[target]
            .pop_front()
            .expect("the caller has seen a free connection") as usize;
        let connection = &mut self.connections[slot];
        connection.is_listed = false;
        let ready_ns = waiting.due_ns.max(connection.free_since_ns);
        self.append(slot, waiting, ready_ns, ask);
        self.list(slot);
    }

    /// Does a request wait for room?
    fn is_waiting(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    fn is_late(&self, due_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(due_ns) > self.plan.timeout.as_nanos() as u64
    }

    fn append(&mut self, slot: usize, waiting: WaitingRequest, ready_ns: u64, ask: &RequestSpec) {
        self.reads_at_once |= reads_first(ask.operation);
        let connection = &mut self.connections[slot];
        let templates = &self.plan.targets[connection.target].templates;
        let value = self.plan.source.value(ask);
        let out = connection.out();
        let before = out.len();
        if ask.is_target {
            let method = match ask.operation {
                RequestKind::Put => "PUT",
                RequestKind::Delete => "DELETE",
                _ => "GET",
            };
            templates.recorded(method, &self.key, value, out);
        } else {
            let condition: &[u8] = match ask.operation {
                RequestKind::Create => b"If-None-Match: *",
                _ => b"",
            };
            let fill = Fill {
                key: &self.key,
                value,
                limit: ask.limit,
                condition,
            };
            templates.first(ask.operation).render(&fill, out);
        }
        let bytes = (out.len() - before) as u64;
        connection.in_flight.push_back(PendingRequest {
            index: waiting.index,
            operation: ask.operation,
            due_ns: waiting.due_ns,
            ready_ns,
            sent_ns: 0,
            bytes,
            received_bytes: 0,
            is_second: false,
        });
        self.in_flight += 1;
        self.mark_dirty(slot);
    }

    fn mark_dirty(&mut self, slot: usize) {
        if !self.connections[slot].is_dirty {
            self.connections[slot].is_dirty = true;
            self.dirty.push(slot as u32);
        }
    }

    /// Writes the bytes that were rendered since the last time.
    fn flush(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            let slot = slot as usize;
            self.connections[slot].is_dirty = false;
            let now_ns = self.now_ns();
            let connection = &mut self.connections[slot];
            let target = connection.target;
            for pending in connection.in_flight.iter_mut().rev() {
                // Unwritten requests stand at the end.
                if pending.bytes == 0 {
                    break;
                }
                let at = SentAt {
                    due_ns: pending.due_ns,
                    ready_ns: pending.ready_ns,
                    sent_ns: now_ns,
                    is_first: !pending.is_second,
                };
                self.recorder
                    .sent(pending.operation, target, at, pending.bytes);
                pending.bytes = 0;
                if !pending.is_second {
                    pending.sent_ns = now_ns.max(1);
                }
            }
            match connection.write(&self.epoll) {
                Wrote::Fine => self.reads_at_once |= self.connections[slot].waits_for_room(),
                Wrote::Failed(errno) => {
                    self.broke(slot, &std::io::Error::from(errno).to_string(), now_ns);
                }
            }
        }
    }

    fn note(&mut self, sentence: impl FnOnce() -> String) {
        if self.trouble.is_none() {
            self.trouble = Some(sentence());
        }
    }

    /// A connection is of no use any more; its requests in flight broke.
    fn broke(&mut self, slot: usize, why: &str, now_ns: u64) {
        self.note(|| why.to_owned());
        self.fail_in_flight(slot, now_ns, RequestEnd::Broken);
        self.connections[slot].close(now_ns, true);
    }

    fn fail_in_flight(&mut self, slot: usize, now_ns: u64, end: RequestEnd) {
        let target = self.connections[slot].target;
        let mut first = true;
        while let Some(pending) = self.connections[slot].in_flight.pop_front() {
            self.in_flight -= 1;
            self.errors += 1;
            self.keep_failure(pending.index);
            let is_late = self.is_late(pending.due_ns, now_ns);
            // Requests that shared the connection with one that was given up broke, unless they are
            // late as well.
            let own = match end {
                RequestEnd::Timeout if !first && !is_late => RequestEnd::Broken,
                RequestEnd::Broken if is_late => RequestEnd::Timeout,
                end => end,
            };
            first = false;
            self.recorder.ended(&Ended {
                operation: pending.operation,
                target,
                due_ns: pending.due_ns,
                sent_ns: pending.sent_ns,
                done_ns: now_ns,
                received_bytes: pending.received_bytes,
                body_bytes: 0,
                scanned: 0,
                end: if pending.sent_ns == 0 {
                    RequestEnd::Unsent
                } else {
                    own
                },
            });
        }
    }

    fn reopen(&mut self, slot: usize, now_ns: u64) {
        if let Err(errno) = self.connections[slot].open(&self.epoll, now_ns) {
            self.note(|| std::io::Error::from(errno).to_string());
        }
    }

    /// Timeouts and reconnects.
    fn sweep(&mut self, now_ns: u64) {
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            let front = connection.in_flight.front();
            if front.is_some_and(|front| self.is_late(front.due_ns, now_ns)) {
                self.note(|| "no answer in time".to_owned());
                self.fail_in_flight(slot, now_ns, RequestEnd::Timeout);
                self.connections[slot].close(now_ns, false);
            }
            if self.connections[slot].wants_to_open(now_ns) && self.patience.may_reconnect(now_ns) {
                self.reopen(slot, now_ns);
            }
        }
        for target in 0..self.queues.len() {
            self.drop_hopeless(target, now_ns);
        }
    }

    /// The run was cut and its grace is over.
    fn give_up_all(&mut self, now_ns: u64) {
        for slot in 0..self.connections.len() {
            if !self.connections[slot].in_flight.is_empty() {
                self.fail_in_flight(slot, now_ns, RequestEnd::Timeout);
                self.connections[slot].close(now_ns, false);
            }
        }
    }

    fn sample(&mut self, now_ns: u64) {
        let cpu_ns = thread_cpu_ns();
        let starved_ns = thread_starved_ns();
        let used = Used {
            starved_ns: starved_ns.saturating_sub(self.sample.starved_ns),
            cpu_ns: cpu_ns - self.sample.cpu_ns,
            spun_ns: self.spun_ns - self.sample.spun_ns,
            wall_ns: now_ns.saturating_sub(self.sample.last_ns),
            in_flight: self.in_flight,
            backlog: self.queues.iter().map(|queue| queue.len() as u64).sum(),
        };
        let last = self.ends_ns.len() - 1;
        self.recorder
            .used(self.sample.phase, self.sample.second, used);
        self.sample.cpu_ns = cpu_ns;
        self.sample.starved_ns = starved_ns;
        self.sample.spun_ns = self.spun_ns;
        self.sample.last_ns = now_ns;
        // A thread that was late by seconds finds its place again.
        while now_ns >= self.sample.at_ns {
            let end_ns = self.ends_ns[self.sample.phase];
            if self.sample.at_ns >= end_ns && self.sample.phase < last {
                self.sample.phase += 1;
                self.sample.second = 0;
                self.sample.at_ns = (end_ns + SECOND_NS).min(self.ends_ns[self.sample.phase]);
            } else {
                self.sample.second += 1;
                self.sample.at_ns += SECOND_NS;
                if self.sample.phase < last {
                    self.sample.at_ns = self.sample.at_ns.min(end_ns);
                }
            }
        }
    }

    /// Adds the changes since the last time to the numbers that others read.
    fn show(&self, progress: &RunProgress, shown: &mut [u64; 3]) {
        let now = [self.planned, self.answered, self.errors];
        let cells = [&progress.planned, &progress.answered, &progress.errors];
        for ((count, before), cell) in now.into_iter().zip(shown).zip(cells) {
            cell.fetch_add(count - *before, Relaxed);
            *before = count;
        }
    }
}
