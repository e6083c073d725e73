//! `/debug/profile/{cpu|wall|alloc|lock}`: profiles over the admin port.
//!
//! ```text
//! GET /debug/profile/cpu?seconds=10&format=svg     image/svg+xml, interactive
//! GET /debug/profile/wall?seconds=10               text/plain, folded stacks
//! GET /debug/profile/alloc?unit=objects            the unit, where there is a choice
//! 400 unusable parameter   404 unknown profile   409 another profile is being taken   500 the system refused
//! 501 this program cannot take it
//! ```
//!
//! Invariants
//! 1. The admin plane goes on answering while a profile is taken.
//! 2. Every refusal is one sentence that names the way out.
//!
//! Not here: taking it (`measure/profile/`), drawing it (`crates/flame`).
//! See: docs/api.md, section "Admin plane".

use crate::admin::numbers;
use crate::limits::PROFILE_SECONDS_MAX;
use crate::measure::profile::{Measure, NoProfile, Profile, Unit, capture};
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dendra_flame::Look;
use std::collections::HashMap;
use std::time::Duration;

/// The formats that a request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileFormat {
    Folded,
    Svg,
}

fn refusal(status: StatusCode, sentence: impl Into<String>) -> Response {
    (status, format!("{}\n", sentence.into())).into_response()
}

/// The parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProfileParameters {
    seconds: u64,
    format: ProfileFormat,
    unit: Unit,
}

fn parameters(
    measure: Measure,
    query: &HashMap<String, String>,
) -> Result<ProfileParameters, String> {
    let units = measure.units();
    let (mut seconds, mut format, mut unit) = (10, ProfileFormat::Folded, units[0]);
    for (name, value) in query {
        match (name.as_str(), value.as_str()) {
            ("seconds", value) => {
                let given = numbers::whole(value);
                seconds = given
                    .filter(|given| (1..=PROFILE_SECONDS_MAX).contains(given))
                    .ok_or(format!(
                        "seconds is a whole number from 1 to {PROFILE_SECONDS_MAX}."
                    ))?;
            }
            ("format", "folded") => format = ProfileFormat::Folded,
            ("format", "svg") => format = ProfileFormat::Svg,
            ("format", _) => return Err("format is folded or svg.".to_owned()),
            ("unit", value) => {
                let names: Vec<&str> = units.iter().map(|one| one.as_str()).collect();
                let known = units.iter().find(|one| one.as_str() == value);
                unit = *known.ok_or(format!(
                    "unit of a profile {} is {}.",
                    measure.as_str(),
                    names.join(" or ")
                ))?;
            }
            _ => {
                return Err(
                    "A profile has the parameters seconds, format and unit, and no other."
                        .to_owned(),
                );
            }
        }
    }
    Ok(ProfileParameters {
        seconds,
        format,
        unit,
    })
}

/// Takes a profile and answers with it.
pub(crate) async fn profile(
    Path(kind): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let Some(measure) = Measure::of(&kind) else {
        let names = Measure::ALL.map(Measure::as_str).join(", ");
        let sentence = format!("This node has the profiles {names}.");
        return refusal(StatusCode::NOT_FOUND, sentence);
    };
    let asked = match parameters(measure, &query) {
        Ok(asked) => asked,
        Err(sentence) => return refusal(StatusCode::BAD_REQUEST, sentence),
    };
    let taken = tokio::task::spawn_blocking(move || {
        let profile = capture(measure, asked.unit, Duration::from_secs(asked.seconds))?;
        Ok::<_, NoProfile>((written(&profile, measure, asked), profile.lost))
    });
    match taken.await {
        Ok(Ok((text, lost))) => {
            if lost > 0 {
                tracing::warn!(lost, "samples of a profile found no room");
            }
            let content_type = match asked.format {
                ProfileFormat::Folded => "text/plain; charset=utf-8",
                ProfileFormat::Svg => "image/svg+xml",
            };
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Ok(Err(refused @ NoProfile::Busy)) => refusal(StatusCode::CONFLICT, refused.to_string()),
        Ok(Err(refused @ NoProfile::Unwatched)) => {
            refusal(StatusCode::NOT_IMPLEMENTED, refused.to_string())
        }
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

fn written(profile: &Profile, measure: Measure, asked: ProfileParameters) -> String {
    match asked.format {
        ProfileFormat::Folded => profile.stacks.to_folded(),
        ProfileFormat::Svg => {
            let title = format!("{} profile of {} s", measure.as_str(), asked.seconds);
            let look = Look {
                id: "profile",
                title: &title,
                unit: match asked.unit {
                    Unit::Us => "µs",
                    unit => unit.as_str(),
                },
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
        let asked = |seconds, format, unit| {
            Ok(ProfileParameters {
                seconds,
                format,
                unit,
            })
        };
        let cpu = |pairs: &[_]| parameters(Measure::Cpu, &query(pairs));
        let alloc = |pairs: &[_]| parameters(Measure::Alloc, &query(pairs));
        assert_eq!(cpu(&[]), asked(10, ProfileFormat::Folded, Unit::Samples));
        assert_eq!(
            cpu(&[("seconds", "60"), ("format", "svg")]),
            asked(60, ProfileFormat::Svg, Unit::Samples)
        );
        assert_eq!(alloc(&[]), asked(10, ProfileFormat::Folded, Unit::Bytes));
        assert_eq!(
            alloc(&[("unit", "objects")]),
            asked(10, ProfileFormat::Folded, Unit::Objects)
        );
        let refused = alloc(&[("unit", "samples")]);
        assert_eq!(
            refused,
            Err("unit of a profile alloc is bytes or objects.".to_owned())
        );
        for bad in [
            ("seconds", "0"),
            ("seconds", "61"),
            ("seconds", "x"),
            ("format", "png"),
            ("hz", "9"),
            ("unit", "bytes"),
        ] {
            assert!(cpu(&[bad]).is_err(), "{bad:?}");
        }
    }
}
