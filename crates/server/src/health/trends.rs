//! Numbers that tell something by their change: refusals, hints, the room on the disk.
//!
//! ```text
//! refused             every  5 s, of a minute    more than the oldest: refused in that time
//! hints               every 20 s, of a minute    more with each sample: they grow
//! room on the disk    every 10 min, of a day     the rate at which it goes
//! ```
//!
//! Invariants
//! 1. Samples are counted, not timed: a look that comes late makes a window longer, never larger.
//!
//! Not here: what is made of a trend (`facts.rs`).

use std::collections::VecDeque;

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;

/// Numbers of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthCounts {
    /// Requests that were refused since the start, by cause.
    pub(crate) refused: Vec<(&'static str, u64)>,
    pub(crate) hint_bytes: u64,
    /// Hints for which there was no room, since the start.
    pub(crate) hints_dropped: u64,
    /// Room on the disk; 0 = it was not looked at yet.
    pub(crate) free_bytes: u64,
}

/// How they have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthTrends {
    /// Requests that were refused in the last `refused_s` seconds, by cause; causes without one are
    /// left out.
    pub(crate) refused: Vec<(&'static str, u64)>,
    pub(crate) refused_s: u64,
    /// Bytes of hints that came in the last minute; 0 = they do not grow.
    pub(crate) hint_bytes_more: u64,
    /// Hints that were dropped in the last minute.
    pub(crate) hints_dropped: u64,
    /// Bytes of room that go each hour; `None` = not known yet, or none goes.
    pub(crate) bytes_per_hour: Option<u64>,
    /// The length of the time that `bytes_per_hour` was measured in.
    pub(crate) hours: u64,
}

/// The newest samples of one number.
#[derive(Debug)]
struct TrendWindow<Sample> {
    every_us: u64,
    samples_max: usize,
    samples: VecDeque<(u64, Sample)>,
}

impl<Sample> TrendWindow<Sample> {
    fn new(every_us: u64, samples_max: usize) -> TrendWindow<Sample> {
        TrendWindow {
            every_us,
            samples_max,
            samples: VecDeque::new(),
        }
    }

    fn note(&mut self, now_us: u64, sample: Sample) {
        let newest = self.samples.back();
        if newest.is_some_and(|(at_us, _)| now_us < at_us + self.every_us) {
            return;
        }
        if self.samples.len() == self.samples_max {
            self.samples.pop_front();
        }
        self.samples.push_back((now_us, sample));
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct TrendWindows {
    refused: TrendWindow<Vec<(&'static str, u64)>>,
    /// Bytes, and how many were dropped.
    hints: TrendWindow<(u64, u64)>,
    free: TrendWindow<u64>,
}

impl Default for TrendWindows {
    fn default() -> TrendWindows {
        TrendWindows {
            refused: TrendWindow::new(5 * SECOND_US, 12),
            hints: TrendWindow::new(20 * SECOND_US, 3),
            free: TrendWindow::new(HOUR_US / 6, 144),
        }
    }
}

impl TrendWindows {
    pub(super) fn note(&mut self, now_us: u64, counts: HealthCounts) {
        self.refused.note(now_us, counts.refused);
        self.hints
            .note(now_us, (counts.hint_bytes, counts.hints_dropped));
        if counts.free_bytes > 0 {
            self.free.note(now_us, counts.free_bytes);
        }
    }

    pub(super) fn trends(&self, now_us: u64, counts: &HealthCounts) -> HealthTrends {
        let mut trends = HealthTrends::default();
        if let Some((at_us, before)) = self.refused.samples.front() {
            let more = counts.refused.iter().zip(before);
            let more = more.map(|((cause, now), (_, then))| (*cause, now.saturating_sub(*then)));
            trends.refused = more.filter(|(_, more)| *more > 0).collect();
            trends.refused_s = now_us.saturating_sub(*at_us) / SECOND_US;
        }
        if let Some((_, (before, dropped))) = self.hints.samples.front() {
            let all = self.hints.samples.iter().map(|(_, (bytes, _))| *bytes);
            let all: Vec<u64> = all.chain([counts.hint_bytes]).collect();
            if all.len() > self.hints.samples_max && all.is_sorted_by(|a, b| a < b) {
                trends.hint_bytes_more = counts.hint_bytes - before;
            }
            trends.hints_dropped = counts.hints_dropped.saturating_sub(*dropped);
        }
        if let Some((at_us, before)) = self.free.samples.front()
            && counts.free_bytes > 0
            && now_us.saturating_sub(*at_us) >= HOUR_US
        {
            let (gone, passed_us) = (before.saturating_sub(counts.free_bytes), now_us - at_us);
            let per_hour = u128::from(gone) * u128::from(HOUR_US) / u128::from(passed_us);
            trends.bytes_per_hour = u64::try_from(per_hour).ok().filter(|bytes| *bytes > 0);
            trends.hours = passed_us / HOUR_US;
        }
        trends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(refused: u64, hint_bytes: u64, free_bytes: u64) -> HealthCounts {
        HealthCounts {
            refused: vec![("delay", refused), ("engine", 7)],
            hint_bytes,
            hints_dropped: 0,
            free_bytes,
        }
    }

    #[test]
    fn refusals_of_the_last_minute_count_and_older_ones_do_not() {
        let mut windows = TrendWindows::default();
        let at = |s: u64| s * SECOND_US;
        for s in 0..30 {
            windows.note(at(s), counts(3, 0, 0));
        }
        let trends = windows.trends(at(30), &counts(5, 0, 0));
        assert_eq!((trends.refused, trends.refused_s), (vec![("delay", 2)], 30));
        for s in 30..100 {
            windows.note(at(s), counts(5, 0, 0));
        }
        assert!(windows.trends(at(100), &counts(5, 0, 0)).refused.is_empty());
    }

    #[test]
    fn hints_grow_when_each_sample_of_a_minute_has_more() {
        let at = |s: u64| s * SECOND_US;
        let grow = |bytes: [u64; 4]| {
            let mut windows = TrendWindows::default();
            for (n, bytes) in (0..).zip(&bytes[..3]) {
                windows.note(at(20 * n), counts(0, *bytes, 0));
            }
            let trends = windows.trends(at(60), &counts(0, bytes[3], 0));
            trends.hint_bytes_more
        };
        assert_eq!(grow([1, 2, 3, 10]), 9);
        assert_eq!(grow([1, 2, 2, 10]), 0, "they rested");
        assert_eq!(grow([5, 4, 6, 10]), 0, "some were delivered");
    }

    #[test]
    fn room_goes_at_the_rate_of_the_last_day_once_an_hour_is_known() {
        let mut windows = TrendWindows::default();
        let minutes = |m: u64| m * 60 * SECOND_US;
        let free = |m: u64| 1_000_000 - 100 * m;
        for m in 0..59 {
            windows.note(minutes(m), counts(0, 0, free(m)));
        }
        let rate = |windows: &TrendWindows, m: u64| {
            let trends = windows.trends(minutes(m), &counts(0, 0, free(m)));
            (trends.bytes_per_hour, trends.hours)
        };
        assert_eq!(rate(&windows, 59), (None, 0));
        assert_eq!(rate(&windows, 60), (Some(6_000), 1));
        for m in 60..60 * 48 {
            windows.note(minutes(m), counts(0, 0, free(m)));
        }
        assert_eq!(rate(&windows, 60 * 48), (Some(6_000), 24));
        let more = windows.trends(minutes(60 * 48), &counts(0, 0, 2_000_000));
        assert_eq!(more.bytes_per_hour, None, "room came");
    }
}
