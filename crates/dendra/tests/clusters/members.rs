//! Members of a cluster of real processes come and go while clients write, and no acknowledged
//! write is lost.
//!
//! ```text
//! writers ─► founders …    join ─► plan ─► finished    remove ─► exit 3    wipe, join --replace
//! all that was acknowledged ─► read back from each member at the end
//! ```
//!
//! Invariants
//! 1. No wait is for a time: each is for a state, and none gives up before `PATIENCE`.
//!
//! Not here: other changes, and those that are refused (`changes.rs`), schedules of messages
//! (crates `ownership` and `node`). See: docs/operating.md, "Grow, shrink,
//! replace".

use crate::support::town::{Told, Town, free_address};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

#[test]
fn members_join_leave_and_are_replaced_under_load() {
    let mut town = Town::found();
    let told = Told::default();
    // Writers stay with members that stay.
    let doors = [town.sites[0].listen, town.sites[1].listen];
    let fifth = told.under_load(&doors, || {
        told.run_on(200);
        // Three become four; the fourth asks over plain HTTP.
        let fourth = town.join(free_address(), 1, &["--peer-transport", "http"]);
        town.wait_until_serving(fourth);
        town.wait_for_members(fourth, 4);
        town.wait_for_members(0, 4);
        told.run_on(200);
        // One leaves for ever.
        town.remove(0, 2);
        assert_eq!(town.wait_for_end(2), Some(3), "{}", town.log_of(2));
        town.wait_for_members(0, 3);
        town.start(2);
        assert_eq!(town.wait_for_end(2), Some(3), "{}", town.log_of(2));
        assert!(
            town.log_of(2).contains("never comes back"),
            "{}",
            town.log_of(2)
        );
        told.run_on(200);
        // The fourth loses its disk, and another process takes its place, at its address.
        town.kill(fourth);
        let lost = town.url(fourth);
        let address = town.sites[fourth].listen;
        let fifth = town.join(address, 0, &["--replace", &lost]);
        town.wait_until_serving(fifth);
        town.wait_for_members(0, 3);
        told.run_on(200);
        town.wait_for_members(fifth, 3);
        fifth
    });
    // A machine that is busy with other things makes some of them late.
    let failed = told.failed.lock().expect("no writer panics").clone();
    let most = told.acknowledged.load(Ordering::Relaxed) / 50;
    assert!(
        failed.len() as u64 <= most,
        "{} writes failed: {:?}",
        failed.len(),
        failed.first()
    );
    // Behind the last write of each writer.
    told.check(&[doors[0], doors[1], town.sites[fifth].listen]);
    let status = town.status(1).expect("a status");
    assert_eq!(status["removed"], 2, "{status}");
}

#[test]
fn a_plan_goes_on_after_all_members_were_killed_in_the_middle_of_it() {
    let mut town = Town::found();
    let told = Told::default();
    let doors = [town.sites[0].listen, town.sites[1].listen];
    told.under_load(&doors, || told.run_on(1_000));
    // So slowly that the plan is under way for as long as is wanted.
    let slow = "{\"bytes_per_second\":100}";
    let told_so = town.admin(0, "POST", "/v0/cluster/throttle", slow);
    assert!(told_so.is_some_and(|answer| answer["epoch"].is_u64()));
    let fourth = town.join(free_address(), 0, &[]);
    town.wait_until_serving(fourth);
    town.wait_until(0, |town| {
        let status = town.status(0).unwrap_or_default();
        status["plan"]["moving"]
            .as_u64()
            .is_some_and(|moving| moving > 0)
    });
    for at in 0..4 {
        town.kill(at);
    }
    for at in 0..4 {
        town.start(at);
    }
    for at in 0..4 {
        town.wait_until_serving(at);
    }
    for at in 0..4 {
        town.wait_for_members(at, 4);
    }
    let all: Vec<SocketAddr> = town.sites.iter().map(|site| site.listen).collect();
    told.check(&all);
    // The founders' list has three members, and the folder knows better.
    assert!(
        town.log_of(0).contains("only founds a cluster"),
        "{}",
        town.log_of(0)
    );
}
