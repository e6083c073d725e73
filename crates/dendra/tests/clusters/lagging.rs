//! A member that was away while the members changed comes back with an old epoch, and ends no other
//! one.
//!
//! ```text
//! a fourth joins ─ one founder is away ─ cancel ─ the fourth begins again on an empty folder, and is let in
//!                                                 └─ the founder is back: it learns, and the plan ends
//! ```
//!
//! Invariants
//! 1. No wait is for a time: each is for a state, and none gives up before `PATIENCE`.
//!
//! Not here: all ways of being away and all changes (crate `sim`, `world/town/claims.rs`).
//! See: docs/protocol.md, "How an old folder is recognised".

use crate::support::http::Client;
use crate::support::signal;
use crate::support::town::{Town, free_address};
use serde_json::json;

/// How the founder is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    Killed,
    Stopped,
}

fn throttle(town: &Town, at: usize, bytes_per_second: u64) {
    town.order(
        at,
        "throttle",
        &json!({ "bytes_per_second": bytes_per_second }),
    );
}

/// The last site's plan is under way, as member 1 sees it.
fn wait_for_joining(town: &mut Town, joiner: usize) {
    town.wait_until(1, |town| {
        let joining = town.member(1, joiner);
        joining.is_some_and(|joining| joining["status"] == "joining")
    });
}

fn a_late_founder_ends_no_joiner(how: Away, flags: &[&str]) {
    let mut town = Town::found_with(3, flags);
    for key in 0..200 {
        let mut client = Client::open(town.sites[key % 3].listen).expect("it listens");
        let stored = client.ask("PUT", &format!("k{key}"), &[], &[7; 8_000]);
        assert_eq!(stored.expect("an answer").status, 201);
    }
    throttle(&town, 1, 100);
    let address = free_address();
    let first = town.join(address, 1, flags);
    town.wait_until_serving(first);
    wait_for_joining(&mut town, first);
    match how {
        Away::Killed => town.kill(0),
        Away::Stopped => signal(town.sites[0].child.as_ref().expect("it runs"), "STOP"),
    }
    town.order(1, "cancel", &json!({}));
    assert_eq!(town.wait_for_end(first), Some(3), "{}", town.log_of(first));
    // The runbook: an empty folder, and the same options.
    let again = town.join(address, 1, flags);
    town.wait_until_serving(again);
    wait_for_joining(&mut town, again);
    match how {
        Away::Killed => town.start(0),
        Away::Stopped => signal(town.sites[0].child.as_ref().expect("it runs"), "CONT"),
    }
    // The founder learns the epochs that it missed, and reaches the new folder.
    town.wait_until(0, |town| {
        let joined = town.member(0, again);
        joined.is_some_and(|joined| joined["up"] == true)
    });
    throttle(&town, 1, 64 << 20);
    town.wait_for_members(0, 4);
    let child = town.sites[again].child.as_mut().expect("it runs");
    assert!(child.try_wait().expect("it is ours").is_none(), "it ended");
}

#[test]
fn a_founder_that_was_killed_ends_no_joiner_that_began_again() {
    a_late_founder_ends_no_joiner(Away::Killed, &[]);
}

#[test]
fn a_founder_that_stood_still_ends_no_joiner_that_began_again() {
    a_late_founder_ends_no_joiner(Away::Stopped, &[]);
}

#[test]
fn a_founder_that_was_killed_ends_no_joiner_that_began_again_over_plain_http() {
    a_late_founder_ends_no_joiner(Away::Killed, &["--peer-transport", "http"]);
}
