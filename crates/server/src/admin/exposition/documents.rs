//! Do documents, alerts and the dashboard name metrics, labels and findings as the node does?
//!
//! ```text
//! docs/*.md, *.md           names of metrics, and labels in braces behind them
//! deploy/**.yaml, .json     the same, with the labels that Prometheus adds
//! ```
//!
//! Invariants
//! 1. A renamed metric, label or finding fails a test here until all that name it follow.
//!
//! Not here: whether alerts fire when they should (`make prove-alerts`), whether runbooks have the
//! headings that alerts name (tidy).
//! See: docs/installing.md.

use super::metric::Metric;
use super::table::METRICS;
use crate::health::{HealthKind, Severity};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Words of documents that are no metrics: crates, and the begin of tokens and of all metrics.
const OTHERS: [&str; 5] = [
    "dendra_",
    "dendra_engine",
    "dendra_node",
    "dendra_server",
    "process_",
];
/// Labels that Prometheus adds to each sample.
const ADDED: [&str; 2] = ["instance", "job"];
/// Columns of a dashboard.
const COLUMNS: u64 = 24;

/// Names of metrics in a line, with the labels that stand behind them in braces.
fn named(line: &str) -> Vec<(&str, Vec<&str>)> {
    let begins = ["dendra_", "process_"];
    let begins = begins.iter().flat_map(|begin| line.match_indices(begin));
    let named = begins.map(|(at, _)| {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let name = line[at..].split(|c| !is_of_name(c)).next();
        let name = name.expect("it begins with a letter");
        let labels = line[at + name.len()..].strip_prefix('{');
        let labels = labels.and_then(|labels| Some(labels.split_once('}')?.0));
        let labels = labels.unwrap_or_default().split(',');
        let labels = labels.filter_map(|pair| Some(pair.split_once(['=', '!'])?.0.trim()));
        (name, labels.collect())
    });
    named.filter(|(name, _)| !OTHERS.contains(name)).collect()
}

/// Is this how a document names the metric?
fn is_name_of(metric: &Metric, name: &str, line: &str) -> bool {
    let mut ends = metric.endings().iter();
    metric.name == name
        || ends.any(|end| name.strip_suffix(end) == Some(metric.name))
        || (line.contains("| grep ") && metric.name.starts_with(name))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).expect("a page")
}

/// Files of a folder of the workspace that end in this.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .collect()
}

/// Checks the names in these files; how many there are.
fn checked(files: Vec<PathBuf>, added: &[&str]) -> usize {
    let mut count = 0;
    for path in files {
        for line in text(&path).lines() {
            for (name, labels) in named(line) {
                let mut metrics = METRICS.iter();
                let metric = metrics.find(|metric| is_name_of(metric, name, line));
                let has = |label: &&str| {
                    added.contains(label) || metric.is_some_and(|it| it.labels.contains(label))
                };
                let is_good = metric.is_some() && labels.iter().all(has);
                assert!(is_good, "{}: {name}{labels:?}: {line}", path.display());
                count += 1;
            }
        }
    }
    count
}

#[test]
fn documents_name_metrics_and_labels_that_exist() {
    let count = checked([files("docs", "md"), files("", "md")].concat(), &[]);
    assert!(count > 50, "{count} names of metrics in the documents");
}

#[test]
fn alerts_and_the_dashboard_name_metrics_and_labels_that_exist() {
    for (folder, ending, least) in [("prometheus", "yaml", 60), ("grafana", "json", 60)] {
        let count = checked(files(&format!("deploy/{folder}"), ending), &ADDED);
        assert!(count > least, "{count} names of metrics in {folder}");
    }
}

#[test]
fn each_finding_has_an_alert_and_each_alert_says_what_to_do() {
    let rules = text("deploy/prometheus/dendra.rules.yaml");
    let mut alerts = rules.split("- alert: ");
    alerts.next();
    let (mut names, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        assert!(names.insert(name), "{name} is there twice");
        for part in [
            "expr: ",
            "labels: {severity: ",
            "summary: \"",
            "description: \"",
            "runbook: docs/operating.md#",
        ] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        // kind="a" and kind=~"a|b", and what the alert for the rest leaves to others.
        for (at, _) in alert.match_indices("kind") {
            let words = alert[at + 4..].trim_start_matches(['=', '!', '~']);
            if let Some(words) = words.strip_prefix('"') {
                kinds.extend(words.split('"').next().expect("words").split('|'));
            }
        }
    }
    let has_own = |kind: &&HealthKind| kinds.contains(kind.as_str());
    assert_eq!(
        HealthKind::ALL.iter().filter(has_own).count(),
        kinds.len(),
        "a word that is no finding: {kinds:?}"
    );
    let mut degraded = HealthKind::ALL.iter();
    let missing = degraded.find(|kind| kind.severity() == Severity::Degraded && !has_own(kind));
    assert_eq!(missing, None, "it has no alert");
    assert!(rules.contains("dendra_finding{severity=\"not-serving\", kind!~"));
}

#[test]
fn panels_of_the_dashboard_have_places_of_their_own_and_follow_the_variables() {
    let page: Value = serde_json::from_str(&text("deploy/grafana/dendra.json")).expect("JSON");
    let list = |of: &Value| of.as_array().cloned().expect("a list");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&page["panels"]) {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}");
        let at = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64());
        let [x, y, w, h] = at.map(|side| side.expect("a number of cells"));
        assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{title}");
        for (column, line) in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert((column, line)), "{title} covers another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let mut refs = BTreeSet::new();
        for target in list(&panel["targets"]) {
            assert!(refs.insert(target["refId"].to_string()), "{title}");
            let expression = target["expr"].as_str().expect("an expression");
            let series = named(expression).len() + usize::from(expression.contains("up{"));
            let chosen = expression.matches("{job=\"$job\", instance=~\"$instance\"");
            assert!(series > 0, "{title}: {expression}");
            assert_eq!(chosen.count(), series, "{title}: {expression}");
        }
        assert!(!refs.is_empty(), "{title}");
    }
    let variables = list(&page["templating"]["list"]);
    let names: Vec<_> = variables
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, ["datasource", "job", "instance"]);
}
