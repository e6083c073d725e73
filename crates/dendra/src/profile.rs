//! `dendra profile`: where the threads of a running node spend their time, as a file.
//!
//! ```text
//! GET admin/debug/profile/{cpu,wall}?seconds=N&format=svg     -o x.svg
//!                                             format=folded   any other file, or stdout
//! ```
//!
//! Invariants
//! 1. The file is replaced only after the whole profile was received.
//!
//! Not here: taking it (crate `server`), drawing it (crate `flame`).
//! See: docs/cli.md, docs/lab/profiles.md.

use crate::cli::Profile;
use crate::client::{Ask, Base, Client};
use crate::console::Console;
use crate::exit::{Exit, Failure, Outcome};
use crate::ops;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use std::path::Path;

/// Naming what was sampled takes a moment after the last sample.
const NAMING_MS: u64 = 20_000;

/// Takes one profile.
pub(crate) async fn profile(args: &Profile, console: Console) -> Outcome {
    let base = Base::parse(&args.url).map_err(Failure::usage)?;
    let client = Client::new(base, args.seconds * 1000 + NAMING_MS, console);
    let kind = match (args.cpu, args.wall) {
        (_, true) => "wall",
        (true | false, false) => "cpu",
    };
    let ask = Ask {
        method: Method::GET,
        path: path(kind, args.seconds, args.out.as_deref()),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    console.note(&format!(
        "sampling {} for {} s",
        client.place(),
        args.seconds
    ));
    let answer = client
        .send(&ask)
        .await
        .map_err(|trouble| trouble.failure(client.place()))?;
    let sentence = String::from_utf8_lossy(&answer.body).trim().to_owned();
    match answer.status {
        StatusCode::OK => {}
        StatusCode::CONFLICT => return Err(Failure::new(Exit::UNAVAILABLE, sentence)),
        StatusCode::NOT_FOUND if sentence.is_empty() => {
            return Err(Failure::usage(format!(
                "{} has no profiles; give the URL of the admin port (its log says `admin plane`)",
                client.place()
            )));
        }
        status => {
            return Err(Failure::new(
                Exit::FAILURE,
                format!("{} answered {status}: {sentence}", client.place()),
            ));
        }
    }
    match &args.out {
        Some(path) => {
            ops::write_whole(path, &answer.body)?;
            console.note(&format!("the profile is in {}", path.display()));
        }
        None => ops::print(&answer.body)?,
    }
    Ok(Exit::OK)
}

/// What to ask for: a drawing for a file that is called one, text for anything else.
fn path(kind: &str, seconds: u64, out: Option<&Path>) -> String {
    let is_drawing = out.is_some_and(|out| out.extension().is_some_and(|end| end == "svg"));
    let format = if is_drawing { "svg" } else { "folded" };
    format!("/debug/profile/{kind}?seconds={seconds}&format={format}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_called_svg_gets_a_drawing_and_all_others_text() {
        let ask = |out: Option<&str>| path("cpu", 3, out.map(Path::new));
        assert_eq!(
            ask(Some("a/cpu.svg")),
            "/debug/profile/cpu?seconds=3&format=svg"
        );
        assert_eq!(
            ask(Some("cpu.folded")),
            "/debug/profile/cpu?seconds=3&format=folded"
        );
        assert_eq!(ask(None), "/debug/profile/cpu?seconds=3&format=folded");
    }
}
