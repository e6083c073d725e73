//! `dendra bench compare` from outside: its output, its files, exit codes.
//!
//! Not here: the rule for noise, the drawings (crate `lab`).

use crate::support::{dendra, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A record with only a measured phase in which `ok` of `ok` requests did as asked.
fn record(rate: u64, ok: u64) -> Value {
    let none = json!({"count": 0, "min_us": 0.0, "mean_us": 0.0, "stdev_us": 0.0, "max_us": 0.0,
        "percentiles_us": {}, "hdr": ""});
    let counts = json!({"planned": ok, "sent": ok, "answered": ok, "ok": ok, "misses": 0,
        "conditions_failed": 0, "refused": 0, "failed": 0, "timeouts": 0, "broken": 0, "unsent": 0,
        "sent_bytes": 0, "received_bytes": 0, "body_bytes": 0, "scanned": 0, "statuses": {"200": ok}});
    json!({"format": 1, "tool": {"name": "dendra bench", "version": "0.1.0"},
        "command": ["dendra", "bench", "--rate", rate.to_string()],
        "started_unix_ms": 0, "length_s": 1.0,
        "machine": {"cpus": 2, "cpu_model": "", "memory_bytes": 0, "kernel": "", "system": ""},
        "settings": {"mode": "open", "schedule": rate.to_string(), "rate": rate, "duration_s": 1.0, "warmup_s": 0.0,
            "connections": 1, "threads": 1, "pipeline": 1, "timeout_ms": 5000, "seed": 1},
        "workload": {"name": "get", "mix": {}, "keys": 1, "distribution": "", "values": "", "miss_ratio": 0.0},
        "targets": [{"url": "http://127.0.0.1:1", "template": ""}],
        "verdict": {"verdict": "valid"}, "is_cut": false, "notes": [],
        "phases": [{"name": "measure", "kind": "measure", "start_s": 0.0, "length_s": 1.0, "rate": rate,
            "verdict": {"verdict": "valid"}, "counts": counts, "ops": [], "targets": [],
            "generator": {"send_lag": none, "missed": 0, "send_lag_limit_us": 1000.0, "cpu_s": 0.0, "spun_s": 0.0, "starved_s": 0.0,
                "available_s": 1.0, "busiest_share": 0.1, "cpu_us_per_request": 1.0, "connects": 1, "reconnects": 0, "seconds": []}}],
        "servers": []})
}

/// Writes a record into its folder; the folder's path.
fn written(folder: &Path, name: &str, record: &Value) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(&path).expect("there is room");
    std::fs::write(path.join("run.json"), record.to_string()).expect("there is room");
    path
}

fn compare(page: &Path, runs: &[&Path]) -> crate::support::Run {
    let mut command = dendra(["bench", "compare", "--out"]);
    run(command.arg(page).args(runs))
}

#[test]
fn folders_of_repeats_are_judged_and_the_page_has_both_names() {
    let folder = tempfile::tempdir().expect("there is room");
    let place = folder.path();
    for n in 0..3 {
        written(place, &format!("old/{n}"), &record(1000, 1000 + n));
        written(place, &format!("new/{n}"), &record(1000, 700 + n));
        written(place, &format!("like/{n}"), &record(1000, 1001 + n));
    }
    let (old, new, like) = (place.join("old"), place.join("new"), place.join("like"));
    let page = place.join("page.html");
    let run = compare(&page, &[&old, &new, &like]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = String::from_utf8(run.stdout).expect("it is text");
    let verdicts: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("verdict: "))
        .collect();
    let [differs, same] = verdicts[..] else {
        panic!("one verdict for each of the others:\n{text}");
    };
    assert!(
        differs.contains("1 of 3 figures") && differs.contains("done as asked, a second -30"),
        "{differs}"
    );
    assert!(same.contains("no difference"), "{same}");
    let page = std::fs::read_to_string(page).expect("the page is there");
    for name in [&old, &new, &like] {
        assert!(page.contains(&name.display().to_string()), "{page:.300}");
    }
}

#[test]
fn single_runs_are_grouped_by_what_they_ran_and_two_prove_nothing() {
    let folder = tempfile::tempdir().expect("there is room");
    let page = folder.path().join("page.html");
    let slow = written(folder.path(), "a", &record(1000, 1000));
    let fast = written(folder.path(), "b", &record(2000, 2000)).join("run.json");
    let run = compare(&page, &[&slow, &fast]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = String::from_utf8(run.stdout).expect("it is text");
    assert!(text.contains("verdict: unknown"), "{text}");
    assert!(
        text.contains("NOT ALL ELSE IS EQUAL: the runs differ in the rate"),
        "{text}"
    );
}

#[test]
fn a_run_that_cannot_be_read_is_named_and_no_page_is_written() {
    let folder = tempfile::tempdir().expect("there is room");
    let place = folder.path();
    let good = written(place, "good", &record(1, 1));
    let mut newer = record(1, 1);
    newer["format"] = json!(9);
    let newer = written(place, "newer", &newer);
    let mut lacking = record(1, 1);
    lacking.as_object_mut().expect("it is one").remove("phases");
    let lacking = written(place, "lacking", &lacking);
    let garbage = place.join("garbage.json");
    std::fs::write(&garbage, b"\x00\xff no json").expect("there is room");
    let empty = place.join("empty");
    std::fs::create_dir(&empty).expect("there is room");
    let missing = place.join("missing");
    for (bad, word) in [
        (&newer, "format 9"),
        (&lacking, "not a run.json"),
        (&garbage, "not a run.json"),
        (&empty, "cannot be read"),
        (&missing, "cannot be read"),
    ] {
        let page = place.join("page.html");
        let run = compare(&page, &[&good, bad]);
        assert_eq!(run.code, Some(2), "{bad:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{bad:?}: {}", run.stderr);
        let name = bad.display().to_string();
        assert!(run.stderr.contains(&name), "{bad:?}: {}", run.stderr);
        assert!(!page.exists(), "{bad:?}");
        assert!(run.stdout.is_empty(), "{bad:?}");
    }
    let alone = compare(&place.join("page.html"), &[&good]);
    assert_eq!(alone.code, Some(2), "{}", alone.stderr);
}

#[test]
fn a_side_without_a_valid_run_and_a_page_without_a_place_have_their_codes() {
    let folder = tempfile::tempdir().expect("there is room");
    let place = folder.path();
    let good = written(place, "good", &record(1, 1));
    let mut bad = record(2, 2);
    bad["verdict"] = json!({"verdict": "invalid", "reason": "the generator was the bottleneck"});
    let bad = written(place, "bad", &bad);
    let run = compare(&place.join("page.html"), &[&good, &bad]);
    assert_eq!(run.code, Some(6), "{}", run.stderr);
    let text = String::from_utf8(run.stdout).expect("it is text");
    assert!(text.contains("1 of them INVALID"), "{text}");
    assert!(text.contains("verdict: none"), "{text}");
    let run = compare(Path::new("/dev/null/x"), &[&good, &bad]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let run = compare(&place.join("page.html"), &[&good, &good]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("named twice"), "{}", run.stderr);
}
