//! Bounds of the simulator, each with its reason.
//!
//! Invariants
//! 1. A run that reaches a bound says so; it never looks like one that held.
//!
//! Not here: the draws of a seed (`draws/`).
//! See: docs/overload.md.

/// States that one search for an order visits between two moments at which no operation is under
/// way. A few hundred operations lie there and need as many states; a thousand times that is a
/// search that will not end.
pub const LINEAR_STATES_MAX: u64 = 400_000;

/// The searches of so many keys of a thousand may end at [`LINEAR_STATES_MAX`]. With more undecided
/// keys a run proves too little.
pub const UNDECIDED_PERMILLE_MAX: u64 = 1;

/// Messages and requests that wait for one slow loop. Beyond it a client is refused, as at the
/// server's gate. A frame is lost, as on a link that its reader does not empty.
pub const MAILBOX_LEN_MAX: usize = 16;

/// A loop with so many in its mailbox tells the others that it is behind. So does a member with so
/// many writes in line for its log.
pub const BEHIND_LEN: usize = 6;

/// Happenings in one run. The largest plans have some tens of thousands; a run that reaches this
/// one goes in circles.
pub const HAPPENINGS_MAX: u64 = 2_000_000;

/// Further happenings for each deed of an operator: a plan of a large cluster takes many epochs,
/// and each member learns each of them.
pub const DEED_HAPPENINGS_MAX: u64 = 500_000;

/// Further happenings of each deed for each pair of members, where that is more. All members ask
/// each other for the time, and tell each other how far they are.
pub const DEED_PAIR_HAPPENINGS: u64 = 600;

/// Runs that making a failure small may take: a minute of them at most.
pub const SHRINK_RUNS_MAX: u32 = 2_000;
