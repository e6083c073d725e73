//! Values of the flags of `dendra bench`: text to the lab's own types, at the edge.
//!
//! ```text
//! --mix get=0.8,put=0.2 ─► weights      --distribution zipfian:0.8 ─► Distribution
//! --value-bytes 10..1KiB ─► Sizes       --timeout 500ms ─► Duration      …
//! ```
//!
//! Invariants
//! 1. An error is a clause that says how the value is written; clap names flag and value in front.
//!
//! Not here: which values go together (`dendra_lab::experiment`), files (`bench.rs`).
//! See: docs/cli.md.

use crate::config::units::parse_bytes;
use dendra_base::Workload;
use dendra_base::workload::{Distribution, OPERATIONS, RequestKind, Sizes};
use dendra_lab::limits::VALUE_BYTES_MAX;
use dendra_lab::schedule::parse_seconds;
use dendra_lab::template;
use std::time::Duration;

/// The weight of each operation, by its number.
pub(crate) type Mix = [f64; OPERATIONS];

/// `--url-template`: a path with places, and the target when it is a whole URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlTemplate {
    /// `http://HOST:PORT`.
    pub(crate) target: Option<String>,
    pub(crate) path: String,
}

pub(super) fn workload(text: &str) -> Result<String, String> {
    if Workload::NAMES.contains(&text) {
        return Ok(text.to_owned());
    }
    let names = Workload::NAMES.join(", ");
    Err(format!("it is not known; use one of {names}"))
}

pub(super) fn mix(text: &str) -> Result<Mix, String> {
    let mut mix = [0.0; OPERATIONS];
    for part in text.split(',') {
        let parsed = part.split_once('=').and_then(|(name, weight)| {
            let weight: f64 = weight.trim().parse().ok()?;
            Some((RequestKind::named(name.trim())?, weight))
        });
        let Some((operation, weight)) = parsed else {
            return Err(format!(
                "{part:?} is no OPERATION=WEIGHT; write get=0.8,put=0.2"
            ));
        };
        mix[operation as usize] = weight;
    }
    Ok(mix)
}

pub(super) fn distribution(text: &str) -> Result<Distribution, String> {
    let parse = || {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let exponent = || rest.map_or(Some(0.99), |rest| rest.parse().ok());
        match name {
            "uniform" => Some(Distribution::Uniform),
            "sequential" => Some(Distribution::Sequential),
            "zipfian" => exponent().map(|exponent| Distribution::Zipfian { exponent }),
            "latest" => exponent().map(|exponent| Distribution::Latest { exponent }),
            "hotspot" => {
                let (keys, requests) = rest.unwrap_or("0.2,0.8").split_once(',')?;
                Some(Distribution::Hotspot {
                    keys: keys.parse().ok()?,
                    requests: requests.parse().ok()?,
                })
            }
            _ => None,
        }
    };
    parse().ok_or_else(|| {
        "it is not known; write uniform, zipfian, zipfian:0.8, latest, hotspot:0.2,0.8 or sequential"
            .to_owned()
    })
}

pub(super) fn sizes(text: &str) -> Result<Sizes, String> {
    let bytes = |part: &str| u32::try_from(parse_bytes(part).ok()?).ok();
    let parse = || {
        if let Some(rest) = text.strip_prefix("lognormal:") {
            let mut parts = rest.split(',');
            let median = bytes(parts.next()?)?;
            let sigma = parts.next()?.parse().ok()?;
            let max = bytes(parts.next()?)?;
            return Some(Sizes::LogNormal { median, sigma, max });
        }
        match text.split_once("..") {
            Some((min, max)) => Some(Sizes::Uniform {
                min: bytes(min)?,
                max: bytes(max)?,
            }),
            None => bytes(text).map(Sizes::Fixed),
        }
    };
    match parse() {
        None => {
            Err("it is no size; write 100, 4KiB, 100..4KiB or lognormal:100,1.5,64KiB".to_owned())
        }
        Some(sizes) if sizes.max() > VALUE_BYTES_MAX => {
            Err(format!("a value has at most {VALUE_BYTES_MAX} bytes"))
        }
        Some(sizes) => Ok(sizes),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text).ok_or_else(|| "it is no length of time; write 500ms, 10s or 2m".to_owned())
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let length = seconds(text)?;
    if length > 0.0 {
        Ok(Duration::from_secs_f64(length))
    } else {
        Err("zero would give up everything; write 1ms or more".to_owned())
    }
}

pub(super) fn speed(text: &str) -> Result<f64, String> {
    let speed = text
        .parse()
        .ok()
        .filter(|s: &f64| *s > 0.0 && s.is_finite());
    speed.ok_or_else(|| "it takes a speed above zero; 1 is as recorded".to_owned())
}

pub(super) fn factor(text: &str) -> Result<f64, String> {
    let factor = text.trim().trim_end_matches('x').parse();
    factor.map_err(|_| "it is no factor; write 2x,5x".to_owned())
}

pub(super) fn header(text: &str) -> Result<String, String> {
    let name = text.split_once(':').map_or("", |(name, _)| name.trim());
    if name.eq_ignore_ascii_case("authorization") {
        return Err(
            "other users see flags: put the token into a file and say --token-file, or DENDRA_TOKEN"
                .to_owned(),
        );
    }
    if text.contains(':') && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(text.to_owned());
    }
    Err("it is no header; write Name: value".to_owned())
}

pub(super) fn method(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(text.to_owned());
    }
    Err("it is no method; write one like POST".to_owned())
}

/// A path, or a whole URL, which names the one target.
pub(super) fn url_template(text: &str) -> Result<UrlTemplate, String> {
    if let Some(place) = template::unknown_place(text) {
        let places = template::places();
        return Err(format!(
            "it has {place}, which nothing fills; there are {places}"
        ));
    }
    if let Some(rest) = text.strip_prefix("http://") {
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = if path.is_empty() { "/" } else { path };
        return Ok(UrlTemplate {
            target: Some(format!("http://{authority}")),
            path: path.to_owned(),
        });
    }
    if text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(UrlTemplate {
            target: None,
            path: text.to_owned(),
        });
    }
    Err("it is no path; write one like /kv/{key}".to_owned())
}
