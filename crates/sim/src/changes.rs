//! How the members of a cluster change in a run: the operator's deeds as values.
//!
//! Invariants
//! 1. A deed that is left out changes no other one: each has a draw of its own. So has a loss.
//!
//! Not here: the draws of a seed (`draws/deeds.rs`), how deeds are done (`world/town/`).

/// How the members of a cluster change.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Partitions of the key space.
    pub partitions: u16,
    /// Positions that move at once.
    pub side_by_side: usize,
    /// Bytes a second that a member loads.
    pub load_bytes_per_second: u64,
    /// How long the old owner of a position may be away before others are asked.
    pub load_patience_us: u64,
    /// Horizons rise at most this often; 0 = never: the cluster keeps its deletes.
    pub forget_every_us: u64,
    /// How long the operator reads a plan at most before it applies it; 0 = not at all.
    pub reads_us: u64,
    /// Do members judge each other's claims? Then addresses are used again, too.
    pub meets: bool,
    /// The deeds of the operator, in the order of their times.
    pub deeds: Vec<PlannedDeed>,
    /// Two founders lose records that only they hold, and the operator accepts that.
    pub loss: Option<PlannedLoss>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            partitions: 1,
            side_by_side: 8,
            load_bytes_per_second: 1 << 20,
            load_patience_us: 2_000_000,
            forget_every_us: 0,
            reads_us: 0,
            meets: false,
            deeds: Vec::new(),
            loss: None,
        }
    }
}

/// A member is lost while a block of another one is damaged, and a third one lacks their writes.
///
/// ```text
/// away_us ─ the third one is away: the two others confirm writes alone
/// lost_us ─ one of them is lost, and the third one is back
///           └─ rot_us ─ a block of the other one is damaged ─ ask_us ─ the operator asks for the loss
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLoss {
    /// The founder that is lost.
    pub lost: usize,
    /// The founder with the damaged block.
    pub damaged: usize,
    /// The founder that is away before.
    pub kept: usize,
    /// When that one goes.
    pub away_us: u64,
    /// True when the third member is cut off, and does not end.
    pub is_cut_off: bool,
    /// When the first one is lost, at the earliest.
    pub lost_us: u64,
    /// How it is lost.
    pub how: LossOf,
    /// A block is damaged so long behind that.
    pub rot_us: u64,
    /// Blocks that are damaged then.
    pub blocks: u64,
    /// Another block is damaged so long behind the first order.
    pub rots_again_us: Option<u64>,
    /// The operator looks for the loss so long behind that of the member.
    pub ask_us: u64,
    /// How long the operator thinks about the loss that was shown.
    pub confirm_us: u64,
    /// How much later the operator gives a confirmed order once more.
    pub repeat_us: Option<u64>,
    /// The damaged member ends so long behind the first order.
    pub ends_us: Option<u64>,
    /// The plan under way is stopped so long behind the first order.
    pub cancel_us: Option<u64>,
    /// Decides which blocks.
    pub draw: u64,
}

/// How a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOf {
    /// Loss of the disk: a process on an empty one takes the member's place.
    Disk,
    /// Loss of the disk: the member is removed.
    Removed,
    /// A process on an empty disk takes its place. It comes back so much later.
    Away(u64),
}

/// A deed, and when it is tried first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedDeed {
    /// When it is tried first.
    pub at_us: u64,
    /// The deed.
    pub deed: OperatorDeed,
    /// Decides all other choices: which member, which address, how many copies.
    pub draw: u64,
}

/// The kinds of an operator's deeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorDeed {
    /// A further process joins.
    Join,
    /// A member leaves.
    Leave,
    /// The disk of a member is lost, and a process on an empty one takes its place.
    Wipe,
    /// A member that is away, or cut off, is replaced; it comes back later.
    Supersede,
    /// A member has another share.
    Reweigh,
    /// Records have more copies, or fewer.
    Copies,
    /// Records have fewer copies.
    FewerCopies,
    /// The plan under way is stopped.
    Cancel,
    /// Members load at another rate.
    Throttle,
    /// A member has another address.
    Readdress,
    /// The next generation of secrets begins.
    Rekey,
    /// The author of the plan under way ends, and is away for long.
    AuthorEnds,
    /// A member is away for long.
    Away,
    /// The least successor number rises, as behind a restore.
    Restored,
    /// A member is away for long, and others change meanwhile.
    Lag,
}

impl OperatorDeed {
    /// Every one that runs with changing members draw.
    pub const ALL: [OperatorDeed; 12] = [
        OperatorDeed::Join,
        OperatorDeed::Leave,
        OperatorDeed::Wipe,
        OperatorDeed::Supersede,
        OperatorDeed::Reweigh,
        OperatorDeed::Copies,
        OperatorDeed::Cancel,
        OperatorDeed::Throttle,
        OperatorDeed::Readdress,
        OperatorDeed::Rekey,
        OperatorDeed::AuthorEnds,
        OperatorDeed::Away,
    ];
}

/// How many machines a run may have, those that joined and those that were removed included.
pub const MACHINES_MAX: usize = 600;

/// One day.
pub(crate) const DAY_US: u64 = 86_400_000_000;
/// Longer than any run.
pub(crate) const FOR_EVER_US: u64 = 3_600_000_000;
