//! The settings that the flags become.

use super::*;
use crate::cli::{Cli, Command};
use clap::Parser;

fn parsed(arguments: &[&str]) -> Result<Setup, String> {
    let all = ["dendra", "bench"].iter().chain(arguments);
    let cli = Cli::try_parse_from(all).map_err(|e| e.to_string())?;
    let Command::Bench(args) = cli.command else {
        panic!("bench was given");
    };
    let setup = setup(&args)?;
    setup.check().map_err(|e| e.to_string())?;
    Ok(setup)
}

#[test]
fn the_example_of_the_manual_is_a_plan() {
    let text = "http://127.0.0.1:8080 --workload mixed --rate 30000 --duration 60s --connections 64 \
                --threads 1 --keys 1000000 --value-bytes 100 --seed 1 --find-max --slo \
                p99<10ms,errors<0.1% --overload 2x,5x --profile cpu,alloc --out runs/today";
    let setup = parsed(&text.split_whitespace().collect::<Vec<_>>()).expect("it is whole");
    assert_eq!(setup.overload, [2.0, 5.0]);
    assert_eq!(setup.duration_s, 60.0);
    assert!(setup.find_max.is_some());
    assert_eq!(setup.profiles, ["cpu", "alloc"]);
    assert_eq!(setup.admins, ["http://127.0.0.1:9080"]);
}

#[test]
fn another_store_is_named_by_its_template() {
    let setup = parsed(&["--url-template", "http://127.0.0.1:81/a/{key}"]).expect("it is one");
    assert_eq!(setup.urls, ["http://127.0.0.1:81"]);
    assert_eq!(setup.style.path.as_deref(), Some("/a/{key}"));
}

#[test]
fn what_cannot_be_run_is_refused_with_a_sentence() {
    for (arguments, word) in [
        (&["--rate", "0"][..], "rate of zero"),
        (&["--rate", "fast"], "no schedule"),
        (&["--duration", "0s"], "measures nothing"),
        (&["--workload", "ycsb-z"], "not known"),
        (&["--connections", "0"], "connections"),
        (&["--keys", "0"], "key space"),
        (&["--mix", "fetch=1"], "OPERATION=WEIGHT"),
        (&["--overload", "0.5x"], "above one"),
        (&["--timeout", "0s"], "give up everything"),
        (
            &["--duration", "soon"],
            "'soon' for '--duration <TIME>': it is no length",
        ),
        (&["--distribution", "zipf"], "hotspot:0.2,0.8"),
        (&["--method", "post"], "one like POST"),
        (&["--overload", "2x,much"], "write 2x,5x"),
        (&["--slo", "p99<10ms"], "--find-max"),
        (&["--find-max", "--slo", "p99"], "p99<10ms"),
        (&["--profile", "gpu"], "alloc"),
        (&["--ammo", "a.tsv", "--replay", "0"], "above zero"),
        (&["--find-max"], "--slo"),
        (&["--closed", "--rate", "5"], "--closed"),
        (&["--header", "no header"], "Name: value"),
        (&["--header", "authorization: Bearer x"], "--token-file"),
        (&["--value-bytes", "99999999"], "at most"),
        (&["--ammo", "there-is-no-such.tsv"], "cannot be read"),
        (&["--ammo", "what.bin"], ".tsv"),
        (&["--record", "x.log"], "end the name in .ndjson"),
        (&["--record", "x.tsv"], "end the name in .ndjson"),
        (
            &["--url-template", "/{key}/{foo}"],
            "{foo}, which nothing fills",
        ),
        (&["http://h:1", "http://h:2", "--profile", "cpu"], "--admin"),
    ] {
        let error = parsed(arguments).expect_err("it cannot be run");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}
