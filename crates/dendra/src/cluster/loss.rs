//! A member's page about a loss that an operator may accept, for people.
//!
//! Invariants
//! 1. It names all that is lost, and the line that accepts it. Nothing is accepted here.
//!
//! Not here: asking (`mod.rs`), which loss a repair needs (crate `node`, `repair/loss.rs`).
//! See: docs/operating.md.

use super::cells::{plain, table, word};
use serde_json::Value;
use std::fmt::Write;

/// The records that are lost when damage is repaired without the lost members.
pub(super) fn loss(page: &Value) -> Option<String> {
    let list = |field: &str| {
        let words = page[field].as_array()?.iter().map(word);
        Some(words.collect::<Vec<_>>().join(", "))
    };
    let (member, lost) = (word(&page["member"]), list("lost")?);
    if page["epochs"].is_object() {
        return lost_epochs(page, &member, &lost);
    }
    let ranges = page["ranges"].as_array()?;
    let mut text = format!(
        "{member} has damaged blocks, and their repair waits for {lost}: lost and on the way out of \
         the cluster, or damaged between the same keys. They can be filled from {} alone.\n\n",
        list("sources")?
    );
    let mut rows = vec![["of", "from key", "to key"].map(str::to_owned)];
    for range in ranges {
        let from = bound(range, "from")?;
        rows.push([word(&range["of"]), from, bound(range, "to")?]);
    }
    table(&mut text, &rows);
    if let Some(further) = page["further_blocks"]
        .as_u64()
        .filter(|further| *further > 0)
    {
        writeln!(
            text,
            "{further} further blocks: give this order again for them"
        )
        .ok()?;
    }
    let partitions = page["partitions"].as_array()?;
    let partitions: Option<Vec<u64>> = partitions.iter().map(Value::as_u64).collect();
    let (partitions, of) = (partitions?, page["of_partitions"].as_u64()?);
    let (count, runs) = (partitions.len(), runs(&partitions));
    writeln!(text, "\nin {count} of {of} partitions: {runs}").ok()?;
    writeln!(text, "\n{}", word(&page["means"])).ok()?;
    writeln!(
        text,
        "\nIf {lost} is lost, and its folder still exists, start it instead: then nothing is lost.\n\
         nothing has happened yet; accept the loss at the same admin port with\n  \
         dendra cluster accept-loss {member} --confirm {}",
        word(&page["confirm"])
    )
    .ok()?;
    Some(text)
}

/// The conditions under which a lone member goes on after epochs that it cannot read.
fn lost_epochs(page: &Value, member: &str, lost: &str) -> Option<String> {
    let (first, last) = (
        page["epochs"]["first"].as_u64()?,
        page["epochs"]["last"].as_u64()?,
    );
    let others = if lost.is_empty() {
        "a member of one of these epochs"
    } else {
        lost
    };
    Some(format!(
        "{member} cannot read epochs {first} to {last} of the cluster, and answers no client until it \
         knows them.\n\n{}\n\n\
         Is {others} still a member? Start it instead: it knows these epochs.\n\
         nothing has happened yet; accept the loss at the same admin port with\n  \
         dendra cluster accept-loss {member} --confirm {}\n",
        word(&page["means"]),
        word(&page["confirm"])
    ))
}

/// A bound of a range of keys: text, or bytes as base64; `-` = there is none.
fn bound(range: &Value, name: &str) -> Option<String> {
    let bytes = &range[format!("{name}_base64")];
    match (&range[name], bytes) {
        (_, Value::String(bytes)) => Some(format!("base64 {}", plain(bytes))),
        (Value::String(text), _) if text.chars().all(|c| !c.is_control()) => {
            Some(word(&range[name]))
        }
        (Value::String(text), _) => Some(text.escape_debug().to_string()),
        (Value::Null, _) => Some("-".to_owned()),
        _ => None,
    }
}

/// Rising numbers as runs: `0-12, 14`.
fn runs(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match (run[0], run[run.len() - 1]) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// The answer to a confirmed loss.
pub(super) fn accepted_loss(page: &Value) -> Option<String> {
    page["epoch"].as_u64()?;
    Some(
        "done: a repair goes on with the owners that are left, at the earliest a minute after the \
         damage was found, and dendra cluster status --follow shows the plan; a member that lacked \
         epochs serves now\n"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_loss_names_ranges_partitions_and_the_line_that_accepts_it() {
        let mut page = json!({
            "confirm": "00000000000000ab", "epoch": 7, "member": "http://h3:1",
            "lost": ["http://h2:1"], "sources": ["http://h1:1", "http://h4:1"],
            "partitions": [0, 1, 2, 7, 9, 10], "of_partitions": 256, "further_blocks": 2,
            "means": "Some writes\u{7} are gone.",
            "ranges": [
                { "of": "records", "from": "a", "to_base64": "/w==" },
                { "of": "conditional-writes", "from": "k\u{1b}", "to": null },
            ],
        });
        let text = loss(&page).expect("a loss");
        for part in [
            "http://h3:1 has damaged blocks, and their repair waits for http://h2:1:",
            "filled from http://h1:1, http://h4:1 alone",
            "records             a         base64 /w==\n",
            "conditional-writes  k\\u{1b}   -\n",
            "\n2 further blocks: ",
            "\nin 6 of 256 partitions: 0-2, 7, 9-10\n\nSome writes are gone.\n",
            "\n  dendra cluster accept-loss http://h3:1 --confirm 00000000000000ab\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let mut of_epochs = page.clone();
        of_epochs["epochs"] = json!({ "first": 3, "last": 8 });
        let text = loss(&of_epochs).expect("a loss");
        for part in [
            "http://h3:1 cannot read epochs 3 to 8 of the cluster,",
            "\n\nSome writes are gone.\n\nIs http://h2:1 still a member? Start it instead:",
            "\n  dendra cluster accept-loss http://h3:1 --confirm 00000000000000ab\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        page["ranges"][0]["from"] = json!(3);
        assert_eq!(loss(&page), None, "of another shape");
    }
}
