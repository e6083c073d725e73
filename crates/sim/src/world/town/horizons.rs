//! Horizons of a process: the confirmations of its loops, the purges of its store, and strays.
//!
//! Invariants
//! 1. A store purges up to a horizon only after the fence of its epoch.
//! 2. A store keeps everything again before a later epoch is in force.
//!
//! Not here: when horizons rise (crate `ownership`, `steward/rising.rs`).
//! See: crates/server/src/peers/horizons.rs, which does the same in the real world.

use super::super::state::World;
use dendra_base::Space;
use dendra_node::Hlc;
use dendra_ownership::Layout;
use dendra_ownership::steward::step::StewardEvent;
use std::sync::Arc;

impl World<'_> {
    /// Do horizons rise in this run?
    pub(in crate::world) fn forgets(&self) -> bool {
        let changes = self.plan.changes.as_ref();
        changes.is_some_and(|changes| changes.forget_every_us > 0)
    }

    /// Whether the loops confirm their epoch, for the steward; and whether strays have gone.
    pub(super) fn tell_horizons(&mut self, member: usize) {
        if !self.forgets() {
            return;
        }
        self.look_at_strays(member);
        let lane = &self.members[member].lanes[0];
        let Some(news) = lane.decider.confirms() else {
            return;
        };
        let layout = &lane.layout;
        let news = match news {
            Ok(confirmed) => Some(Ok(confirmed)),
            Err(held) => held.rename(|at| layout.id_of(at)).map(Err),
        };
        if let Some(news) = news {
            self.tell_steward(member, StewardEvent::Forgets { news });
        }
    }

    /// An epoch is in force at this process, or it starts with one.
    pub(in crate::world) fn raise_horizon(&mut self, member: usize, hlc: &Hlc, layout: &Layout) {
        let horizons = layout.horizons();
        let followed = hlc.observe(horizons.floor());
        debug_assert_eq!(followed, Ok(()), "a floor is a value of clocks");
        if horizons.purge() > 0 {
            self.rot_under_horizon(member, horizons.purge());
        }
        let it = &mut self.members[member];
        it.is_dropping = false;
        if let Some(store) = &mut it.store {
            store.ends_dropping(true);
            if horizons.purge() > 0 {
                store.raise_age_horizon(horizons.purge(), layout.copies_to_purge());
            }
        }
    }

    /// Drops the records of clients of which the member is no owner.
    pub(super) fn drop_strays(&mut self, member: usize, layout: Arc<Layout>) {
        let it = &mut self.members[member];
        let seen = it.lanes[0].decider.foreign_in(layout.epoch());
        let me = it.home.as_ref().map(|home| home.steward.me().member);
        let me = me.and_then(|me| layout.index_of(me));
        let (Some(me), Some(store)) = (me, it.store.as_mut()) else {
            return;
        };
        it.is_dropping = true;
        store.drop_foreign(Arc::new(move |stored_key, cell| {
            let Some((space, raw_key)) = stored_key.split_first() else {
                return false;
            };
            *space == Space::User.byte() && layout.drops(me, raw_key, cell, &seen)
        }));
    }

    fn look_at_strays(&mut self, member: usize) {
        let it = &mut self.members[member];
        let is_done = it.is_dropping && it.store.as_mut().is_some_and(|s| s.ends_dropping(false));
        if is_done {
            it.is_dropping = false;
            it.lanes[0].decider.dropped_strays();
        }
    }
}
