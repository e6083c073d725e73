//! The changes that lead from one epoch to the next: there are no others.
//!
//! ```text
//! founded ─► enrolled ─► planned ─► moved … moved ─► finished ─► planned …
//!                                     └─► cancelled ─► finished
//! rekeyed, finalized, restored: at any time; readdressed: once that member is enrolled
//! forgot: while no plan is under way
//! ```
//!
//! Invariants
//! 1. Each function makes one change only, and its outcome holds the record's invariants.
//! 2. An owner changes only by `moved`: begun in one epoch, settled in a later one.
//! 3. `finished` alone drops members, and only those that own no position.
//!
//! Not here: when to do which (`drive.rs`), judging the records of others (`succession.rs`).

use super::horizons::Horizons;
use super::narrowing::Narrowing;
use super::{
    BadRecord, EpochChange, EpochMember, EpochRecord, MemberStatus, PlanUnderWay, RemovedMember,
};
use crate::epoch::why_not::WhyNot;
use crate::limits::{PLAN_MOVES_MAX, REMOVED_MEMBERS_MAX};
use crate::ring::Partition;
use crate::ring::plan::{MovePlan, WantedMember};
use crate::ring::table::{BadStep, MemberId, OwnerTable};
use crate::topology::Topology;
use dendra_base::{ClusterVersion, ClusterVersions, LeastSuccessor};

/// A plan to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPlan {
    /// The member that proposes it.
    pub author: MemberId,
    /// The moves, with the members that join and leave.
    pub moves: MovePlan,
    /// The joining members, sorted by number, with the ids of their folders.
    pub newcomers: Vec<EpochMember>,
    /// New weights and zones of members.
    pub shares: Vec<WantedMember>,
    /// Copies of a record when the plan has ended.
    pub replication_factor: u8,
}

/// The address of a member that another process has taken the place of, while it still owns
/// positions. No name below `.invalid` is ever found (RFC 2606): an operator removes or replaces
/// the member by this address, or gives it another one.
pub fn nowhere(id: MemberId) -> String {
    format!("http://member-{}{NOWHERE}", id.0)
}

/// Is it an address at which no process can be reached?
pub fn is_nowhere(url: &str) -> bool {
    url.ends_with(NOWHERE)
}

const NOWHERE: &str = ".invalid:1";

impl EpochRecord {
    /// The first epoch of a cluster that a list of members founds. All founders make the same one:
    /// the ids of their folders are not in it.
    pub fn founded(topology: &Topology) -> EpochRecord {
        let founders = OwnerTable::founders(topology);
        let members = founders.into_iter().zip(topology.members());
        let members = members.map(|(id, place)| EpochMember {
            id,
            node: 0,
            status: MemberStatus::Member,
            place: place.clone(),
        });
        let owners = OwnerTable::first(topology);
        let factor = topology.replication_factor();
        let first = EpochRecord::first(topology.name(), members.collect(), factor, owners);
        first.expect("a topology and its first table make a record")
    }

    /// A first epoch with these members and owners.
    ///
    /// # Errors
    /// When they do not fit together.
    pub fn first(
        name: &str,
        members: Vec<EpochMember>,
        replication_factor: u8,
        owners: OwnerTable,
    ) -> Result<EpochRecord, BadRecord> {
        EpochRecord {
            name: name.to_owned(),
            epoch: 1,
            previous: 0,
            change: EpochChange::Founded,
            members,
            removed: Vec::new(),
            replication_factor,
            owners,
            plan: None,
            secrets: 1,
            in_force: ClusterVersions::OWN.oldest,
            horizons: Horizons::default(),
            narrowing: Narrowing::default(),
            least_successor: LeastSuccessor::default(),
        }
        .checked()
    }

    /// The first epoch of a cluster, if all its founders know this version. Founders with other
    /// releases make another first epoch, and are refused by their hellos.
    ///
    /// # Panics
    /// When this is no first epoch.
    #[must_use]
    pub fn in_version(self, version: ClusterVersion) -> EpochRecord {
        assert_eq!(self.epoch, 1, "later epochs are finalized");
        EpochRecord {
            in_force: version.max(self.in_force),
            ..self
        }
    }

    fn next(&self, change: EpochChange) -> EpochRecord {
        EpochRecord {
            epoch: self.epoch + 1,
            previous: self.digest(),
            change,
            narrowing: match change {
                EpochChange::Forgot => self.narrowing,
                _ => self.narrowing.interrupted(),
            },
            ..self.clone()
        }
    }

    /// Founders get the ids of their folders.
    ///
    /// # Errors
    /// When one is no member, or has one.
    pub fn enrolled(&self, nodes: &[(MemberId, u128)]) -> Result<EpochRecord, WhyNot> {
        let mut next = self.next(EpochChange::Enrolled);
        if nodes.is_empty() {
            return Err(WhyNot::NoStep);
        }
        for (id, node) in nodes {
            let at = next.members.binary_search_by_key(id, |member| member.id);
            let member = at.ok().map(|at| &mut next.members[at]);
            let member = member.filter(|member| member.node == 0 && *node != 0);
            member.ok_or(WhyNot::NoSuchMember { member: *id })?.node = *node;
        }
        Ok(next.checked()?)
    }

    /// The plan that can be carried on or cancelled. All orders go by this one look.
    ///
    /// # Errors
    /// When there is none, or it was cancelled and has not ended yet.
    fn goes_on(&self) -> Result<&PlanUnderWay, WhyNot> {
        match &self.plan {
            None => Err(WhyNot::NoPlan),
            Some(plan) if plan.is_cancelled => Err(WhyNot::PlanEnds { plan: plan.id }),
            Some(plan) => Ok(plan),
        }
    }

    /// # Errors
    /// When there is a plan.
    pub(crate) fn idle(&self) -> Result<(), WhyNot> {
        match self.goes_on() {
            Err(WhyNot::NoPlan) => Ok(()),
            Err(ends) => Err(ends),
            Ok(plan) => Err(WhyNot::PlanUnderWay { plan: plan.id }),
        }
    }

    /// A plan begins. No position moves yet.
    ///
    /// # Errors
    /// When another one is under way, or this one was made for another table.
    pub fn planned(&self, new: &NewPlan) -> Result<EpochRecord, WhyNot> {
        self.idle()?;
        if let Some(member) = self.members.iter().find(|member| member.node == 0) {
            return Err(WhyNot::NotEnrolled { member: member.id });
        }
        let after = new.moves.outcome(&self.owners);
        let after = after.map_err(|_| WhyNot::OtherTable)?;
        let mut next = self.next(EpochChange::Planned);
        let joins = new.newcomers.iter().map(|newcomer| newcomer.id);
        if !joins.eq(new.moves.joins.iter().copied()) {
            return Err(WhyNot::Newcomers);
        }
        for newcomer in &new.newcomers {
            if newcomer.node == 0 || newcomer.status != MemberStatus::Joining {
                return Err(WhyNot::Newcomers);
            }
            if self.is_removed(newcomer.id, newcomer.node) {
                let member = newcomer.id;
                return Err(WhyNot::Returned { member });
            }
            next.owners
                .admit(newcomer.id)
                .map_err(|_| WhyNot::OtherTable)?;
            next.members.push(newcomer.clone());
        }
        for share in &new.shares {
            let member = next.members.iter_mut().find(|member| member.id == share.id);
            let member = member.ok_or(WhyNot::NoSuchMember { member: share.id })?;
            member.place.weight = share.weight;
            member.place.zone.clone_from(&share.zone);
        }
        for member in &mut next.members {
            if new.moves.leaves.contains(&member.id) {
                member.status = MemberStatus::Leaving;
            }
        }
        if self.removed.len() + new.moves.leaves.len() + new.newcomers.len() > REMOVED_MEMBERS_MAX {
            return Err(WhyNot::TooManyRemoved);
        }
        let moves: Vec<_> = new.moves.moves().copied().collect();
        if moves.len() > PLAN_MOVES_MAX {
            return Err(WhyNot::TooManyMoves { moves: moves.len() });
        }
        // Fewer copies count from the first epoch of the plan on. A majority of the old number
        // meets each majority of the positions that stay. It does not meet each one of a row that
        // lacks a position. More copies count from the last epoch on, when all have arrived.
        next.replication_factor = self.replication_factor.min(new.replication_factor);
        let is_lowered = next.replication_factor < self.replication_factor;
        if is_lowered {
            next.narrowing = next.narrowing.lowered(self.replication_factor);
        }
        next.plan = Some(PlanUnderWay {
            id: next.epoch,
            author: new.author,
            is_cancelled: false,
            replication_factor: new.replication_factor,
            target: after.digest(),
            moves,
            begun: 0,
        });
        Ok(next.checked()?)
    }

    /// The moves of `settled` have arrived, and the next `begin` moves of the plan begin.
    ///
    /// Requires of the proposer, for each settled partition: a majority of its owners has the epoch
    /// in which the move began durable. A new owner has loaded from such a majority since.
    ///
    /// # Errors
    /// When no position of a settled partition moves, or a partition of the next moves is busy,
    /// also because it settles in this epoch.
    pub fn moved(&self, settled: &[Partition], begin: usize) -> Result<EpochRecord, WhyNot> {
        let plan = self.goes_on()?;
        let begun = plan.left().get(..begin).ok_or(WhyNot::OtherTable)?;
        if settled.is_empty() && begun.is_empty() {
            return Err(WhyNot::NoStep);
        }
        let stale = |_: BadStep| WhyNot::OtherTable;
        let mut next = self.next(EpochChange::Moved);
        for partition in settled {
            next.owners.settle(*partition).map_err(stale)?;
        }
        for step in begun {
            if self.moving(step.partition).is_some() {
                let partition = step.partition.0;
                return Err(WhyNot::NoJointPhase { partition });
            }
            next.owners.begin(*step).map_err(stale)?;
        }
        if let Some(next_plan) = &mut next.plan {
            next_plan.begun += begin;
        }
        Ok(next.checked()?)
    }

    /// The plan is stopped. Positions that move stay with their old owners; those that have arrived
    /// stay with their new ones, and fewer copies stay fewer. The way back is the next plan.
    ///
    /// # Errors
    /// When there is none, or it was stopped before.
    pub fn cancelled(&self) -> Result<EpochRecord, WhyNot> {
        self.goes_on()?;
        let mut next = self.next(EpochChange::Cancelled);
        let plan = next.plan.as_mut().ok_or(WhyNot::NoPlan)?;
        plan.is_cancelled = true;
        plan.target = 0;
        plan.moves.truncate(plan.begun);
        for partition in self.owners.all() {
            if self.owners.moving(partition).is_some() {
                let withdrawn = next.owners.withdraw(partition);
                withdrawn.map_err(|_| WhyNot::OtherTable)?;
            }
        }
        Ok(next.checked()?)
    }

    /// The plan has ended. Joining members vote from now on and leaving ones are removed. After a
    /// cancelled plan leaving members stay, and joining ones that own no partition are removed. A
    /// folder that was being loaded is stale from now on. Where a member was being replaced at its
    /// own address and both own positions, the address is the new one's: see [`nowhere`].
    ///
    /// # Errors
    /// When there is none, or it has moves to do.
    pub fn finished(&self) -> Result<EpochRecord, WhyNot> {
        let plan = self.plan.as_ref().ok_or(WhyNot::NoPlan)?;
        let moving = self.owners.all().filter(|p| self.moving(*p).is_some());
        let moves = plan.left().len() + moving.count();
        if moves > 0 {
            return Err(WhyNot::NotDone { moves });
        }
        let mut next = self.next(EpochChange::Finished);
        let epoch = next.epoch;
        let owns = |id: MemberId| self.owners.load(id, u8::MAX) > 0;
        let is_dropped = |member: &EpochMember| match member.status {
            MemberStatus::Joining => plan.is_cancelled && !owns(member.id),
            MemberStatus::Member => false,
            MemberStatus::Leaving => !plan.is_cancelled,
        };
        let (dropped, kept): (Vec<EpochMember>, Vec<EpochMember>) =
            self.members.iter().cloned().partition(is_dropped);
        for member in &dropped {
            let member = member.id;
            let dismissed = next.owners.dismiss(member);
            dismissed.map_err(|_| WhyNot::Holds { member })?;
        }
        next.removed
            .extend(dropped.iter().map(|member| RemovedMember {
                id: member.id,
                node: member.node,
                epoch,
            }));
        next.removed.sort_by_key(|removed| removed.id);
        next.members = kept;
        next.give_way();
        for member in &mut next.members {
            member.status = MemberStatus::Member;
        }
        if !plan.is_cancelled {
            next.replication_factor = plan.replication_factor;
        }
        next.plan = None;
        Ok(next.checked()?)
    }

    /// A leaving member that stays has the address of a joining one that stays: only one of the two
    /// runs there, and it is the one that was started last.
    fn give_way(&mut self) {
        let joining = self.with(MemberStatus::Joining);
        let taken: Vec<String> = joining.map(|it| it.place.url.clone()).collect();
        let leaving = |member: &&mut EpochMember| member.status == MemberStatus::Leaving;
        for member in self.members.iter_mut().filter(leaving) {
            if taken.contains(&member.place.url) {
                member.place.url = nowhere(member.id);
            }
        }
    }

    /// A member has another address.
    ///
    /// A founder that was not enrolled is known by its address alone. Behind the change its folder
    /// would name no member of any epoch that it has.
    ///
    /// # Errors
    /// When it is no member, or has that address, or was not enrolled yet.
    pub fn readdressed(&self, id: MemberId, url: &str) -> Result<EpochRecord, WhyNot> {
        let mut next = self.next(EpochChange::Readdressed);
        let member = next.members.iter_mut().find(|member| member.id == id);
        let member = member.filter(|member| member.place.url != url);
        let member = member.ok_or(WhyNot::NoSuchMember { member: id })?;
        if member.node == 0 {
            return Err(WhyNot::NotEnrolled { member: id });
        }
        url.clone_into(&mut member.place.url);
        Ok(next.checked()?)
    }

    /// The cluster has the next generation of secrets.
    ///
    /// # Errors
    /// When all numbers were used.
    pub fn rekeyed(&self) -> Result<EpochRecord, WhyNot> {
        let mut next = self.next(EpochChange::Rekeyed);
        let secrets = self.secrets.checked_add(1).ok_or(WhyNot::NoStep)?;
        next.secrets = secrets;
        Ok(next.checked()?)
    }

    /// A later version is in force.
    ///
    /// Requires of the proposer: every member runs a release that knows it.
    ///
    /// # Errors
    /// When the version is not later.
    pub fn finalized(&self, version: ClusterVersion) -> Result<EpochRecord, WhyNot> {
        if version <= self.in_force {
            return Err(WhyNot::NoStep);
        }
        let mut next = self.next(EpochChange::Finalized);
        next.in_force = version;
        Ok(next.checked()?)
    }

    /// The horizons rise.
    ///
    /// Requires of the proposer: each member has confirmed this epoch, and `floor` is not below the
    /// clock of any of them after its confirmation.
    ///
    /// # Errors
    /// While a plan is under way, or when `floor` is not above the present one.
    pub fn forgot(&self, floor: u64) -> Result<EpochRecord, WhyNot> {
        self.idle()?;
        if floor <= self.horizons.floor() {
            return Err(WhyNot::NoStep);
        }
        let mut next = self.next(EpochChange::Forgot);
        next.horizons = self.horizons.risen(floor);
        next.narrowing = self
            .narrowing
            .risen(&next.horizons, self.replication_factor);
        Ok(next.checked()?)
    }

    /// A backup was restored: conditional writes give successor numbers from `least` on.
    ///
    /// # Errors
    /// When `least` is not above the present one.
    pub fn restored(&self, least: LeastSuccessor) -> Result<EpochRecord, WhyNot> {
        if least <= self.least_successor {
            return Err(WhyNot::NoStep);
        }
        let mut next = self.next(EpochChange::Restored);
        next.least_successor = least;
        Ok(next.checked()?)
    }

    /// Did only horizons rise between the two epochs? Then a plan for the one is one for the other.
    pub(crate) fn differs_in_horizons_alone(&self, other: &EpochRecord) -> bool {
        *self
            == EpochRecord {
                epoch: self.epoch,
                previous: self.previous,
                change: self.change,
                horizons: self.horizons,
                narrowing: self.narrowing,
                ..other.clone()
            }
    }
}
