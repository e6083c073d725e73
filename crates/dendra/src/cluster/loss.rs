//! A member's page about a loss that an operator may accept, for people.
//!
//! Invariants
//! 1. It names all that is lost, and the line that accepts it. Nothing is accepted here.
//!
//! Not here: asking (`mod.rs`), which loss a repair needs (crate `node`, `repair/loss.rs`).
//! See: docs/operating.md.

use super::cells::{plain, table, word, words};
use dendra_server::pages::{DonePage, EpochsPage, LossPage, RangePage};

/// The records that are lost when damage is repaired without the lost members.
pub(super) fn loss(page: &LossPage) -> String {
    let (member, lost) = (word(&page.member), words(&page.lost));
    let (means, confirm) = (word(&page.means), word(&page.confirm));
    let accept = format!(
        "nothing has happened yet; accept the loss at the same admin port with\n  \
         dendra cluster accept-loss {member} --confirm {confirm}\n"
    );
    if let Some(epochs) = &page.epochs {
        return lost_epochs(epochs, &member, &lost, &means) + &accept;
    }
    let mut text = format!(
        "{member} has damaged blocks, and their repair waits for {lost}: lost and on the way out of \
         the cluster, or damaged between the same keys. They can be filled from {} alone.\n\n",
        words(&page.sources)
    );
    let mut rows = vec![["of", "from key", "to key"].map(str::to_owned)];
    let ranges = page.ranges.iter();
    rows.extend(ranges.map(|range| [word(&range.of), bound(range, "from"), bound(range, "to")]));
    table(&mut text, &rows);
    if page.further_blocks > 0 {
        let further = page.further_blocks;
        text += &format!("{further} further blocks: give this order again for them\n");
    }
    let (count, of, runs) = (
        page.partitions.len(),
        page.of_partitions,
        runs(&page.partitions),
    );
    text += &format!("\nin {count} of {of} partitions: {runs}\n\n{means}\n\n");
    text += &format!(
        "If {lost} is lost, and its folder still exists, start it instead: then nothing is lost.\n"
    );
    text + &accept
}

/// The conditions under which a lone member goes on after epochs that it cannot read.
fn lost_epochs(epochs: &EpochsPage, member: &str, lost: &str, means: &str) -> String {
    let EpochsPage { first, last } = epochs;
    let others = match lost {
        "" => "a member of one of these epochs",
        lost => lost,
    };
    format!(
        "{member} cannot read epochs {first} to {last} of the cluster, and answers no client until it \
         knows them.\n\n{means}\n\n\
         Is {others} still a member? Start it instead: it knows these epochs.\n"
    )
}

/// A bound of a range of keys: text, or bytes as base64; `-` = there is none.
fn bound(range: &RangePage, name: &str) -> String {
    let of = |field: &str| range.bounds.get(field).cloned().flatten();
    match (of(&format!("{name}_base64")), of(name)) {
        (Some(bytes), _) => format!("base64 {}", plain(&bytes)),
        (None, Some(text)) if text.chars().all(|c| !c.is_control()) => word(&text),
        (None, Some(text)) => text.escape_debug().to_string(),
        (None, None) => "-".to_owned(),
    }
}

/// Rising numbers as runs: `0-12, 14`.
fn runs(numbers: &[u16]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match (run[0], run[run.len() - 1]) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// The answer to a confirmed loss.
pub(super) fn accepted_loss(_: &DonePage) -> String {
    "done: a repair goes on with the owners that are left, at the earliest a minute after the \
     damage was found, and dendra cluster status --follow shows the plan; a member that lacked \
     epochs serves now\n"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    fn shown(page: &Value) -> Option<String> {
        LossPage::deserialize(page).ok().map(|page| loss(&page))
    }

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
        let text = shown(&page).expect("a loss");
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
        let text = shown(&of_epochs).expect("a loss");
        for part in [
            "http://h3:1 cannot read epochs 3 to 8 of the cluster,",
            "\n\nSome writes are gone.\n\nIs http://h2:1 still a member? Start it instead:",
            "\n  dendra cluster accept-loss http://h3:1 --confirm 00000000000000ab\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        page["ranges"][0]["from"] = json!(3);
        assert_eq!(shown(&page), None, "of another shape");
    }
}
