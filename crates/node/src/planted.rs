//! Bugs that can be switched on, so that those who look for bugs can prove that they find them.
//!
//! ```text
//! without the feature `planted`      is_planted(_) is the constant `false`: no trace in the product
//! with it                            one bug, or none, for the current thread: plant(Some(bug))
//! ```
//!
//! Invariants
//! 1. Every bug breaks one rule of docs/protocol.md, "Rules", and nothing else.
//! 2. A build without the feature has none of them.
//!
//! Not here: bugs of a world (a read before its sync, an identity kept after a wipe): worlds plant their own.
//! See: docs/protocol.md.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A read that saw the newest version on too few members answers without writing it back.
    SkipWriteBack,
    /// The coordinator counts its own copy before its store said that it is durable.
    AckBeforeDurable,
    /// A write that was only noted for an absent member counts as stored there.
    HintCountsAsAck,
    /// A write that found too few members is repeated under a new version.
    HiddenRetryUnderNewVersion,
    /// The first clock answer is enough, whatever the quorum.
    ClockFromMinority,
    /// Versions come from the own clock alone: last writer wins.
    SkipClockRound,
    /// A proposal of somebody else that was accepted is not finished first.
    ForgetForeignProposal,
    /// A promise is answered before it is durable.
    PromiseNotDurable,
    /// A proposal is accepted although a higher ballot was promised.
    AcceptBelowPromise,
    /// A copy that fails its checksum counts as "nothing there".
    DamagedMeansAbsent,
    /// Two writes of one member may get the same version.
    SameVersionTwice,
    /// A tombstone loses against a value, whatever their versions.
    TombstoneLoses,
    /// The answer to an operation that is over counts for the one that took its slot.
    LateAnswerCounts,
    /// A read writes what it found back under a version of its own.
    WriteBackUnderNewVersion,
    /// One answer is enough for a read, whatever the quorum.
    ReadOneOnly,
    /// A member says "nothing there" of what is expired by its own clock.
    ExpiryDecidedByReplica,
    /// A condition is judged on the first answer, not on the newest.
    ConditionOnStaleBase,
    /// Who wins a duel with the same value is told that it was its own write.
    WinnerByVersionAlone,
    /// A condition that fails is answered from a base that too few members hold.
    SkipBaseSettlement,
    /// A clock probe that is under way serves operations that began after it was sent.
    ProbeServesLaterOperations,
    /// A question of an older topology is answered.
    NoFence,
    /// A hint is dropped although its member did not take it.
    HintDroppedEarly,
    /// A hint that took another's place holds the room of both.
    ReplacedHintIsCounted,
    /// Of two proposals that were accepted the one above the base is finished, whatever their ballots.
    FinishLowerBallot,
    /// A scan shows what came, whoever is missing.
    ScanFromMinority,
    /// A scan shows what one member sent beyond the place up to which all have come.
    ScanPastRest,
    /// A proposal does not name those before it.
    ForgetAncestors,
    /// A folder whose clock ends before what its member confirmed is let in.
    FolderClockIgnored,
    /// A rival's proposal that was accepted, perhaps by one member, counts as chosen.
    LoseToOpenRival,
    /// Whoever waits behind a conditional write is judged with it, also when it came too late for that.
    JudgeLateComers,
    /// A proposal that is finished for its author gets a version of its own.
    FinishUnderNewVersion,
    /// A value is sent to an owner that said beside its clock that its disk is full.
    FullIsAsked,
    /// An owner that is behind is not asked although the others cannot confirm the write.
    SparedForGood,
    /// A write that was sent is told as not applied because its client hung up.
    AbandonedWriteEnds,
    /// A member does not look for what its peers withdrew.
    WithdrawnIsDone,
    /// A record that was written to fewer copies is shown at the default level when those have it.
    ReadOfFewerCopies,
    /// A replica refuses what is more than a minute ahead of its own wall clock.
    RefuseVersionsAhead,
    /// A coordinator compares hybrid clocks, which every member moves, to find out which wall clock is right.
    JudgeByHybridClock,
    /// A member writes although its wall clock agrees with no majority.
    WriteWithWrongClock,
    /// A copy under the known version is the known one, whatever its bytes.
    SameVersionIsSameCell,
    /// A second process with a known number of starts is admitted.
    TwinLetIn,
    /// A process with fewer starts than were noted is admitted.
    RolledBackLetIn,
    /// A process on another folder is admitted.
    OtherNodeLetIn,
    /// Any number of starts is believed.
    ImplausibleBelieved,
    /// A process is admitted beside links to another one of its member.
    StillThereIgnored,
    /// A process counts before the note about it is durable.
    NoteCountsEarly,
    /// A refusal ends a process, whichever program made it.
    RefusalWithoutProof,
    /// A start is ready before its links are up.
    ReadyBeforeLinks,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 48] = [
        Bug::SkipWriteBack,
        Bug::AckBeforeDurable,
        Bug::HintCountsAsAck,
        Bug::HiddenRetryUnderNewVersion,
        Bug::ClockFromMinority,
        Bug::SkipClockRound,
        Bug::ForgetForeignProposal,
        Bug::PromiseNotDurable,
        Bug::AcceptBelowPromise,
        Bug::DamagedMeansAbsent,
        Bug::SameVersionTwice,
        Bug::TombstoneLoses,
        Bug::LateAnswerCounts,
        Bug::WriteBackUnderNewVersion,
        Bug::ReadOneOnly,
        Bug::ExpiryDecidedByReplica,
        Bug::ConditionOnStaleBase,
        Bug::WinnerByVersionAlone,
        Bug::SkipBaseSettlement,
        Bug::ProbeServesLaterOperations,
        Bug::NoFence,
        Bug::HintDroppedEarly,
        Bug::ReplacedHintIsCounted,
        Bug::FinishLowerBallot,
        Bug::ScanFromMinority,
        Bug::ScanPastRest,
        Bug::ForgetAncestors,
        Bug::FolderClockIgnored,
        Bug::LoseToOpenRival,
        Bug::JudgeLateComers,
        Bug::FinishUnderNewVersion,
        Bug::FullIsAsked,
        Bug::SparedForGood,
        Bug::AbandonedWriteEnds,
        Bug::WithdrawnIsDone,
        Bug::ReadOfFewerCopies,
        Bug::RefuseVersionsAhead,
        Bug::JudgeByHybridClock,
        Bug::WriteWithWrongClock,
        Bug::SameVersionIsSameCell,
        Bug::TwinLetIn,
        Bug::RolledBackLetIn,
        Bug::OtherNodeLetIn,
        Bug::ImplausibleBelieved,
        Bug::StillThereIgnored,
        Bug::NoteCountsEarly,
        Bug::RefusalWithoutProof,
        Bug::ReadyBeforeLinks,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switches a bug on for this thread, or all off.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Is this bug switched on?
#[cfg(feature = "planted")]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Is this bug switched on? Never, without the feature `planted`.
#[cfg(not(feature = "planted"))]
pub const fn is_planted(_: Bug) -> bool {
    false
}
