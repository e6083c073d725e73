//! A disk that is filled to its end, and comes back by deletes alone.
//!
//! Not here: the rule of the reserve, other sizes and a start on a full disk (crate `engine`).
//! See: docs/operating.md, section "A full disk".

use crate::support::http::Client;
use crate::support::mount::Mount;
use crate::support::{Node, rest};
use dendra_base::Prng;
use std::time::{Duration, Instant};

/// Beyond this the disk does not fill.
const PATIENCE: Duration = Duration::from_secs(60);
/// The promise: values are taken again so soon behind the deletes.
const BACK: Duration = Duration::from_secs(30);
const VALUE_BYTES: usize = 200 << 10;

#[test]
fn a_full_disk_says_so_and_takes_values_again_behind_deletes_without_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path().join("disk");
    std::fs::create_dir(&at).expect("a new name");
    let Some(_disk) = Mount::tmpfs(&at, "64m") else {
        eprintln!("not tried: this user may not mount a file system");
        return;
    };
    let node = Node::start(&at.join("data"), &[]);
    let open = |address| Client::open(address).expect("it listens");
    let (mut client, mut admin) = (open(node.address()), open(node.admin_address()));
    let mut page = |path: &str| {
        let answer = admin.request("GET", path, &[], b"");
        let answer = answer.expect("an answer");
        (
            answer.status,
            String::from_utf8_lossy(&answer.body).into_owned(),
        )
    };
    let put = |client: &mut Client, id: &str, value: &[u8]| {
        let answer = client.ask("PUT", id, &[], value);
        answer.expect("an answer").status
    };
    // No compression makes it shorter.
    let mut prng = Prng::named(1, "full");
    let value: Vec<u8> = (0..VALUE_BYTES).map(|_| prng.below(256) as u8).collect();
    let (mut stored, began) = (Vec::new(), Instant::now());
    loop {
        assert!(began.elapsed() < PATIENCE, "{} values fit", stored.len());
        let id = format!("f{}", stored.len());
        match put(&mut client, &id, &value) {
            201 => stored.push(id),
            507 => {
                // A flush or a merge may make room once more.
                let ready = page("/readyz");
                let metrics = page("/metrics").1;
                if ready.1.contains("the disk is full: ")
                    && metrics.contains("\ndendra_disk_full 1\n")
                {
                    assert_eq!(ready.0, 200, "reads and deletes go on: {}", ready.1);
                    break;
                }
                rest();
            }
            status => panic!("{status} behind {} values", stored.len()),
        }
    }
    let read = client.ask("GET", &stored[0], &[], b"").expect("an answer");
    assert_eq!((read.status, read.body == value), (200, true));
    for id in &stored {
        let deleted = client.ask("DELETE", id, &[], b"").expect("an answer");
        assert_eq!(deleted.status, 202, "{id}");
    }
    let began = Instant::now();
    while put(&mut client, "again", &value) != 201 || page("/readyz").1 != "serving\n" {
        assert!(began.elapsed() < BACK, "{}", page("/readyz").1);
        rest();
    }
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("WARN") && log.contains("the disk is full"),
        "{log}"
    );
}
