//! `dendra get --explain`: how a read is found, as a small tree.
//!
//! ```text
//! the node's document ─► Branch: a line and what belongs to it ─► text; --json: the document itself
//! ```
//!
//! Invariants
//! 1. Text of a node is shown without control characters: it cannot steer the terminal.
//! 2. A field that is not there is left out, so that a later node's document is shown, too.
//!
//! Not here: the request (`ops.rs`).
//! See: docs/explain.md.

use serde_json::Value;

/// A line, and the lines that belong to it.
struct Branch {
    line: String,
    below: Vec<Branch>,
}

impl Branch {
    fn leaf(line: String) -> Branch {
        let below = Vec::new();
        Branch { line, below }
    }

    fn draw(&self, mark: &str, indent: &str, out: &mut String) {
        let shown = self
            .line
            .chars()
            .map(|c| if c.is_control() { '?' } else { c });
        out.push_str(mark);
        out.extend(shown);
        out.push('\n');
        for (n, branch) in self.below.iter().enumerate() {
            let (branch_mark, rest) = if n + 1 == self.below.len() {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let of_branch = format!("{indent}{branch_mark}");
            let below = format!("{indent}{rest}");
            branch.draw(&of_branch, &below, out);
        }
    }
}

/// The tree of a node's document.
pub(crate) fn tree(page: &Value) -> String {
    let line = format!(
        "{}: {}, {}, in {} us",
        word(&page["id"]),
        word(&page["outcome"]),
        record(&page["record"]),
        word(&page["took_us"])
    );
    let mut below = Vec::new();
    if !page["cluster"].is_null() {
        below.push(cluster(&page["cluster"]));
    }
    if page["engine"].is_null() {
        below.push(Branch::leaf("engine: this member is no owner".to_owned()));
    } else {
        below.push(engine(&page["engine"]));
    }
    let mut out = String::new();
    Branch { line, below }.draw("", "", &mut out);
    out
}

fn cluster(page: &Value) -> Branch {
    let line = format!(
        "coordinator {}: {} of {} answers needed, write-back {}, {} us",
        member(&page["coordinator"]),
        word(&page["ack"]),
        word(&page["from"]),
        word(&page["write_back"]),
        word(&page["took_us"])
    );
    Branch {
        line,
        below: each(&page["owners"], |owner| Branch::leaf(of_owner(owner))),
    }
}

fn of_owner(owner: &Value) -> String {
    let mut line = format!("owner {}: ", member(owner));
    line += &match owner["answer"].as_str() {
        Some("copy") => record(&owner["record"]),
        Some("refused") => format!("refused, it {}", word(&owner["why"])),
        _ => word(&owner["answer"]),
    };
    if !owner["took_us"].is_null() {
        line += &format!(" in {} us", word(&owner["took_us"]));
    }
    if owner["counts"] == true {
        line += ", counts";
    }
    match owner["write_back"].as_str() {
        None | Some("none") => {}
        Some(how) => line += &format!(", written back ({how})"),
    }
    line
}

fn engine(page: &Value) -> Branch {
    let found_in = &page["found_in"];
    let place = match (&found_in["memtable"], &found_in["table"]) {
        (Value::Null, Value::Null) => "nothing found".to_owned(),
        (Value::Null, table) => {
            format!(
                "found in table {} of level {}",
                word(table),
                word(&found_in["level"])
            )
        }
        (memtable, _) => format!("found in memtable {}", word(memtable)),
    };
    let line = format!(
        "engine: {}, {place}, {} bytes from files, {} us",
        word(&page["end"]),
        word(&page["file_bytes"]),
        word(&page["took_us"])
    );
    let mut below = each(&page["memtables"], |memtable| {
        let (name, content) = (word(&memtable["memtable"]), record(&memtable["record"]));
        Branch::leaf(format!("memtable {name}: {content}"))
    });
    below.extend(each(&page["levels"], |level| {
        let mut tables = each(&page["tables"], |table| {
            (table["level"] == level["level"]).then(|| Branch::leaf(of_table(table)))
        });
        Branch {
            line: format!(
                "level {}: {} tables, {} in range",
                word(&level["level"]),
                word(&level["tables"]),
                word(&level["in_range"])
            ),
            below: tables.drain(..).flatten().collect(),
        }
    }));
    if page["tables_left_out"]
        .as_u64()
        .is_some_and(|count| count > 0)
    {
        let count = word(&page["tables_left_out"]);
        below.push(Branch::leaf(format!("{count} more tables are not listed")));
    }
    Branch { line, below }
}

fn of_table(table: &Value) -> String {
    let blocks = each(&table["blocks"], |block| {
        let (part, from) = (word(&block["part"]), word(&block["from"]));
        format!(", {part} from {from} ({} bytes)", word(&block["bytes"]))
    });
    format!(
        "table {}: filter {}{}: {}",
        word(&table["table"]),
        word(&table["filter"]),
        blocks.concat(),
        word(&table["answer"])
    )
}

fn record(record: &Value) -> String {
    if record.is_null() {
        return "no record".to_owned();
    }
    let (kind, version) = (word(&record["kind"]), word(&record["version"]));
    let mut text = format!("{kind} {version} of {} bytes", word(&record["value_bytes"]));
    if !record["expires_ms"].is_null() {
        text += &format!(", ends at {} ms", word(&record["expires_ms"]));
    }
    text
}

fn member(page: &Value) -> String {
    let own = if page["own"] == true {
        " (this one)"
    } else {
        ""
    };
    format!("{} {}{own}", word(&page["member"]), word(&page["url"]))
}

fn each<T>(list: &Value, what: impl FnMut(&Value) -> T) -> Vec<T> {
    list.as_array().into_iter().flatten().map(what).collect()
}

/// A string or a number as it stands; `-` where there is none.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
