//! Reads of a cluster of three real members, explained by any of them.
//!
//! Not here: a node by itself (crate `server`, `tests/serving/explain.rs`).
//! See: docs/explain.md.

use crate::support::cluster::{Cluster, NODES};
use crate::support::http::Client;
use crate::support::{dendra, run};
use serde_json::{Value, json};

fn explained(cluster: &Cluster, index: usize, query: &str) -> Value {
    let mut client = Client::open(cluster.listen[index]).expect("it listens");
    let target = format!("/v0/entity?{query}&explain=1");
    let answer = client.request("GET", &target, &[], b"");
    let answer = answer.expect("it answers");
    let text = String::from_utf8(answer.body).expect("it is text");
    assert_eq!(answer.status, 200, "{text}");
    serde_json::from_str(&text).expect("an object")
}

fn wrote(cluster: &Cluster, method: &str, query: &str) -> String {
    let mut client = Client::open(cluster.listen[0]).expect("it listens");
    let headers = ["Dendra-Timeout-Ms: 60000"];
    let target = format!("/v0/entity?{query}");
    let answer = client
        .request(method, &target, &headers, b"")
        .expect("it answers");
    assert!(matches!(answer.status, 201 | 202), "{}", answer.status);
    let tag = answer.etag.expect("a version");
    tag.trim_matches('"').to_owned()
}

fn owners_that<'a>(page: &'a Value, field: &str, is: &Value) -> Vec<&'a Value> {
    let owners = page["cluster"]["owners"].as_array().expect("a list");
    owners.iter().filter(|owner| owner[field] == *is).collect()
}

#[test]
fn any_member_names_the_owners_that_answered_and_what_they_have() {
    let cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    let version = wrote(&cluster, "PUT", "id=k&ack=3&from=3");
    for index in 0..NODES {
        let page = explained(&cluster, index, "id=k");
        let of_cluster = &page["cluster"];
        assert_eq!(
            (&page["found"], &page["record"]["version"]),
            (&json!(true), &json!(version))
        );
        assert_eq!(of_cluster["coordinator"]["url"], cluster.url(index));
        let rounds = (
            &of_cluster["ack"],
            &of_cluster["from"],
            &of_cluster["tries"],
        );
        assert_eq!(rounds, (&json!(2), &json!(3), &json!(1)));
        assert_eq!(of_cluster["owners"].as_array().map(Vec::len), Some(3));
        assert_eq!(of_cluster["write_back"], "none");
        let counted = owners_that(&page, "counts", &json!(true));
        assert!(counted.len() >= 2, "{page}");
        for owner in counted {
            assert_eq!(owner["answer"], "copy", "{page}");
            assert_eq!(owner["record"]["version"], version.as_str());
            assert!(
                owner["took_us"].as_u64() <= of_cluster["took_us"].as_u64(),
                "{page}"
            );
            assert!(owner["took_us"].as_u64().is_some() && owner["member"].as_u64().is_some());
        }
        let own = owners_that(&page, "own", &json!(true));
        assert_eq!((own.len(), &own[0]["url"]), (1, &json!(cluster.url(index))));
        // Its own copy is looked at in its own engine.
        assert_eq!(page["engine"]["found_in"], json!({ "memtable": "active" }));
    }

    let deleted = wrote(&cluster, "DELETE", "id=k&ack=3&from=3");
    let page = explained(&cluster, 1, "id=k");
    assert_eq!(
        (&page["found"], &page["outcome"]),
        (&json!(false), &json!("missing"))
    );
    let record = &page["record"];
    assert_eq!(
        (&record["kind"], &record["version"]),
        (&json!("tombstone"), &json!(deleted))
    );
    let page = explained(&cluster, 2, "id=never");
    assert_eq!(
        (&page["found"], &page["record"]),
        (&json!(false), &Value::Null)
    );
    assert!(
        owners_that(&page, "answer", &json!("absent")).len() >= 2,
        "{page}"
    );
}

#[test]
fn a_write_back_is_named_with_the_owners_that_got_it() {
    let cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    let version = wrote(&cluster, "PUT", "id=one&ack=1&from=1");
    let first = explained(&cluster, 0, "id=one&ack=1&from=1");
    let owners = first["cluster"]["owners"].as_array().expect("a list");
    let is_own = owners.len() == 1 && owners[0]["own"] == true;
    assert_eq!(
        first["engine"].is_null(),
        !is_own,
        "only an owner has a part: {first}"
    );
    // The default level shows it only when a majority holds it.
    let page = explained(&cluster, 0, "id=one&ack=3&from=3");
    assert_eq!(page["record"]["version"], version.as_str());
    assert_eq!(page["cluster"]["write_back"], "awaited", "{page}");
    let got = owners_that(&page, "write_back", &json!("confirmed"));
    assert!(
        !got.is_empty() && got.iter().all(|owner| owner["answer"] == "absent"),
        "{page}"
    );
    assert_eq!(
        owners_that(&page, "answer", &json!("copy")).len(),
        1,
        "{page}"
    );
}

#[test]
fn the_command_prints_the_tree_of_a_cluster() {
    let cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    let version = wrote(&cluster, "PUT", "id=k&ack=3&from=3");
    let got = run(&mut dendra([
        "get",
        "k",
        "--explain",
        "--url",
        cluster.url(1),
    ]));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    let text = String::from_utf8(got.stdout).expect("it is text");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with(&format!("k: found, value {version} of 0 bytes")),
        "{text}"
    );
    assert!(lines[1].contains(cluster.url(1)), "{text}");
    assert!(
        lines.iter().filter(|line| line.contains("owner ")).count() == 3,
        "{text}"
    );
    assert!(
        text.contains("engine: read, found in memtable active"),
        "{text}"
    );
}
