//! Is there an order of the operations on a key that explains the answers to all clients?
//!
//! ```text
//! search   state = (operations already placed, value the key has then); a state is visited once
//! next     any operation that began before every unplaced one that is done has ended
//! window   between two moments at which nothing is under way; the next one begins with the state that this one left
//! read     placed as soon as it fits: that takes nothing from the later ones
//! write    not placed while a read is still to see the value that it would replace: no value comes back
//! seen     a write whose value was seen is placed before the first read that saw it was answered
//! pending  any other operation of unknown outcome may be placed anywhere after its begin, or nowhere
//! strict   a pending one is not placed behind an acknowledged write that began after "unknown" was told
//! ```
//!
//! Invariants
//! 1. Versions are not trusted: they only name the values that clients saw, for conditions.
//! 2. `SearchVerdict::Bad` is a proof within the rules above. `Undecided` says that the budget ran
//!    out. A runner of many seeds counts and prints these, and fails when there are more than a
//!    few.
//!
//! Not here: the promises of versions (`versions.rs`).
//! See: Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for
//! linearizability", 2017.

use super::{Rule, Violation};
use crate::history::{ClientEnd, ClientOp, Promise, SeenCondition, ValueId};
use crate::limits::{LINEAR_STATES_MAX, UNDECIDED_PERMILLE_MAX};
use dendra_base::Version;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchVerdict {
    /// An order exists.
    Good,
    /// None does.
    Bad,
    /// Not known: a window has more than [`LINEAR_STATES_MAX`] states.
    Undecided,
}

/// May an operation of unknown outcome take effect after an acknowledged write that began after
/// the client was told? On one member it may not. In a cluster it may: its version can come from a
/// clock that is ahead, unknown to the later write's majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingRule {
    /// No.
    EndsWhenReplaced,
    /// Yes: the plain definition of linearizability.
    StaysOpen,
}

/// The value of the key: 0 = none.
type KeyState = ValueId;

/// A condition, and the value that a refusal told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedValue {
    Any,
    Present,
    Absent,
    Is(ValueId),
    Not(ValueId),
}

impl ExpectedValue {
    fn holds(self, state: KeyState) -> bool {
        match self {
            ExpectedValue::Any => true,
            ExpectedValue::Present => state != 0,
            ExpectedValue::Absent => state == 0,
            ExpectedValue::Is(value) => state == value,
            ExpectedValue::Not(value) => state != value,
        }
    }
}

/// An operation as the search sees it.
#[derive(Clone, Debug)]
struct HistoryStep {
    number: u32,
    begun: u64,
    /// `u64::MAX`: pending.
    ended: u64,
    /// When a pending one was told so.
    told: u64,
    /// The condition on the state before it that must hold, and the one that must not.
    holds: ExpectedValue,
    fails: Option<ExpectedValue>,
    /// The value that it leaves; `None` = the earlier one.
    leaves: Option<KeyState>,
}

impl HistoryStep {
    fn is_pending(&self) -> bool {
        self.ended == u64::MAX
    }

    fn apply(&self, state: KeyState) -> Option<KeyState> {
        let is_possible =
            self.holds.holds(state) && !self.fails.is_some_and(|expect| expect.holds(state));
        is_possible.then(|| self.leaves.unwrap_or(state))
    }
}

/// How many keys were searched, and how many searches ended without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searches {
    /// Keys.
    pub keys: u64,
    /// Searches that ended undecided.
    pub undecided: u64,
}

impl Searches {
    /// Adds those of another run.
    pub fn add(&mut self, other: Searches) {
        self.keys += other.keys;
        self.undecided += other.undecided;
    }

    /// Are there so few undecided ones that the others speak for all?
    pub fn are_enough(&self) -> bool {
        1_000 * self.undecided <= UNDECIDED_PERMILLE_MAX * self.keys
    }
}

/// Checks every key that saw only operations of the default level, and values without an end.
pub fn check(history: &[ClientOp], pending: PendingRule) -> (Vec<Violation>, Searches) {
    let mut keys: BTreeMap<usize, Vec<&ClientOp>> = BTreeMap::new();
    for op in history {
        keys.entry(op.key).or_default().push(op);
    }
    let mut violations = Vec::new();
    let mut searches = Searches::default();
    for (key, ops) in keys {
        let is_plain = |op: &&ClientOp| op.promise == Promise::Linearizable && !op.is_fleeting;
        if !ops.iter().all(is_plain) {
            continue;
        }
        let verdict = key_verdict(&ops, pending);
        searches.keys += 1;
        searches.undecided += u64::from(verdict == SearchVerdict::Undecided);
        if verdict != SearchVerdict::Bad {
            continue;
        }
        let rule = match key_verdict(&ops, PendingRule::StaysOpen) {
            SearchVerdict::Bad => Rule::NotLinearizable,
            SearchVerdict::Good | SearchVerdict::Undecided => Rule::LateUnknown,
        };
        let what = format!("key {key}: {} operations have no order", ops.len());
        violations.push(Violation::new(rule, what));
    }
    (violations, searches)
}

/// The verdict on the operations on one key.
pub fn key_verdict(ops: &[&ClientOp], pending: PendingRule) -> SearchVerdict {
    let steps = steps(ops);
    // A write that was not seen is rarely needed to explain anything. A write that did take effect
    // mostly did so before its client was told. So the search goes first without such writes, then
    // with them until then. Only with them for ever can it prove that there is no order.
    let done: Vec<HistoryStep> = steps.iter().filter(|s| !s.is_pending()).cloned().collect();
    if done.len() < steps.len() {
        let is_good = |of, effect| search(of, pending, effect) == SearchVerdict::Good;
        if is_good(&done, EffectWindow::EverAfter) || is_good(&steps, EffectWindow::UntilTold) {
            return SearchVerdict::Good;
        }
    }
    search(&steps, pending, EffectWindow::EverAfter)
}

/// How long a pending operation may take effect, as far as a search is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EffectWindow {
    EverAfter,
    UntilTold,
}

/// The value that a client surely saw. An absent record is no such value: absence comes back.
fn seen_by(step: &HistoryStep) -> Option<ValueId> {
    match step.holds {
        ExpectedValue::Is(value) if value != 0 && !step.is_pending() => Some(value),
        _ => None,
    }
}

/// A write took effect before a read that saw its value was answered.
fn settle(steps: &mut [HistoryStep]) {
    let mut seen_us: HashMap<ValueId, u64> = HashMap::new();
    for step in steps.iter() {
        if let Some(value) = seen_by(step) {
            let first = seen_us.entry(value).or_insert(u64::MAX);
            *first = step.ended.min(*first);
        }
    }
    for step in steps {
        let seen = step.leaves.and_then(|value| seen_us.get(&value));
        step.ended = seen.map_or(step.ended, |seen| step.ended.min(*seen));
    }
}

fn steps(ops: &[&ClientOp]) -> Vec<HistoryStep> {
    let mut values: BTreeMap<Version, ValueId> = BTreeMap::new();
    for op in ops {
        match op.end {
            ClientEnd::Found(seen) => {
                values.insert(seen.version, seen.value);
            }
            ClientEnd::Written(version) => {
                values.insert(version, op.wish.leaves().unwrap_or(0));
            }
            _ => {}
        }
    }
    let mut steps: Vec<HistoryStep> = ops.iter().filter_map(|op| step(op, &values)).collect();
    settle(&mut steps);
    steps.sort_by_key(|step| (step.begun, step.number));
    steps
}

fn step(op: &ClientOp, values: &BTreeMap<Version, ValueId>) -> Option<HistoryStep> {
    let base = match op.wish.base() {
        SeenCondition::Any => ExpectedValue::Any,
        SeenCondition::Present => ExpectedValue::Present,
        SeenCondition::Absent => ExpectedValue::Absent,
        SeenCondition::Matches(seen) => ExpectedValue::Is(seen.value),
        SeenCondition::Differs(seen) => ExpectedValue::Not(seen.value),
    };
    let mut step = HistoryStep {
        number: op.number,
        begun: op.begun_us,
        ended: op.ended_us,
        told: u64::MAX,
        holds: base,
        fails: None,
        leaves: op.wish.is_write().then(|| op.wish.leaves().unwrap_or(0)),
    };
    match op.end {
        ClientEnd::NotApplied => return None,
        ClientEnd::Unknown if !op.wish.is_write() => return None,
        ClientEnd::Unknown => {
            step.ended = u64::MAX;
            step.told = op.ended_us;
        }
        ClientEnd::Found(seen) => step.holds = ExpectedValue::Is(seen.value),
        ClientEnd::Missing(_) => step.holds = ExpectedValue::Absent,
        ClientEnd::Written(_) => {}
        ClientEnd::Refused { current } => {
            let observed = match current {
                None => ExpectedValue::Absent,
                Some(version) => values
                    .get(&version)
                    .map_or(ExpectedValue::Present, |value| ExpectedValue::Is(*value)),
            };
            step.holds = observed;
            step.fails = Some(base);
            step.leaves = None;
        }
    }
    Some(step)
}

/// Parts of the history, in their order: every operation of one of them began after all before it
/// had ended.
fn windows(steps: &[HistoryStep], effect: EffectWindow) -> Vec<&[HistoryStep]> {
    let mut windows = Vec::new();
    let (mut from, mut last_end) = (0, 0);
    for (at, step) in steps.iter().enumerate() {
        if at > from && last_end < step.begun {
            windows.push(&steps[from..at]);
            from = at;
        }
        let is_bounded = step.is_pending() && effect == EffectWindow::UntilTold;
        last_end = last_end.max(if is_bounded { step.told } else { step.ended });
    }
    windows.push(&steps[from..]);
    windows
}

fn search(steps: &[HistoryStep], pending: PendingRule, effect: EffectWindow) -> SearchVerdict {
    let windows = windows(steps, effect);
    let seen = last_seen(&windows);
    let mut walks = vec![WindowWalk::new(windows[0], pending, &seen, 0)];
    walks[0].choose();
    // Windows and the key's value at their begin: to enter one a second time gives no news.
    let mut entered: HashSet<(usize, KeyState)> = HashSet::new();
    while let Some(walk) = walks.last_mut() {
        match walk.next_order() {
            Some(WalkFind::Order(state)) => {
                let replaced = walk.replaced;
                let at = walks.len();
                let Some(window) = windows.get(at) else {
                    return SearchVerdict::Good;
                };
                if entered.insert((at, state)) {
                    let mut next = WindowWalk::new(window, pending, &seen, at);
                    (next.state, next.replaced) = (state, replaced);
                    next.choose();
                    walks.push(next);
                }
            }
            Some(WalkFind::Spent) => return SearchVerdict::Undecided,
            None => {
                walks.pop();
            }
        }
    }
    SearchVerdict::Bad
}

/// The last window in which each value was seen.
fn last_seen(windows: &[&[HistoryStep]]) -> HashMap<ValueId, usize> {
    let all = windows.iter().enumerate();
    let all = all.flat_map(|(at, window)| window.iter().map(move |step| (at, step)));
    all.filter_map(|(at, step)| Some((seen_by(step)?, at)))
        .collect()
}

/// One level of a walk: the operation that was placed, and the candidates that are still to be
/// tried.
struct WalkLevel {
    placed: usize,
    state_before: KeyState,
    replaced_before: u64,
    untried: Vec<usize>,
}

/// The next find of a walk.
enum WalkFind {
    /// An order of all that is done, which leaves this.
    Order(KeyState),
    /// The budget ran out.
    Spent,
}

/// All orders of one window, one after the other.
struct WindowWalk<'a> {
    steps: &'a [HistoryStep],
    pending: PendingRule,
    last_seen: &'a HashMap<ValueId, usize>,
    window: usize,
    /// Unplaced operations that saw a value.
    unseen: HashMap<ValueId, u32>,
    done_total: usize,
    placed: Vec<u64>,
    visited: HashSet<(Vec<u64>, KeyState)>,
    stack: Vec<WalkLevel>,
    untried: Vec<usize>,
    state: KeyState,
    done: usize,
    states: u64,
    is_begun: bool,
    /// The latest begin of an acknowledged write that was placed.
    replaced: u64,
}

impl<'a> WindowWalk<'a> {
    fn new(
        steps: &'a [HistoryStep],
        pending: PendingRule,
        last_seen: &'a HashMap<ValueId, usize>,
        window: usize,
    ) -> WindowWalk<'a> {
        let mut unseen: HashMap<ValueId, u32> = HashMap::new();
        for value in steps.iter().filter_map(seen_by) {
            *unseen.entry(value).or_default() += 1;
        }
        WindowWalk {
            steps,
            pending,
            last_seen,
            window,
            unseen,
            done_total: steps.iter().filter(|step| !step.is_pending()).count(),
            placed: vec![0u64; steps.len().div_ceil(64)],
            visited: HashSet::new(),
            stack: Vec::new(),
            untried: Vec::new(),
            state: 0,
            done: 0,
            states: 0,
            is_begun: false,
            replaced: 0,
        }
    }

    /// The next candidates: one that changes no value and fits, alone; or all that may come.
    fn choose(&mut self) {
        let mut untried = candidates(self.steps, &self.placed);
        let is_free = |at: &&usize| {
            let step = &self.steps[**at];
            !step.is_pending() && step.leaves.is_none() && step.apply(self.state).is_some()
        };
        if let Some(at) = untried.iter().find(is_free).copied() {
            untried = vec![at];
        }
        self.untried = untried;
    }

    /// Would `step` replace a value that a read is still to see?
    fn is_early(&self, step: &HistoryStep) -> bool {
        let is_later = |last: &usize| *last > self.window;
        let others = self.unseen.get(&self.state).copied().unwrap_or(0);
        let own = u32::from(seen_by(step) == Some(self.state));
        step.leaves.is_some()
            && (others > own || self.last_seen.get(&self.state).is_some_and(is_later))
    }

    /// Goes on to the next complete order; `None` when there is none.
    fn next_order(&mut self) -> Option<WalkFind> {
        // Where all is pending, an order is there before anything is placed.
        if !std::mem::replace(&mut self.is_begun, true) && self.done_total == 0 {
            return Some(WalkFind::Order(self.state));
        }
        loop {
            let Some(at) = self.untried.pop() else {
                self.step_back()?;
                continue;
            };
            if !self.place(at) {
                continue;
            }
            if self.states > LINEAR_STATES_MAX {
                return Some(WalkFind::Spent);
            }
            if self.done == self.done_total {
                return Some(WalkFind::Order(self.state));
            }
        }
    }

    /// Places a candidate, if its answer fits and leads to a state that was not visited yet.
    fn place(&mut self, at: usize) -> bool {
        let step = &self.steps[at];
        let is_over = self.pending == PendingRule::EndsWhenReplaced && step.told < self.replaced;
        if is_over || self.is_early(step) {
            return false;
        }
        let Some(after) = step.apply(self.state) else {
            return false;
        };
        self.placed[at / 64] |= 1 << (at % 64);
        self.states += 1;
        if !self.visited.insert((self.placed.clone(), after)) {
            self.placed[at / 64] &= !(1 << (at % 64));
            return false;
        }
        self.stack.push(WalkLevel {
            placed: at,
            state_before: self.state,
            replaced_before: self.replaced,
            untried: std::mem::take(&mut self.untried),
        });
        self.state = after;
        if !step.is_pending() {
            self.done += 1;
            let is_acknowledged = step.told == u64::MAX;
            if is_acknowledged && step.leaves.is_some() {
                self.replaced = self.replaced.max(step.begun);
            }
        }
        if let Some(value) = seen_by(step) {
            *self.unseen.entry(value).or_default() -= 1;
        }
        self.choose();
        true
    }

    /// Takes back the operation that was placed last.
    fn step_back(&mut self) -> Option<()> {
        let frame = self.stack.pop()?;
        if let Some(value) = seen_by(&self.steps[frame.placed]) {
            *self.unseen.entry(value).or_default() += 1;
        }
        self.placed[frame.placed / 64] &= !(1 << (frame.placed % 64));
        self.done -= usize::from(!self.steps[frame.placed].is_pending());
        self.state = frame.state_before;
        self.replaced = frame.replaced_before;
        self.untried = frame.untried;
        Some(())
    }
}

/// Operations that may come next, the best guess last. The first to end is the best guess. Pending
/// ones come only when no other one explains the values that were seen.
fn candidates(steps: &[HistoryStep], placed: &[u64]) -> Vec<usize> {
    let is_placed = |at: usize| placed[at / 64] >> (at % 64) & 1 == 1;
    let mut first_end = u64::MAX;
    let mut found = Vec::new();
    let full = placed.iter().take_while(|word| **word == u64::MAX).count();
    for (at, step) in steps.iter().enumerate().skip(64 * full) {
        if step.begun > first_end {
            break;
        }
        if !is_placed(at) {
            first_end = first_end.min(step.ended);
            found.push(at);
        }
    }
    found.retain(|&at| steps[at].begun <= first_end);
    found.sort_by_key(|&at| (std::cmp::Reverse(steps[at].ended), at));
    found
}
