//! Faults that the search must find.
//!
//! Invariants
//! 1. None of them touches the source of the product: this world lies.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// Questions of older epochs are answered.
    NoFence,
    /// An epoch is used before it is durable: a crash forgets the fence.
    FenceNotDurable,
    /// Promises and acceptances are reported durable, and a crash forgets them.
    VoteNotDurable,
    /// A proposed record is taken for chosen.
    LearnerTrustsProposals,
    /// A position is settled before its new owner has loaded.
    SettledUnloaded,
    /// A new owner loads from one other owner.
    LoadedFromOne,
    /// The new owner does not count while its position moves.
    OldOwnersAlone,
}

/// Each with the seeds that find it at the latest.
pub(crate) const ALL: [(Planted, u64); 7] = [
    (Planted::NoFence, 3_000),
    (Planted::FenceNotDurable, 3_000),
    (Planted::VoteNotDurable, 3_000),
    (Planted::LearnerTrustsProposals, 3_000),
    (Planted::SettledUnloaded, 3_000),
    (Planted::LoadedFromOne, 3_000),
    (Planted::OldOwnersAlone, 3_000),
];
