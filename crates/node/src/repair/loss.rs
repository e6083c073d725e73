//! A loss that an operator can accept: damage that no repair can end, because an owner is lost.
//!
//! ```text
//! h1 whole      h2 lost, h4 is put in its place      h3 damaged
//! h4 loads from h1 and h3 ─► waits for the repair of h3 ─► waits for h2, or for h4
//!                                          └─ accepted ─► h3 is filled from h1 alone
//! ```
//!
//! Invariants
//! 1. A loss names lost members, which a plan takes away and which do not answer. Where none is
//!    lost, it names owners that are damaged between the same keys. Then another owner was walked
//!    whole.
//! 2. Right after a start the node does not know which members answer. It shows no loss until it
//!    has reached each of them once, or each had time to answer.
//! 3. No loss can be accepted while an owner that could end the repair is away. It must come back,
//!    or be replaced, first.
//!
//! Not here: repairs with and without a loss (`mod.rs`), the operator's order (crate
//! `ownership`, `steward/losses.rs`). See: docs/protocol.md, "Damage",
//! docs/decisions/0044-a-loss-is-accepted.md.

use super::enough::{GivenUp, has_the_only_copies, is_lost, missing, missing_in};
use super::{Repair, Repairer};
use crate::desk::Desk;
use dendra_ownership::limits::LOSS_BLOCKS_MAX;
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::member::MemberIndex;
use std::collections::BTreeSet;

impl Repairer {
    /// See [`crate::Node::loss`].
    pub(crate) fn loss(&self, desk: &Desk, now_us: u64) -> Result<RepairLoss, NoLoss> {
        let mut loss = RepairLoss::default();
        let mut none = NoLoss::NoDamage;
        let open = |repair: &&Repair| !repair.is_told && !repair.parts.is_empty();
        let mut others = desk.layout.members().filter(|member| *member != desk.me);
        let is_settled = others.all(|member| desk.health.is_settled(member, now_us));
        if !is_settled && self.repairs.values().any(|repair| open(&repair)) {
            return Err(NoLoss::NotKnown);
        }
        for repair in self.repairs.values().filter(open) {
            match self.loss_of(desk, repair, &mut loss) {
                Ok(()) if loss.blocks.len() == LOSS_BLOCKS_MAX => loss.further += 1,
                Ok(()) => {
                    loss.blocks.push(repair.block);
                    loss.ranges.extend(repair.parts.iter().cloned());
                }
                Err(why) => none = none.max(why),
            }
        }
        if loss.blocks.is_empty() {
            Err(none)
        } else {
            Ok(loss)
        }
    }

    /// Adds the partitions and members of a damaged block that needs a loss.
    fn loss_of(&self, desk: &Desk, repair: &Repair, loss: &mut RepairLoss) -> Result<(), NoLoss> {
        if has_the_only_copies(desk) {
            return Err(NoLoss::NoCopy);
        }
        let id = |member: MemberIndex| desk.layout.id_of(member);
        let with = |is_usable: &dyn Fn(MemberIndex) -> bool| {
            let usable = desk.layout.members().filter(|member| is_usable(*member));
            let walked = repair.walked.iter().copied();
            usable.chain(walked).collect::<BTreeSet<MemberIndex>>()
        };
        let stays = with(&|member| !is_lost(desk, member));
        let up = with(&|member| desk.health.is_up(member));
        let readable =
            with(&|member| desk.health.is_up(member) && !repair.gaps.contains_key(&member));
        let nobody = GivenUp::default();
        let is_away = |walked, without| missing(desk, walked, without).into_iter().find_map(id);
        if missing(desk, &stays, &nobody).is_empty() {
            if let Some(member) = is_away(&up, &nobody) {
                return Err(NoLoss::Away { member });
            }
            let Some(member) = is_away(&readable, &nobody) else {
                return Err(NoLoss::NotNeeded);
            };
            let no_member = BTreeSet::new();
            let accepted = self.given_up(desk, repair, &no_member);
            if missing(desk, &readable, &accepted).is_empty() {
                return Err(NoLoss::Accepted);
            }
            let damaged = GivenUp {
                damaged: repair.gaps.keys().copied().collect(),
                ..GivenUp::default()
            };
            // Nothing is given up before another owner has shown all that it has.
            if !missing(desk, &repair.walked, &damaged).is_empty() {
                return Err(NoLoss::DamagedToo { member });
            }
            add(loss, desk, &readable, &damaged);
            return Ok(());
        }
        let no_member = BTreeSet::new();
        let accepted = self.accepted.get(&repair.block).unwrap_or(&no_member);
        if missing(desk, &stays, &self.given_up(desk, repair, accepted)).is_empty() {
            return Err(NoLoss::Accepted);
        }
        let members = desk.layout.members();
        let members_lost = members.filter(|member| is_lost(desk, *member));
        let lost = GivenUp {
            lost: members_lost.filter_map(id).collect(),
            ..GivenUp::default()
        };
        if !missing(desk, &stays, &lost).is_empty() {
            return Err(NoLoss::NoCopy);
        }
        if let Some(member) = is_away(&up, &lost) {
            return Err(NoLoss::Away { member });
        }
        if let Some(member) = is_away(&readable, &lost) {
            return Err(NoLoss::Unreadable { member });
        }
        add(loss, desk, &stays, &lost);
        Ok(())
    }
}

/// Adds to `loss` the partitions that miss members although the `left` ones are walked, those
/// members, and the owners to fill them from once they are `given_up`.
fn add(loss: &mut RepairLoss, desk: &Desk, left: &BTreeSet<MemberIndex>, given_up: &GivenUp) {
    let id = |member: MemberIndex| desk.layout.id_of(member);
    let (nobody, unwalked) = (GivenUp::default(), BTreeSet::new());
    for partition in desk.ring().all() {
        let without = missing_in(desk, partition, left, &nobody);
        if !without.is_empty() {
            loss.partitions.insert(partition);
            loss.without.extend(without.into_iter().filter_map(id));
            // Members beyond the usual number of copies are walked, too, and hold little of it.
            let copies = usize::from(desk.topology.copies());
            let owners = desk.ring().owners(partition).iter().take(copies);
            let sources = missing_in(desk, partition, &unwalked, given_up);
            let sources = owners.copied().filter(|owner| sources.contains(owner));
            loss.sources.extend(sources.filter_map(id));
        }
    }
}
