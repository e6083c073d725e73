//! `dendra cluster compare`: members that repair no record say which copies differ.
//!
//! ```text
//! three members stop ─► their folders differ ─► they start, and compare nothing by themselves
//! compare ─► 6, each difference, the folders as before ─► they compare ─► 0 ─► one is away ─► 1
//! ```
//!
//! Not here: every way to differ (crate `node`, `tests/compare/looks.rs`).

use super::heal::{an_hour_ago, held, write_alone};
use crate::support::cluster::{Cluster, NODES};
use crate::support::http::PATIENCE;
use crate::support::{Run, dendra, run};
use serde_json::{Value, json};
use std::time::Instant;

fn compare(cluster: &Cluster, members: &[usize], is_json: bool) -> Run {
    let urls = cluster.admin_urls();
    let mut command = dendra(["cluster", "compare"]);
    command.args(members.iter().map(|at| &urls[*at]));
    if is_json {
        command.arg("--json");
    }
    run(&mut command)
}

fn page(run: &Run) -> Value {
    serde_json::from_slice(&run.stdout).expect("a page")
}

fn stores(cluster: &Cluster) -> Vec<Vec<u8>> {
    (0..NODES).map(|member| held(cluster, member)).collect()
}

fn restart_all(cluster: &mut Cluster) {
    let before: Vec<usize> = (0..NODES).map(|at| cluster.times_served(at)).collect();
    cluster.start_all();
    for (at, before) in before.into_iter().enumerate() {
        cluster.wait_until_served(at, before + 1);
    }
    cluster.wait_for_all_links();
}

#[test]
fn a_look_names_the_copies_that_differ_and_changes_none() {
    let off = ["--compare-bytes-per-second", "0"];
    let mut cluster = Cluster::start_with_admin(&off);
    cluster.wait_for_all_links();
    cluster.kill_all();
    let cells = |keys: &[&str], value: &'static [u8]| -> Vec<(Vec<u8>, Option<&[u8]>)> {
        let keys = keys.iter();
        keys.map(|key| (key.as_bytes().to_vec(), Some(value)))
            .collect()
    };
    let at_ms = an_hour_ago();
    for member in 0..NODES {
        let folder = cluster.folder.path().join(member.to_string());
        write_alone(
            &folder,
            &cells(&["equal", "old 1", "old 2"], b"first"),
            at_ms,
        );
        if member == 0 {
            write_alone(&folder, &cells(&["alone"], b"of one copy"), at_ms);
        }
        if member != 1 {
            write_alone(
                &folder,
                &cells(&["old 1", "old 2"], b"second"),
                at_ms + 60_000,
            );
        }
    }
    restart_all(&mut cluster);
    let before = stores(&cluster);
    assert!(before[0] != before[1] && before[1] != before[2]);

    let seen = compare(&cluster, &[0, 1, 2], true);
    assert_eq!(seen.code, Some(6), "{}", seen.stderr);
    let seen = page(&seen);
    let found = |look: usize, peer: usize| {
        let pairs = seen["looks"][look]["with"].as_array().expect("a list");
        let pair = pairs.iter().find(|pair| pair["url"] == cluster.url(peer));
        let pair = pair.expect("they were compared");
        assert_eq!(pair["state"], "compared");
        assert_eq!(pair["left_out"], 0);
        let examples = pair["examples"].as_array().expect("a list").iter();
        let examples = examples.map(|it| (it["key"].clone(), it["difference"].clone()));
        examples.collect::<Vec<_>>()
    };
    // In the order of keys.
    let alone = (json!("alone"), json!("missing_there"));
    let old = |side: &str| ["old%201", "old%202"].map(|key| (json!(key), json!(side)));
    let [one, two] = old("newer_here");
    assert_eq!(found(0, 1), [alone.clone(), one, two]);
    assert_eq!(found(0, 2), [alone]);
    assert_eq!(found(1, 2), old("newer_there"));
    assert_eq!(seen["looks"][0]["member"], cluster.url(0));
    assert_eq!(
        seen["looks"].as_array().map(Vec::len),
        Some(2),
        "each pair once"
    );
    assert_eq!(seen["not_asked"], json!([]));

    let one = compare(&cluster, &[0], false);
    let text = String::from_utf8_lossy(&one.stdout);
    assert_eq!(one.code, Some(6), "{}", one.stderr);
    assert!(text.contains("missing there: alone ("), "{text}");
    assert!(
        text.contains("4 differences in 2 pairs of members"),
        "{text}"
    );
    let left = [(1, 2), (2, 1)]
        .map(|(a, b)| format!("not asked: {} with {};", cluster.url(a), cluster.url(b)));
    assert!(left.iter().any(|line| text.contains(line)), "{text}");
    assert_eq!(stores(&cluster), before, "a look repairs nothing");

    cluster.kill_all();
    cluster.flags.clear();
    restart_all(&mut cluster);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let run = compare(&cluster, &[0, 1, 2], false);
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        if run.code == Some(0) {
            assert!(text.contains("equal: 3 pairs of members"), "{text}");
            break;
        }
        assert_eq!(run.code, Some(6), "{text}{}", run.stderr);
        assert!(Instant::now() < deadline, "they stay different: {text}");
        crate::support::rest();
    }
    let equal = stores(&cluster);
    assert!(equal.iter().all(|held| *held == equal[0]));

    cluster.kill(2);
    let part = compare(&cluster, &[0, 1], false);
    assert_eq!(part.code, Some(1), "{}", part.stderr);
    assert!(part.stderr.contains("2 of 3 pairs"), "{}", part.stderr);
}
