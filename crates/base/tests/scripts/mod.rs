//! Golden scripts: commands, and below each of them everything that happened because of it.
//!
//! ```text
//! # what this shows            stays
//! > a command                  carried out; below it stands what it led to
//! DENDRA_BLESS=1               writes down what happens now
//! ```

use std::fmt::Write;
use std::path::Path;

/// Plays all scripts of a folder of the crate, at least so many, each with a new player. The player
/// carries out a command and appends its effects. Fails if that is not what a script says.
pub(crate) fn check<Player: FnMut(&str, &mut String)>(
    folder: &str,
    scripts_min: usize,
    new_player: impl Fn() -> Player,
) {
    let is_blessing = std::env::var_os("DENDRA_BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).expect("the scripts are there");
    let mut paths: Vec<_> = files
        .map(|file| file.expect("a readable folder").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= scripts_min, "the scripts are there");
    for path in paths {
        let script = std::fs::read_to_string(&path).expect("a readable script");
        let played = play(&script, new_player());
        if is_blessing {
            std::fs::write(&path, &played).expect("a writable script");
        }
        assert!(
            is_blessing || played == script,
            "{}: this happened instead (DENDRA_BLESS=1 writes it down):\n{played}",
            path.display()
        );
    }
}

/// The script with the present effects below each command.
fn play(script: &str, mut player: impl FnMut(&str, &mut String)) -> String {
    let mut out = String::new();
    for line in script.lines() {
        let command = line.strip_prefix("> ");
        if command.is_some() || line.starts_with('#') || line.is_empty() {
            writeln!(out, "{line}").expect("a string takes everything");
        }
        if let Some(command) = command {
            player(command, &mut out);
        }
    }
    out
}
