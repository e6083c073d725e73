//! One value in, out and away again, over a real socket.
//!
//! Invariants
//! 1. The shortest test that a broken start, loop, log thread or stop cannot pass.
//!
//! Not here: the contract route by route (`contract.rs`).

use crate::support::Node;
use dendra_engine::Durability;

fn one_value_goes_in_and_out(durability: Durability) {
    let node = Node::with(|settings| settings.durability = durability);
    let mut client = node.client();
    let put = client.put("k", b"hello");
    assert_eq!((put.status, put.body.as_slice()), (201, &b""[..]));
    let got = client.value("k");
    assert_eq!((got.status, got.body.as_slice()), (200, &b"hello"[..]));
    assert_eq!(got.etag(), put.etag());
    let receipt = format!(
        "acks=1/1; level=linearizable; durability={}",
        durability.as_str()
    );
    assert_eq!(got.header("Dendra-Receipt"), Some(receipt.as_str()));
    assert_eq!(client.delete("k").status, 202);
    assert_eq!(client.value("k").status, 404);
    node.stop();
}

#[test]
fn a_value_goes_in_and_out_with_durability_sync() {
    one_value_goes_in_and_out(Durability::Sync);
}

#[test]
fn a_value_goes_in_and_out_with_durability_os() {
    one_value_goes_in_and_out(Durability::Os);
}

#[test]
fn the_admin_plane_answers() {
    let node = Node::start();
    assert_eq!(node.admin().get("/healthz").text(), "alive\n");
    assert_eq!(node.admin().get("/readyz").status, 200);
    assert!(
        node.admin()
            .get("/v0/status")
            .text()
            .contains("\"serving\"")
    );
    assert!(
        node.admin()
            .get("/openapi.yaml")
            .text()
            .starts_with("openapi:")
    );
    let page = node.admin().get("/");
    assert!(page.text().contains("/metrics"));
    let policy = page.header("Content-Security-Policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    // The policy lets in no script and no style but these.
    for (part, kind, has) in [
        ("/page.js", "text/javascript; charset=utf-8", "/v0/status"),
        ("/page.css", "text/css; charset=utf-8", "polyline"),
    ] {
        assert!(page.text().contains(&format!("=\"{part}\"")), "{part}");
        let answer = node.admin().get(part);
        assert_eq!(answer.header("Content-Type"), Some(kind));
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        assert!(answer.text().contains(has), "{part}");
    }
    assert!(!page.text().contains("<style") && !page.text().contains("<script>"));
    assert_eq!(node.metric("dendra_ready"), 1.0);
    // Every histogram ends with the bucket that Prometheus needs, which holds everything.
    let page = node.admin().get("/metrics").text();
    let ends = page.lines().filter(|line| line.contains("le=\"+Inf\""));
    let histograms = page.lines().filter(|line| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        name.ends_with("_seconds_count")
    });
    let (ends, histograms): (Vec<_>, Vec<_>) = (ends.collect(), histograms.collect());
    assert!(!ends.is_empty());
    assert_eq!(ends.len(), histograms.len(), "{page}");
    for (end, count) in ends.iter().zip(&histograms) {
        let value = |line: &str| line.rsplit(' ').next().map(str::to_owned);
        assert_eq!(value(end), value(count), "{page}");
    }
}
