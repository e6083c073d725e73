//! The health of a cluster of real processes, as `dendra health` and load balancers see it.
//!
//! ```text
//! three members ─► healthy, 0     one killed ─► degraded, 1     two killed ─► not serving, 2
//! ```
//!
//! Invariants
//! 1. Each wait is for a state, and none gives up before `PATIENCE`.
//!
//! Not here: which findings there are (crate `server`, `health/`).
//! See: docs/health.md.

use crate::support::cluster::Cluster;
use crate::support::http::{Client, PATIENCE};
use crate::support::{Run, dendra, rest, run};
use std::time::Instant;

/// Asks until the answer is this, and returns what `dendra health --cluster` printed.
fn until(cluster: &Cluster, code: i32, word: &str, has: &str) -> String {
    let began = Instant::now();
    loop {
        let mut command = dendra(["health", "--cluster"]);
        let Run {
            code: ended,
            stdout,
            stderr,
        } = run(command.args(cluster.admin_urls()));
        let text = String::from_utf8(stdout).expect("text");
        if ended == Some(code) && text.lines().next() == Some(word) && text.contains(has) {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "{ended:?} {text} {stderr}");
        rest();
    }
}

fn ready(cluster: &Cluster, index: usize, target: &str) -> (u16, String) {
    let url = cluster.admin_urls().remove(index);
    let address = url.strip_prefix("http://").expect("a URL");
    let mut client = Client::open(address.parse().expect("an address")).expect("it listens");
    let answer = client.request("GET", target, &[], b"").expect("an answer");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    (answer.status, text)
}

/// Lines of a member's log at this level about a member that is away.
fn said(cluster: &Cluster, level: &str) -> usize {
    let log = cluster.log_of(0);
    let about = |line: &&str| line.contains(level) && line.contains("member-away");
    log.lines().filter(about).count()
}

/// Waits until the log has so many of these lines: a node looks once a second.
fn until_said(cluster: &Cluster, level: &str, lines: usize) {
    let began = Instant::now();
    while said(cluster, level) < lines {
        assert!(began.elapsed() < PATIENCE, "{}", cluster.log_of(0));
        rest();
    }
}

#[test]
fn a_cluster_is_healthy_or_degraded_or_does_not_serve() {
    let mut cluster = Cluster::start_with_admin(&["--durability", "os"]);
    assert_eq!(until(&cluster, 0, "healthy", ""), "healthy\n");
    // Links that came late at the start.
    let before = said(&cluster, "WARN");
    until_said(&cluster, "INFO", before);

    cluster.kill(2);
    let away = format!("member-away: {} is not reached", cluster.url(2));
    let text = until(&cluster, 1, "degraded", &away);
    assert!(text.contains("no-answer: "), "{text}");
    assert!(
        text.contains(&format!("--replace {}", cluster.url(2))),
        "{text}"
    );
    assert_eq!(ready(&cluster, 0, "/readyz?quorum=1").0, 200);
    let name = "dendra_finding{kind=\"member-away\",severity=\"degraded\"}";
    assert_eq!(cluster.metric(0, name), 1.0);

    until_said(&cluster, "WARN", before + 1);

    cluster.kill(1);
    let text = until(&cluster, 2, "not-serving", "no-majority: ");
    assert!(text.contains("1 of 3 members are reached"), "{text}");
    assert_eq!(ready(&cluster, 0, "/readyz"), (200, "serving\n".to_owned()));
    let (status, why) = ready(&cluster, 0, "/readyz?quorum=1");
    assert!(
        status == 503 && why.starts_with("no majority: "),
        "{status} {why}"
    );
    assert_eq!(ready(&cluster, 0, "/v0/health").0, 200);
    until_said(&cluster, "WARN", before + 2);

    for index in [1, 2] {
        cluster.start_node(index);
    }
    for index in [1, 2] {
        cluster.wait_until_served(index, 2);
    }
    assert_eq!(until(&cluster, 0, "healthy", ""), "healthy\n");
    // Each of the two was said once when it went, and once when it was back.
    until_said(&cluster, "INFO", before + 2);
    let both = [said(&cluster, "WARN"), said(&cluster, "INFO")];
    assert_eq!(both, [before + 2; 2], "{}", cluster.log_of(0));
}
