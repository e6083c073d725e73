//! The histograms of a run, opened.
//!
//! Not here: how they are filled (`recorder.rs`).

use crate::run::{Latency, OpResult, PhaseResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// The whole histogram, nanoseconds; none when there were no times or the text is damaged.
pub(crate) fn open(latency: &Latency) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(latency.hdr.as_bytes()).ok()?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .ok()
        .filter(|histogram: &Histogram<u64>| !histogram.is_empty())
}

/// The sum over all operations of a phase.
pub(crate) fn merged(
    phase: &PhaseResult,
    of: impl Fn(&OpResult) -> &Latency,
) -> Option<Histogram<u64>> {
    let mut parts = phase.ops.iter().filter_map(|op| open(of(op)));
    let mut sum = parts.next()?;
    sum.auto(true);
    for part in parts {
        // An automatic histogram grows; without memory for that a part is better than none.
        if sum.add(part).is_err() {
            break;
        }
    }
    Some(sum)
}

/// Microseconds at a share of the times.
pub(crate) fn at_us(histogram: &Histogram<u64>, share: f64) -> f64 {
    histogram.value_at_quantile(share) as f64 / 1e3
}
