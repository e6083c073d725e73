//! The folder of the patches, and whether all of them apply.
//!
//! Invariants
//! 1. Two patches never have one number.
//!
//! Not here: one patch (`patch.rs`), the sources that all of them make (`merge.rs`).

use super::merge::{self, Change, Merged};
use super::patch::Plant;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the patches are.
pub(crate) const FOLDER: &str = "crates/sim/planted";

/// The patches in the order of their numbers.
pub(super) fn plants(texts: impl Iterator<Item = (String, String)>) -> Result<Vec<Plant>, String> {
    let plants: Result<Vec<Plant>, String> = texts
        .map(|(name, text)| Plant::parse(&name, &text))
        .collect();
    let plants = plants?;
    let mut numbers: BTreeMap<u32, &str> = BTreeMap::new();
    for plant in &plants {
        if let Some(other) = numbers.insert(plant.number, &plant.name) {
            return Err(format!("{} and {other} have one number", plant.name));
        }
    }
    Ok(plants)
}

/// The names and texts of the patches in the tree at `root`.
pub(super) fn read(root: &Path) -> Result<Vec<(String, String)>, String> {
    let folder = root.join(FOLDER);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut texts = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(name) = name.strip_suffix(".patch") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            texts.push((name.to_owned(), text));
        }
    }
    texts.sort();
    Ok(texts)
}

/// The reasons why patches do not apply to the sources that `source_of` knows; empty when all do.
pub(crate) fn stale(
    texts: impl Iterator<Item = (String, String)>,
    source_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    match plants(texts) {
        Err(why) => vec![why],
        Ok(plants) => merge(&plants, source_of).err().unwrap_or_default(),
    }
}

/// The sources with all `plants` in them; or every reason why one does not fit.
pub(super) fn merge(
    plants: &[Plant],
    source_of: impl Fn(&str) -> Option<String>,
) -> Result<Merged, Vec<String>> {
    let mut changes = Vec::new();
    let mut reasons = Vec::new();
    for plant in plants {
        for file in &plant.files {
            let text = source_of(&file.path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            match file.edits(&lines) {
                Ok(edits) => changes.push(Change {
                    number: plant.number,
                    path: file.path.clone(),
                    edits,
                }),
                Err(why) => reasons.push((plant.number, format!("{}: {why}", file.path))),
            }
        }
    }
    let (merged, unfit) = merge::merge(changes, source_of);
    reasons.extend(unfit);
    if reasons.is_empty() {
        return Ok(merged);
    }
    let sentence = |(number, why): (u32, String)| {
        let plant = plants.iter().find(|plant| plant.number == number);
        let name = plant.map_or("", |plant| plant.name.as_str());
        format!("{name} no longer applies to {why}")
    };
    Err(reasons.into_iter().map(sentence).collect())
}
