//! A member's pages about the cluster, as tables for people.
//!
//! ```text
//! cluster dendra, epoch 7: 3 copies of 256 partitions on 4 members
//!
//!  #  member          zone  weight  status   up   epoch  positions  arriving  stored
//!  0  http://h1:8080  a          1  member   yes      7        192         0  1.2 GiB
//! plan 5: 12 of 64 moves done, 4 under way, 310.0 MiB left at 48.0 MiB/s: about 7 s
//! ```
//!
//! Invariants
//! 1. A number that the member does not know is shown as `-`, never as 0.
//! 2. Text of a member is shown without control characters: it cannot steer the terminal.
//!
//! Not here: asking (`mod.rs`), losses (`loss.rs`), the cells of a table (`cells.rs`).

use super::cells::{date, heads, number, plain, size, table, time, word, words};
use dendra_server::pages::{
    ClusterPage, DonePage, DraftPage, HeldPage, HistoryPage, HorizonsPage, MemberPage, OwnPage,
};
use std::collections::BTreeMap;

/// The table of the members, and all that is under way.
pub(super) fn status(page: &ClusterPage) -> String {
    let mut text = format!(
        "cluster {}, epoch {}: {} copies of {} partitions on {} members",
        word(&page.cluster),
        page.epoch,
        page.replication_factor,
        page.partitions,
        page.members.len(),
    );
    if page.removed > 0 {
        text += &format!(", {} removed so far", page.removed);
    }
    text += "\n\n";
    let head = "# member zone weight status up epoch positions arriving stored release";
    let mut rows = vec![heads(head)];
    rows.extend(page.members.iter().map(|member| {
        [
            member.number.to_string(),
            word(&member.url),
            word(&member.zone),
            member.weight.to_string(),
            match (member.restoring, member.disk_full) {
                (Some(true), _) => "restoring".to_owned(),
                (_, true) => word(&member.status) + ",disk-full",
                (_, false) => word(&member.status),
            },
            if member.up { "yes" } else { "no" }.to_owned(),
            number(member.epoch),
            member.positions.to_string(),
            member.arriving.to_string(),
            member.stored_bytes.map_or("-".to_owned(), size),
            word(member.release.as_deref().unwrap_or("")),
        ]
    }));
    table(&mut text, &rows);
    text += &format!("\n{}\n", progress(page).0);
    text += &versions(page).unwrap_or_default();
    text += &page.horizons.as_ref().map(horizon).unwrap_or_default();
    let own = page.own.as_ref();
    let asked = word(page.asked.as_deref().unwrap_or(""));
    text + &own.map(|own| of_itself(own, &asked)).unwrap_or_default()
}

/// The facts that the asked member alone knows of itself.
fn of_itself(own: &OwnPage, asked: &str) -> String {
    let age = |seconds: Option<u64>| match seconds {
        Some(seconds) => format!("{} ago", time(seconds)),
        None => "not yet since its start".to_owned(),
    };
    let mut text = format!(
        "{asked} itself: {} of hints kept for members that are away; all tables scrubbed: {}\n",
        size(own.hints.bytes),
        age(own.scrub.full_age_seconds)
    );
    for wait in &own.scrub.waits_for {
        let (url, spans) = (word(&wait.url), wait.spans);
        text += &format!(
            "  {spans} damaged blocks wait for {url}: it is away, or damaged in the same keys\n"
        );
    }
    for peer in &own.comparisons {
        let (url, age) = (word(&peer.url), age(peer.age_seconds));
        text += &format!("  all copies compared with {url}: {age}\n");
    }
    text
}

/// Up to when deletes give their space back, and each member that holds that back.
fn horizon(page: &HorizonsPage) -> String {
    let floor = page.floor_ms.and_then(date);
    let floor = floor.map(|floor| format!("; the next one is {floor}"));
    let floor = floor.unwrap_or_default();
    let mut text = match page.purge_ms.and_then(date) {
        Some(purge) => {
            format!("horizon: what was deleted up to {purge} gives its space back{floor}\n")
        }
        None => format!("horizon: nothing is purged yet{floor}\n"),
    };
    if page.every_seconds == 0 {
        text += "the member that was asked does not raise the horizon (--forget-every-s 0)\n";
    }
    match page.narrowing_steps_left {
        0 => {}
        1 => text += "the lowered replication factor gives its copies back with the next step\n",
        steps => {
            text += &format!(
                "the lowered replication factor gives its copies back behind {steps} more steps\n"
            );
        }
    }
    // At rest members compare their copies for each step.
    let is_at_rest = |held: &&HeldPage| {
        let code = held.code.as_str();
        !page.late && matches!(code, "silent" | "comparing" | "under-way")
    };
    let (at_rest, late): (Vec<_>, Vec<_>) = page.held.iter().partition(is_at_rest);
    if !at_rest.is_empty() {
        let count = at_rest.len();
        text += &format!(
            "  the next step is on its way: {count} members compare their copies for it\n"
        );
    }
    for held in late {
        let (url, code, why) = (word(&held.url), word(&held.code), word(&held.why));
        text += &format!("  held back by {url} ({code}): {why}\n");
    }
    text
}

/// The version in force and the one that could be, if the two differ.
fn versions(page: &ClusterPage) -> Option<String> {
    let in_force = page.version;
    let newest = |member: &MemberPage| member.versions.map(|[_, newest]| newest);
    let next = page.members.iter().filter_map(newest).max()?;
    if next <= in_force {
        return None;
    }
    let lacks = |member: &&MemberPage| newest(member).is_none_or(|newest| newest < next);
    let late = page.members.iter().filter(lacks);
    let late: Vec<String> = late.map(|member| member.url.clone()).collect();
    Some(if late.is_empty() {
        format!(
            "version {in_force} is in force, and all members know {next}: dendra cluster finalize\n"
        )
    } else {
        format!(
            "version {in_force} is in force; for {next} these need the new release: {}\n",
            words(&late)
        )
    })
}

/// The plan under way in a line; and has it ended?
pub(super) fn progress(page: &ClusterPage) -> (String, bool) {
    let waits = page.waits.as_ref();
    let waits = waits.map(|waits| format!("; waits: {}", plain(waits)));
    let waits = waits.unwrap_or_default();
    let Some(plan) = &page.plan else {
        let epoch = page.epoch;
        return (
            format!("no plan is under way at epoch {epoch}{waits}"),
            true,
        );
    };
    let id = plan.plan;
    if plan.cancelled {
        let line = format!("plan {id}: cancelled, ends with the next epoch{waits}");
        return (line, false);
    }
    let mut line = format!(
        "plan {id}: {} of {} moves done, {} under way",
        plan.done, plan.moves, plan.moving
    );
    if let Some(bytes) = plan.bytes_left {
        let rate = size(plan.bytes_per_second);
        line += &format!(", {} left at {rate}/s", size(bytes));
    }
    if let Some(seconds) = plan.seconds_left {
        line += &format!(": about {}", time(seconds));
    }
    (line + &waits, false)
}

/// The effects of a plan, by member.
pub(super) fn draft(page: &DraftPage) -> String {
    let id = word(&page.plan);
    let copies = page.moves.iter().filter(|step| step.to.is_some()).count();
    let mut text = format!(
        "plan {id}, for epoch {}: {} moves, {copies} of them copy (no plan can copy fewer than {})",
        page.epoch,
        page.moves.len(),
        page.necessary,
    );
    if let Some(bytes) = page.bytes {
        text += &format!(", about {}", size(bytes));
    }
    if let Some(seconds) = page.seconds {
        text += &format!(", at least {}", time(seconds));
    }
    text += "\n\n";
    // By member: positions that come, and that go.
    let mut changes: BTreeMap<&String, (u64, u64)> = BTreeMap::new();
    for step in &page.moves {
        if let Some(to) = &step.to {
            changes.entry(to).or_default().0 += 1;
        }
        if let Some(from) = &step.from {
            changes.entry(from).or_default().1 += 1;
        }
    }
    let idle = page.leaves.iter().filter(|url| !changes.contains_key(url));
    let idle: Vec<_> = idle.map(|url| (url, (0, 0))).collect();
    let mut rows = vec![heads("member gets gives then")];
    rows.extend(changes.into_iter().chain(idle).map(|(url, (gets, gives))| {
        let leaves = page.leaves.contains(url);
        let then = if leaves { "leaves" } else { "stays" };
        [
            word(url),
            gets.to_string(),
            gives.to_string(),
            then.to_owned(),
        ]
    }));
    table(&mut text, &rows);
    text += "\nnothing has happened yet; carry it out at the same member with\n";
    text + &format!("  dendra cluster apply {id}\n")
}

/// The answer to an order.
pub(super) fn done(page: &DonePage) -> String {
    format!("done: the cluster is at epoch {}\n", page.epoch)
}

/// The answer to an order that begins a plan.
pub(super) fn begun(page: &DonePage) -> String {
    format!(
        "begun: the plan is under way at epoch {}, and the copies move from now on; see how far it \
         is with\n  dendra cluster status --follow\n",
        page.epoch
    )
}

/// The newest epochs.
pub(super) fn history(page: &HistoryPage) -> String {
    let dash = || "-".to_owned();
    let mut rows = vec![heads("epoch learnt change plan begun settled members")];
    for entry in &page.epochs {
        let came = entry.came.iter().map(|url| format!("+{}", word(url)));
        let went = entry.went.iter().map(|url| format!("-{}", word(url)));
        let why = entry.why.iter().map(|why| format!("({})", plain(why)));
        let members: Vec<String> = came.chain(went).chain(why).collect();
        rows.push([
            entry.epoch.to_string(),
            date(entry.learnt_ms).unwrap_or_else(dash),
            word(&entry.change),
            number(entry.plan),
            entry.begun.to_string(),
            entry.settled.to_string(),
            members.join(" "),
        ]);
    }
    let mut text = String::new();
    table(&mut text, &rows);
    for loss in &page.losses {
        text += &format!(
            "{}  a loss was accepted at epoch {}: {} damaged blocks repaired without {}\n",
            date(loss.accepted_ms).unwrap_or_else(dash),
            loss.epoch,
            loss.blocks,
            words(&loss.lost)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn told<Page: DeserializeOwned, Words>(page: &Value, of: fn(&Page) -> Words) -> Option<Words> {
        Page::deserialize(page).ok().map(|page| of(&page))
    }

    fn page(plan: &Value) -> Value {
        json!({
            "cluster": "dendra", "epoch": 7, "replication_factor": 3, "partitions": 256,
            "removed": 1, "waits": null, "plan": plan,
            "members": [
                { "number": 0, "url": "http://h1:8080", "zone": "", "weight": 1, "up": true,
                  "status": "member", "epoch": 7, "positions": 192, "arriving": 0,
                  "stored_bytes": 1_610_612_736_u64, "release": "0.1.0" },
                { "number": 12, "url": "http://h12:8080\u{1b}[2J", "zone": "b", "weight": 2,
                  "up": false, "status": "joining", "epoch": null, "positions": 9,
                  "arriving": 4, "stored_bytes": null, "release": null },
            ],
        })
    }

    #[test]
    fn a_status_is_a_table() {
        let text = told(&page(&Value::Null), status).expect("a status");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "cluster dendra, epoch 7: 3 copies of 256 partitions on 2 members, 1 removed so far"
        );
        let cells: Vec<Vec<&str>> = lines[2..5]
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let head = "# member zone weight status up epoch positions arriving stored release";
        assert_eq!(cells[0].join(" "), head);
        let first = "0 http://h1:8080 - 1 member yes 7 192 0 1.5 GiB 0.1.0";
        assert_eq!(cells[1].join(" "), first);
        let last = "12 http://h12:8080[2J b 2 joining no - 9 4 - -";
        assert_eq!(cells[2].join(" "), last);
        let column = |line: &str, word: &str| line.find(word).expect("it is there");
        assert_eq!(column(lines[3], "member"), column(lines[2], "status"));
        assert_eq!(column(lines[4], "joining"), column(lines[2], "status"));
        assert_eq!(lines[5..], ["", "no plan is under way at epoch 7"]);
    }

    #[test]
    fn a_member_into_which_a_backup_is_restored_is_shown_as_such() {
        let mut page = page(&Value::Null);
        for (restoring, shown) in [(json!(true), "restoring"), (Value::Null, "member")] {
            page["members"][0]["restoring"] = restoring;
            let text = told(&page, status).expect("a status");
            let line = text.lines().nth(3).expect("a member");
            assert_eq!(line.split_whitespace().nth(4), Some(shown), "{line}");
        }
    }

    #[test]
    fn a_member_whose_disk_is_full_is_shown_as_such() {
        let mut page = page(&Value::Null);
        for (full, shown) in [(true, "member,disk-full"), (false, "member")] {
            page["members"][0]["disk_full"] = json!(full);
            let text = told(&page, status).expect("a status");
            let line = text.lines().nth(3).expect("a member");
            assert_eq!(line.split_whitespace().nth(4), Some(shown), "{line}");
        }
    }

    #[test]
    fn a_status_tells_what_is_purged_and_each_member_that_holds_it_back() {
        let mut page = page(&Value::Null);
        page["horizons"] = json!({
            "every_seconds": 600, "purge_ms": null,
            "floor_ms": 1_764_000_000_000_u64,
            "held": [{ "url": "http://h1:8080", "code": "hints", "why": "it keeps\u{7} writes" }],
        });
        let text = told(&page, status).expect("a status");
        assert!(
            text.ends_with(
                "horizon: nothing is purged yet; the next one is 2025-11-24T16:00:00Z\n  \
                 held back by http://h1:8080 (hints): it keeps writes\n"
            ),
            "{text}"
        );
        page["horizons"]["late"] = json!(false);
        let held = page["horizons"]["held"].as_array_mut().expect("a list");
        let compares =
            json!({ "url": "http://h12:8080", "code": "comparing", "why": "no comparison" });
        held.push(compares);
        let text = told(&page, status).expect("a status");
        assert!(
            text.contains("held back by http://h1:8080 (hints)"),
            "{text}"
        );
        assert!(!text.contains("h12:8080 (comparing)"), "{text}");
        assert!(text.contains("on its way: 1 members compare"), "{text}");
        page["horizons"]["late"] = json!(true);
        let text = told(&page, status).expect("a status");
        assert!(
            text.contains("held back by http://h12:8080 (comparing)"),
            "{text}"
        );
        for (steps, shown) in [
            (
                3,
                "\nthe lowered replication factor gives its copies back behind 3 more steps\n",
            ),
            (
                1,
                "\nthe lowered replication factor gives its copies back with the next step\n",
            ),
        ] {
            page["horizons"]["narrowing_steps_left"] = json!(steps);
            let text = told(&page, status).expect("a status");
            assert!(text.contains(shown), "{text}");
        }
        page["horizons"]["narrowing_steps_left"] = json!(0);
        page["horizons"]["purge_ms"] = json!(1_763_000_000_000_u64);
        page["horizons"]["every_seconds"] = json!(0);
        page["horizons"]["held"] = json!([]);
        let text = told(&page, status).expect("a status");
        assert!(
            text.contains("deleted up to 2025-11-13T02:13:20Z gives"),
            "{text}"
        );
        assert!(text.ends_with("(--forget-every-s 0)\n"), "{text}");
        assert!(!text.contains("lowered"), "{text}");
    }

    #[test]
    fn a_status_tells_hints_and_the_ages_of_comparisons_and_scrubs() {
        let mut page = page(&Value::Null);
        page["asked"] = json!("http://h1:8080");
        page["own"] = json!({
            "hints": { "bytes": 2048 },
            "scrub": {
                "full_age_seconds": 7_300,
                "waits_for": [{ "url": "http://h2:8080", "spans": 4 }],
            },
            "comparisons": [
                { "url": "http://h2:8080", "age_seconds": 12 },
                { "url": "http://h3:8080", "age_seconds": null },
            ],
        });
        let text = told(&page, status).expect("a status");
        let end = "http://h1:8080 itself: 2.0 KiB of hints kept for members that are away; \
                   all tables scrubbed: 3 h ago\n  \
                   4 damaged blocks wait for http://h2:8080: it is away, or damaged in the same keys\n  \
                   all copies compared with http://h2:8080: 12 s ago\n  \
                   all copies compared with http://h3:8080: not yet since its start\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_plan_under_way_is_a_line() {
        let plan = json!({
            "plan": 5, "cancelled": false, "moves": 64, "done": 12, "moving": 4,
            "bytes_left": 325_058_560, "bytes_per_second": 50_331_648, "seconds_left": 7,
        });
        assert_eq!(
            told(&page(&plan), progress),
            Some((
                "plan 5: 12 of 64 moves done, 4 under way, 310.0 MiB left at 48.0 MiB/s: about 7 s"
                    .to_owned(),
                false
            ))
        );
        let mut stuck = page(&json!({
            "plan": 5, "cancelled": true, "moves": 64, "done": 12, "moving": 0,
        }));
        stuck["waits"] = json!("http://h3:8080 is away");
        let (line, is_over) = told(&stuck, progress).expect("a line");
        assert_eq!(
            line,
            "plan 5: cancelled, ends with the next epoch; waits: http://h3:8080 is away"
        );
        assert!(!is_over);
    }

    #[test]
    fn a_draft_says_who_gets_and_who_gives() {
        let page = json!({
            "plan": "00000000000000ab", "epoch": 7, "necessary": 2, "bytes": 2048, "seconds": 200,
            "leaves": ["http://h1:8080"],
            "moves": [
                { "partition": 1, "from": "http://h1:8080", "to": "http://h2:8080" },
                { "partition": 2, "from": "http://h1:8080", "to": "http://h3:8080" },
                { "partition": 3, "from": "http://h1:8080", "to": null },
            ],
        });
        let text = told(&page, draft).expect("a draft");
        assert!(text.starts_with(
            "plan 00000000000000ab, for epoch 7: 3 moves, 2 of them copy (no plan can copy fewer \
             than 2), about 2.0 KiB, at least 4 min\n"
        ));
        assert!(
            text.contains("http://h1:8080     0      3  leaves\n"),
            "{text}"
        );
        assert!(
            text.contains("http://h2:8080     1      0  stays\n"),
            "{text}"
        );
        assert!(text.contains("dendra cluster apply 00000000000000ab\n"));
    }

    #[test]
    fn a_plan_that_was_applied_has_begun_and_is_not_done() {
        let text = told(&json!({ "epoch": 9 }), begun).expect("an answer");
        assert!(text.starts_with("begun: "), "{text}");
        assert!(text.contains("epoch 9"), "{text}");
        assert!(
            text.ends_with("\n  dendra cluster status --follow\n"),
            "{text}"
        );
        assert_eq!(told(&json!({}), begun), None);
    }

    #[test]
    fn the_past_is_a_table() {
        let page = json!({ "epochs": [{
            "epoch": 3, "learnt_ms": 1_764_000_000_000_u64, "change": "planned", "plan": 3,
            "came": ["http://h4:8080"], "went": [], "begun": 0, "settled": 0,
        }]});
        let text = told(&page, history).expect("a page");
        let last = text.lines().last().expect("a row");
        assert!(last.contains("2025-11-24T16:00:00Z  planned"), "{text}");
        assert!(last.ends_with("+http://h4:8080"), "{text}");
    }

    #[test]
    fn a_page_of_another_shape_is_no_table() {
        for page in [json!({}), json!([]), json!({ "members": 1 })] {
            assert_eq!(told(&page, status), None);
            assert_eq!(told(&page, draft), None);
            assert_eq!(told(&page, history), None);
        }
    }
}
