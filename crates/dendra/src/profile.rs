//! `dendra profile`: where the threads of a running node spend time and memory, as a file.
//!
//! ```text
//! GET admin/debug/profile/{cpu,wall,alloc,lock}?seconds=N&format=svg     -o x.svg
//!                                                        format=folded   any other file, or stdout
//! ```
//!
//! Invariants
//! 1. The file is replaced only after the whole profile was received.
//!
//! Not here: taking it (crate `server`), drawing it (crate `flame`).
//! See: docs/cli.md, docs/lab/profiles.md.

use crate::cli::ProfileArgs;
use crate::client::{BaseUrl, Client, Credentials, HttpRequest};
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use bytes::Bytes;
use dendra_wire::meta::MetaBuf;
use hyper::{Method, StatusCode};

/// Naming the functions takes a moment after the last sample.
const NAMING_MS: u64 = 20_000;

/// For an idle node.
const NOTHING: &str = "nothing was sampled: the node had nothing to do. Ask it something meanwhile, with dendra bench for example";

/// Takes one profile.
pub(crate) async fn profile(args: &ProfileArgs, console: Console) -> ExitResult {
    let base = BaseUrl::parse(&args.url).map_err(|bad| bad.of("--url"))?;
    if let Some(path) = &args.out {
        ops::can_write(path)?;
    }
    let access = Credentials::read(&args.access, &base)?;
    let client = Client::new(base, access, args.seconds * 1000 + NAMING_MS, console);
    let ask = HttpRequest {
        meta: MetaBuf::default(),
        method: Method::GET,
        path: path(args),
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
    if answer.body.is_empty() {
        console.note(NOTHING);
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

/// The path to ask: a drawing for a file that is named as one, text for any other.
fn path(args: &ProfileArgs) -> String {
    let kind = match args {
        ProfileArgs { wall: true, .. } => "wall",
        ProfileArgs { alloc: true, .. } => "alloc",
        ProfileArgs { lock: true, .. } => "lock",
        ProfileArgs { .. } => "cpu",
    };
    let out = args.out.as_deref();
    let is_drawing = out.is_some_and(|out| out.extension().is_some_and(|end| end == "svg"));
    let format = if is_drawing { "svg" } else { "folded" };
    let seconds = args.seconds;
    let unit = if args.objects { "&unit=objects" } else { "" };
    format!("/debug/profile/{kind}?seconds={seconds}&format={format}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn asked(line: &str) -> Result<String, clap::Error> {
        let words = "dendra profile http://h:1 --seconds 3".split(' ');
        let cli = Cli::try_parse_from(words.chain(line.split_whitespace()))?;
        let Command::Profile(args) = &cli.command else {
            panic!("{line} is a profile");
        };
        Ok(path(args))
    }

    #[test]
    fn a_file_called_svg_gets_a_drawing_and_all_others_text() {
        let ask = |line| asked(line).expect("a good command line");
        let cpu = "/debug/profile/cpu?seconds=3&format=";
        assert_eq!(ask("-o a/cpu.svg"), format!("{cpu}svg"));
        assert_eq!(ask("--cpu -o cpu.folded"), format!("{cpu}folded"));
        assert_eq!(ask(""), format!("{cpu}folded"));
    }

    #[test]
    fn each_measure_has_its_flag_and_one_is_taken_at_a_time() {
        let ask = |line| asked(line).expect("a good command line");
        let of = |kind| format!("/debug/profile/{kind}?seconds=3&format=folded");
        assert_eq!(ask("--wall"), of("wall"));
        assert_eq!(ask("--alloc"), of("alloc"));
        assert_eq!(ask("--lock"), of("lock"));
        assert_eq!(ask("--alloc --objects"), of("alloc") + "&unit=objects");
        assert!(asked("--cpu --alloc").is_err());
        assert!(asked("--objects").is_err());
        assert!(asked("--lock --objects").is_err());
    }
}
