//! Accepting that a lone member's newest epochs are lost: no other member is left to tell them.
//!
//! ```text
//! epochs 1 2 3 . . . 9 accepted by h1, which is its only voter
//!   9 has the voters of 8    ─► h1 alone chose it, and takes it by itself (`epoch/chain/`)
//!   9 took h2 out            ─► h2 voted, too: AcceptLoss(h1) ─► LossDraft ─► its id ─► h1 takes it
//! ```
//!
//! Invariants
//! 1. Only a record that this member has accepted, and in which it is the only voter, is taken.
//! 2. An id names the member, its newest record, and the record that it takes.
//!
//! Not here: epochs that other members still know (`epoch/chain/`), damage (`losses.rs`).
//! See: docs/decisions/0044-a-loss-is-accepted.md.

use super::Steward;
use super::declined::{Declined, NotAccepted};
use super::draft_id::DraftId;
use super::face::{ClusterAnswer, LossDraft, LostEpochs};
use super::step::StewardEffect;
use crate::epoch::chain::ChainEvent;
use dendra_base::Now;
use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

impl LostEpochs {
    /// The meaning of this loss, for people.
    pub(super) fn means(&self, member: &str, lost: &str) -> String {
        let (first, last) = (self.first, self.last);
        let lost = if lost.is_empty() {
            "another member"
        } else {
            lost
        };
        format!(
            "Epochs {first} to {last} of the cluster cannot be read in the folder of {member}. \
             {member} accepted epoch {last}, which takes {lost} out, and no member that is left can \
             tell whether {lost} accepted it, too. Confirmed, it counts, and {member} goes on as the \
             only member. No record of a client is touched. If {lost} was not removed, its folder \
             must not be used any more: two clusters would go on side by side."
        )
    }
}

impl Steward {
    /// Shows the epochs that are lost; with the id of the shown draft, goes on after them.
    pub(super) fn accept_lost_epochs(
        &mut self,
        now: Now,
        member: String,
        missing: u64,
        confirm: Option<DraftId>,
        out: &mut Vec<StewardEffect>,
    ) -> Result<ClusterAnswer, Declined> {
        let record = Arc::clone(self.record());
        let others = record.members().iter();
        let others = others.filter(|other| other.id != self.me.member);
        let Some(last) = self.chain.accepted_alone() else {
            return Err(NotAccepted::EpochsLost {
                url: member,
                epoch: record.epoch(),
                missing,
                others: others.map(|other| other.place.url.clone()).collect(),
            }
            .into());
        };
        let lost = others.filter(|other| last.member(other.id).is_none());
        let mut hasher = SipHasher13::new_with_key(b"dendra epochs  2");
        (self.me.member.0, self.me.node).hash(&mut hasher);
        (record.digest(), last.digest()).hash(&mut hasher);
        let draft = LossDraft {
            id: DraftId(hasher.finish()),
            epoch: record.epoch(),
            member,
            lost: lost.map(|other| other.place.url.clone()).collect(),
            sources: Vec::new(),
            partitions: Vec::new(),
            of_partitions: record.partitions(),
            ranges: Vec::new(),
            further: 0,
            epochs: Some(LostEpochs {
                first: record.epoch() + 1,
                last: last.epoch(),
            }),
        };
        match confirm {
            None => Ok(ClusterAnswer::Loss(Box::new(draft))),
            Some(id) if id != draft.id => Err(NotAccepted::OtherLoss { id }.into()),
            Some(_) => {
                // The notes are durable before the answer leaves.
                self.tell_chain(now, ChainEvent::TakeAccepted, out);
                let epoch = last.epoch();
                Ok(ClusterAnswer::Done { epoch })
            }
        }
    }
}
