//! Is there an order of the operations on a key that explains what every client was told?
//!
//! ```text
//! search   state = (operations already placed, value the key has then); a state is visited once
//! next     any operation that began before every unplaced one that is done has ended
//! pending  an operation of unknown outcome may be placed anywhere after its begin, or nowhere
//! strict   and not behind an acknowledged write that began after "unknown" was told
//! ```
//!
//! Invariants
//! 1. Versions are not trusted: they only name the values that clients saw, for conditions.
//! 2. `Verdict::Bad` is a proof within the rules above; `Undecided` says that the budget ran out, and is
//!    counted: who runs many seeds says how many, and fails when there are more than a few.
//!
//! Not here: what versions promise (`versions.rs`).
//! See: Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for
//! linearizability", 2017.

use super::{Rule, Violation};
use crate::history::{Base, End, Op, Promise, ValueId};
use crate::limits::{LINEAR_STATES_MAX, UNDECIDED_PERMILLE_MAX};
use dendra_base::Version;
use std::collections::{BTreeMap, HashSet};

/// What the search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order exists.
    Good,
    /// None does.
    Bad,
    /// Not known within [`LINEAR_STATES_MAX`] states.
    Undecided,
}

/// May an operation of unknown outcome take effect behind an acknowledged write that began after
/// the client was told? On one member it may not. In a cluster it may: its version can come from a
/// clock that is ahead and that the later write's majority has not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// No.
    EndsWhenReplaced,
    /// Yes: the plain definition of linearizability.
    StaysOpen,
}

/// What the key holds: 0 = nothing.
type State = ValueId;

/// A condition, and what a refusal said about the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Any,
    Present,
    Absent,
    Is(ValueId),
    Not(ValueId),
}

impl Expect {
    fn holds(self, state: State) -> bool {
        match self {
            Expect::Any => true,
            Expect::Present => state != 0,
            Expect::Absent => state == 0,
            Expect::Is(value) => state == value,
            Expect::Not(value) => state != value,
        }
    }
}

/// An operation as the search sees it.
#[derive(Clone, Debug)]
struct Step {
    number: u32,
    begun: u64,
    /// `u64::MAX`: pending.
    ended: u64,
    /// When a pending one was told so.
    told: u64,
    /// What must hold of the state in front of it, and what must not.
    holds: Expect,
    fails: Option<Expect>,
    /// What it leaves; `None` = what was there.
    leaves: Option<State>,
}

impl Step {
    fn is_pending(&self) -> bool {
        self.ended == u64::MAX
    }

    fn apply(&self, state: State) -> Option<State> {
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
    /// Of these, undecided ones.
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
pub fn check(history: &[Op], pending: Pending) -> (Vec<Violation>, Searches) {
    let mut keys: BTreeMap<usize, Vec<&Op>> = BTreeMap::new();
    for op in history {
        keys.entry(op.key).or_default().push(op);
    }
    let mut violations = Vec::new();
    let mut searches = Searches::default();
    for (key, ops) in keys {
        let is_plain = |op: &&Op| op.promise == Promise::Linearizable && !op.is_fleeting;
        if !ops.iter().all(is_plain) {
            continue;
        }
        let verdict = key_verdict(&ops, pending);
        searches.keys += 1;
        searches.undecided += u64::from(verdict == Verdict::Undecided);
        if verdict != Verdict::Bad {
            continue;
        }
        let rule = match key_verdict(&ops, Pending::StaysOpen) {
            Verdict::Bad => Rule::NotLinearizable,
            Verdict::Good | Verdict::Undecided => Rule::LateUnknown,
        };
        let what = format!("key {key}: {} operations have no order", ops.len());
        violations.push(Violation::new(rule, what));
    }
    (violations, searches)
}

/// The verdict on the operations on one key.
pub fn key_verdict(ops: &[&Op], pending: Pending) -> Verdict {
    let steps = steps(ops);
    // An unknown value that nobody saw is rarely needed to explain anything: try without first.
    let seen: HashSet<ValueId> = steps.iter().filter_map(seen_by).collect();
    let is_needed = |step: &&Step| {
        !step.is_pending() || step.leaves.is_none_or(|v| v == 0 || seen.contains(&v))
    };
    let needed: Vec<Step> = steps.iter().filter(is_needed).cloned().collect();
    if needed.len() < steps.len() && search(&needed, pending) == Verdict::Good {
        return Verdict::Good;
    }
    search(&steps, pending)
}

/// The value that a client surely saw.
fn seen_by(step: &Step) -> Option<ValueId> {
    match step.holds {
        Expect::Is(value) if !step.is_pending() => Some(value),
        _ => None,
    }
}

fn steps(ops: &[&Op]) -> Vec<Step> {
    let mut values: BTreeMap<Version, ValueId> = BTreeMap::new();
    for op in ops {
        match op.end {
            End::Found(seen) => {
                values.insert(seen.version, seen.value);
            }
            End::Written(version) => {
                values.insert(version, op.wish.leaves().unwrap_or(0));
            }
            _ => {}
        }
    }
    let mut steps: Vec<Step> = ops.iter().filter_map(|op| step(op, &values)).collect();
    steps.sort_by_key(|step| (step.begun, step.number));
    steps
}

fn step(op: &Op, values: &BTreeMap<Version, ValueId>) -> Option<Step> {
    let base = match op.wish.base() {
        Base::Any => Expect::Any,
        Base::Present => Expect::Present,
        Base::Absent => Expect::Absent,
        Base::Matches(seen) => Expect::Is(seen.value),
        Base::Differs(seen) => Expect::Not(seen.value),
    };
    let mut step = Step {
        number: op.number,
        begun: op.begun_us,
        ended: op.ended_us,
        told: u64::MAX,
        holds: base,
        fails: None,
        leaves: op.wish.is_write().then(|| op.wish.leaves().unwrap_or(0)),
    };
    match op.end {
        End::NotApplied => return None,
        End::Unknown if !op.wish.is_write() => return None,
        End::Unknown => {
            step.ended = u64::MAX;
            step.told = op.ended_us;
        }
        End::Found(seen) => step.holds = Expect::Is(seen.value),
        End::Missing(_) => step.holds = Expect::Absent,
        End::Written(_) => {}
        End::Refused { current } => {
            let observed = match current {
                None => Expect::Absent,
                Some(version) => values
                    .get(&version)
                    .map_or(Expect::Present, |value| Expect::Is(*value)),
            };
            step.holds = observed;
            step.fails = Some(base);
            step.leaves = None;
        }
    }
    Some(step)
}

/// One level of the search: what was placed, and which candidates are still to be tried.
struct Frame {
    placed: usize,
    state_before: State,
    replaced_before: u64,
    untried: Vec<usize>,
}

fn search(steps: &[Step], pending: Pending) -> Verdict {
    let done_total = steps.iter().filter(|step| !step.is_pending()).count();
    let mut placed = vec![0u64; steps.len().div_ceil(64)];
    let mut visited: HashSet<(Vec<u64>, State)> = HashSet::new();
    let (mut state, mut done, mut states) = (0, 0, 0u64);
    // The latest begin of an acknowledged write that was placed.
    let mut replaced = 0;
    let mut stack: Vec<Frame> = Vec::new();
    let mut untried = candidates(steps, &placed);
    loop {
        if done == done_total {
            return Verdict::Good;
        }
        let next = untried.pop().map(|at| (at, &steps[at]));
        let Some((at, step)) = next else {
            let Some(frame) = stack.pop() else {
                return Verdict::Bad;
            };
            placed[frame.placed / 64] &= !(1 << (frame.placed % 64));
            done -= usize::from(!steps[frame.placed].is_pending());
            state = frame.state_before;
            replaced = frame.replaced_before;
            untried = frame.untried;
            continue;
        };
        let is_over = pending == Pending::EndsWhenReplaced && step.told < replaced;
        let after = if is_over { None } else { step.apply(state) };
        let Some(after) = after else { continue };
        placed[at / 64] |= 1 << (at % 64);
        states += 1;
        if states > LINEAR_STATES_MAX {
            return Verdict::Undecided;
        }
        if !visited.insert((placed.clone(), after)) {
            placed[at / 64] &= !(1 << (at % 64));
            continue;
        }
        let frame = Frame {
            placed: at,
            state_before: state,
            replaced_before: replaced,
            untried: std::mem::take(&mut untried),
        };
        stack.push(frame);
        state = after;
        if !step.is_pending() {
            done += 1;
            if step.leaves.is_some() {
                replaced = replaced.max(step.begun);
            }
        }
        untried = candidates(steps, &placed);
    }
}

/// Operations that may come next, the best guess last: what ends first, and pending ones only when
/// nothing else explains what is seen.
fn candidates(steps: &[Step], placed: &[u64]) -> Vec<usize> {
    let is_placed = |at: usize| placed[at / 64] >> (at % 64) & 1 == 1;
    let mut first_end = u64::MAX;
    let mut found = Vec::new();
    for (at, step) in steps.iter().enumerate() {
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
