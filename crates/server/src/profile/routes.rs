//! `/debug/profile/{cpu|wall}`: profiles over the admin port.
//!
//! ```text
//! GET /debug/profile/cpu?seconds=10&format=svg     image/svg+xml, interactive
//! GET /debug/profile/wall?seconds=10               text/plain, folded stacks
//! 400 unusable parameter   404 unknown profile   409 another profile is being taken   500 the system refused
//! ```
//!
//! Invariants
//! 1. The admin plane goes on answering while a profile is taken.
//! 2. Every refusal is one sentence that names the way out.
//!
//! Not here: taking it (`mod.rs`), drawing it (`crates/flame`).
//! See: docs/api.md, section "Admin plane".

use super::{Clock, Profile, Refused, capture};
use crate::limits::PROFILE_SECONDS_MAX;
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dendra_flame::Look;
use std::collections::HashMap;
use std::time::Duration;

/// What one may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Folded,
    Svg,
}

fn refusal(status: StatusCode, sentence: impl Into<String>) -> Response {
    (status, format!("{}\n", sentence.into())).into_response()
}

fn parameters(query: &HashMap<String, String>) -> Result<(u64, Format), String> {
    let mut seconds = 10;
    let mut format = Format::Folded;
    for (name, value) in query {
        match (name.as_str(), value.as_str()) {
            ("seconds", value) => {
                let given = value.parse::<u64>().ok();
                seconds = given
                    .filter(|seconds| (1..=PROFILE_SECONDS_MAX).contains(seconds))
                    .ok_or(format!(
                        "seconds is a whole number from 1 to {PROFILE_SECONDS_MAX}."
                    ))?;
            }
            ("format", "folded") => format = Format::Folded,
            ("format", "svg") => format = Format::Svg,
            ("format", _) => return Err("format is folded or svg.".to_owned()),
            _ => {
                return Err(
                    "A profile has the parameters seconds and format, and no other.".to_owned(),
                );
            }
        }
    }
    Ok((seconds, format))
}

/// Takes a profile and answers with it.
pub(crate) async fn profile(
    Path(kind): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let clock = match kind.as_str() {
        "cpu" => Clock::Cpu,
        "wall" => Clock::Wall,
        _ => {
            return refusal(
                StatusCode::NOT_FOUND,
                "This node has the profiles cpu and wall.",
            );
        }
    };
    let (seconds, format) = match parameters(&query) {
        Ok(parameters) => parameters,
        Err(sentence) => return refusal(StatusCode::BAD_REQUEST, sentence),
    };
    let taken = tokio::task::spawn_blocking(move || {
        let profile = capture(clock, Duration::from_secs(seconds))?;
        Ok::<_, Refused>((written(&profile, &kind, seconds, format), profile.lost))
    });
    match taken.await {
        Ok(Ok((text, lost))) => {
            if lost > 0 {
                tracing::warn!(lost, "samples of a profile found no room");
            }
            let kind = match format {
                Format::Folded => "text/plain; charset=utf-8",
                Format::Svg => "image/svg+xml",
            };
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Ok(Err(refused @ Refused::Busy)) => refusal(StatusCode::CONFLICT, refused.to_string()),
        Ok(Err(refused)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, refused.to_string()),
        Err(error) => {
            tracing::error!(%error, "a profile ended by a panic");
            refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The profile failed; the log says why.",
            )
        }
    }
}

fn written(profile: &Profile, kind: &str, seconds: u64, format: Format) -> String {
    match format {
        Format::Folded => profile.stacks.to_folded(),
        Format::Svg => {
            let title = format!("{kind} profile of {seconds} s");
            let look = Look {
                id: "profile",
                title: &title,
                unit: "samples",
            };
            dendra_flame::standalone(&dendra_flame::graph(&profile.stacks, look))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn parameters_have_defaults_and_bounds() {
        assert_eq!(parameters(&query(&[])), Ok((10, Format::Folded)));
        let asked = query(&[("seconds", "60"), ("format", "svg")]);
        assert_eq!(parameters(&asked), Ok((60, Format::Svg)));
        for bad in [
            ("seconds", "0"),
            ("seconds", "61"),
            ("seconds", "x"),
            ("format", "png"),
            ("hz", "9"),
        ] {
            assert!(parameters(&query(&[bad])).is_err(), "{bad:?}");
        }
    }
}
