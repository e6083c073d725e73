//! The order that accepts a loss: shown first, then confirmed by the id of the loss that was shown.
//!
//! ```text
//! Damaged(loss) ─► AcceptLoss(member)             ─► LossDraft, with an id
//! Damaged(loss) ─► AcceptLoss(member, id)         ─► the same id? ─► effect AcceptLoss, Done
//!                                                    └─ another one ─► OtherLoss: look again
//! ```
//!
//! Invariants
//! 1. An id names the plan under way, the damaged member, each block, the lost members and the
//!    owners that are left. So no confirmation is good for other damage, or under another plan.
//! 2. The order goes to the damaged member itself, and changes no epoch: no other member takes
//!    part.
//! 3. A member that lacks epochs of its folder shows those, and no damage: `lost_epochs.rs`.
//! 4. A confirmed loss is remembered in the folder, at most `LOSSES_KEPT_MAX` of them. Behind a
//!    restart it is still in force, until its plan ends. One without a plan, of owners that are
//!    damaged in the same keys, is in force for as long as the block waits for its repair.
//!
//! Not here: whether there is a loss to accept, and the repair (crate `node`, `repair/`), the
//! note (`accepted_loss.rs`).
//! See: docs/decisions/0044-a-loss-is-accepted.md.

use super::Steward;
use super::accepted_loss::AcceptedLoss;
use super::declined::{Declined, NotAccepted};
use super::draft;
use super::draft_id::DraftId;
use super::face::{ClusterAnswer, LossDraft};
use super::step::StewardEffect;
use crate::limits::LOSSES_KEPT_MAX;
use crate::loss::{NoLoss, RepairLoss};
use crate::ring::table::MemberId;
use dendra_base::Now;
use siphasher::sip::SipHasher13;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

impl LossDraft {
    /// The meaning of this loss, for people.
    pub fn means(&self) -> String {
        let (member, lost) = (&self.member, self.lost.join(" and "));
        if let Some(epochs) = &self.epochs {
            return epochs.means(member, &lost);
        }
        format!(
            "An acknowledged write or delete of a key in these ranges that only {member} and {lost} \
             held is gone for good: an older value takes its place, or none. A conditional write \
             there that was answered with success may be gone, and one that was refused, or got no \
             answer, may take effect. An ETag that a client read before may name another value: \
             read such a key again before a conditional write."
        )
    }
}

impl Steward {
    /// Shows the loss that can be accepted; with the id of the shown draft, accepts it.
    pub(super) fn accept_loss(
        &mut self,
        now: Now,
        url: &str,
        confirm: Option<DraftId>,
        out: &mut Vec<StewardEffect>,
    ) -> Result<ClusterAnswer, Declined> {
        let record = self.record();
        let named = draft::member_at(record, url)?;
        if named.id != self.me.member {
            return Err(NotAccepted::OtherMember {
                url: named.place.url.clone(),
            }
            .into());
        }
        let member = named.place.url.clone();
        if let Some(missing) = self.missing() {
            return self.accept_lost_epochs(now, member, missing, confirm, out);
        }
        let loss = match &self.loss {
            Ok(loss) => loss,
            Err(why) => {
                let is_over = matches!(why, NoLoss::Accepted | NoLoss::NoDamage);
                let done = self.losses.iter().find(|done| Some(done.id) == confirm);
                // The order comes a second time: its first answer may have been lost.
                if let Some(done) = done.filter(|_| is_over) {
                    return Ok(ClusterAnswer::Done { epoch: done.epoch });
                }
                return Err(self.no_loss(member, why));
            }
        };
        let draft = self.loss_draft(member, loss);
        match confirm {
            None => return Ok(ClusterAnswer::Loss(Box::new(draft))),
            Some(id) if id != draft.id => return Err(NotAccepted::OtherLoss { id }.into()),
            Some(_) => {}
        }
        let without = loss.without.iter().zip(draft.lost);
        let accepted = AcceptedLoss {
            id: draft.id,
            accepted_ms: now.wall_ms,
            epoch: draft.epoch,
            plan: self.plan_id().unwrap_or_default(),
            partitions: u16::try_from(loss.partitions.len()).expect("partitions are a u16"),
            without: without.map(|(id, at)| (*id, at)).collect(),
            blocks: loss.blocks.clone(),
        };
        if self.losses.len() == LOSSES_KEPT_MAX {
            self.losses.remove(0);
        }
        self.losses.push(accepted.clone());
        out.push(StewardEffect::AcceptLoss {
            loss: accepted,
            ranges: draft.ranges,
        });
        Ok(ClusterAnswer::Done { epoch: draft.epoch })
    }

    fn loss_draft(&self, member: String, loss: &RepairLoss) -> LossDraft {
        let record = self.record();
        let plan = self.plan_id().unwrap_or_default();
        let mut hasher = SipHasher13::new_with_key(b"dendra losses  1");
        (self.me.member.0, self.me.node, plan).hash(&mut hasher);
        loss.blocks.hash(&mut hasher);
        for members in [&loss.without, &loss.sources] {
            members.iter().for_each(|id| hasher.write_u32(id.0));
            hasher.write_u32(u32::MAX);
        }
        let partitions = || loss.partitions.iter().map(|partition| partition.0);
        partitions().for_each(|partition| hasher.write_u16(partition));
        let urls = |ids: &BTreeSet<MemberId>| {
            let url = |id: &MemberId| self.url_of(*id);
            ids.iter().map(url).collect()
        };
        LossDraft {
            id: DraftId(hasher.finish()),
            epoch: record.epoch(),
            member,
            lost: urls(&loss.without),
            sources: urls(&loss.sources),
            partitions: partitions().collect(),
            of_partitions: record.partitions(),
            ranges: loss.ranges.clone(),
            further: loss.further,
            epochs: None,
        }
    }

    /// The address of a member.
    fn url_of(&self, id: MemberId) -> String {
        let member = self.record().member(id);
        member.map_or_else(|| id.to_string(), |member| member.place.url.clone())
    }

    fn no_loss(&self, url: String, why: &NoLoss) -> Declined {
        let other = match why {
            NoLoss::Away { member }
            | NoLoss::Unreadable { member }
            | NoLoss::DamagedToo { member } => Some(self.url_of(*member)),
            NoLoss::NoDamage
            | NoLoss::NotNeeded
            | NoLoss::Accepted
            | NoLoss::NoCopy
            | NoLoss::NotKnown => None,
        };
        Declined::NotAccepted(NotAccepted::NoLoss {
            url,
            why: why.clone(),
            other,
        })
    }

    /// The losses that the folder knows. Before the first event.
    pub fn resume_losses(&mut self, losses: Vec<AcceptedLoss>) {
        self.losses = losses;
    }

    /// Accepted losses of the plan under way, or that were accepted without one: the first loop is
    /// told of them when the process starts.
    pub fn losses_in_force(&self) -> impl Iterator<Item = &AcceptedLoss> {
        let plan = self.plan_id().unwrap_or_default();
        let losses = self.losses.iter();
        losses.filter(move |loss| loss.plan == plan)
    }

    /// The newest losses that were accepted here, the oldest first: to be noted in the folder.
    pub fn losses(&self) -> &[AcceptedLoss] {
        &self.losses
    }
}
