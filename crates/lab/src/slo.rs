//! A service level objective: the conditions under which a rate counts as sustained.
//!
//! ```text
//! p99<10ms,errors<0.1%      pNN: response time, from the planned instant, of everything that was planned:
//!                           a request that was not done took longer than any bound
//!                           mean, max: the same of requests that were done or given up
//!                           errors: refused, failed, broken, timed out, unsent / planned
//!                           misses: reads of absent keys / ok
//! ```
//!
//! Invariants
//! 1. All terms have to hold.
//!
//! Not here: the search (`search.rs`).
//! See: docs/lab/run-json.md.

use crate::run::PhaseResult;
use crate::schedule::parse_seconds;
use crate::summary::all_operations;
use std::fmt;
use std::str::FromStr;

/// An objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    terms: Vec<Term>,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Term {
    Percentile(f64, f64),
    Mean(f64),
    Max(f64),
    Errors(f64),
    Misses(f64),
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Slo, String> {
        let term = |part: &str| {
            let (name, bound) = part.trim().split_once('<')?;
            let bound = bound.trim_start_matches('=').trim();
            let share = || {
                let percent: f64 = bound.strip_suffix('%')?.trim().parse().ok()?;
                (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
            };
            let length_us = || {
                if let Some(us) = bound.strip_suffix("us") {
                    return us.trim().parse::<f64>().ok().filter(|us| *us > 0.0);
                }
                parse_seconds(bound).map(|s| s * 1e6).filter(|us| *us > 0.0)
            };
            match name.trim() {
                "errors" => share().map(Term::Errors),
                "misses" => share().map(Term::Misses),
                "mean" => length_us().map(Term::Mean),
                "max" => length_us().map(Term::Max),
                name => {
                    let percentile: f64 = name.strip_prefix('p')?.parse().ok()?;
                    let is_one = percentile > 0.0 && percentile < 100.0;
                    length_us()
                        .filter(|_| is_one)
                        .map(|us| Term::Percentile(percentile, us))
                }
            }
        };
        let terms: Option<Vec<Term>> = text.split(',').map(term).collect();
        match terms {
            Some(terms) => Ok(Slo {
                terms,
                text: text.to_owned(),
            }),
            None => Err(format!(
                "{text:?} is no objective; write one like p99<10ms,errors<0.1%"
            )),
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Slo {
    /// Does `phase` hold it? If not, the first term that fails, as a clause.
    ///
    /// # Errors
    /// The clause.
    pub fn check(&self, phase: &PhaseResult) -> Result<(), String> {
        let counts = &phase.counts;
        if counts.ok == 0 {
            return Err("no request did what was asked".to_owned());
        }
        let response = all_operations(phase, |op| &op.response);
        let Some(response) = response else {
            return Err("no request was timed".to_owned());
        };
        let ms = |us: f64| us / 1000.0;
        for term in &self.terms {
            let (name, seen, bound, unit) = match *term {
                Term::Percentile(p, us) => {
                    let done = 100.0 * counts.ok as f64 / counts.planned.max(1) as f64;
                    if done < p {
                        return Err(format!(
                            "p{p}: {done:.1} % of the requests did what was asked"
                        ));
                    }
                    let seen = response.value_at_percentile(p) as f64 / 1e6;
                    (format!("p{p}"), seen, ms(us), "ms")
                }
                Term::Mean(us) => ("mean".to_owned(), response.mean() / 1e6, ms(us), "ms"),
                Term::Max(us) => ("max".to_owned(), response.max() as f64 / 1e6, ms(us), "ms"),
                Term::Errors(share) => {
                    let seen = counts.errors() as f64 / counts.planned.max(1) as f64;
                    ("errors".to_owned(), seen * 100.0, share * 100.0, "%")
                }
                Term::Misses(share) => {
                    let seen = counts.misses as f64 / counts.ok as f64;
                    ("misses".to_owned(), seen * 100.0, share * 100.0, "%")
                }
            };
            if seen > bound {
                return Err(format!("{name} {seen:.3} {unit} > {bound} {unit}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Ended, Recorder, RequestEnd};
    use crate::run::PhaseKind;
    use dendra_base::workload::RequestKind;

    #[test]
    fn objectives_are_read_and_others_refused() {
        let slo: Slo = "p99.9 < 250us,errors<0.1%, max<1s"
            .parse()
            .expect("it is one");
        let expected = [
            Term::Percentile(99.9, 250.0),
            Term::Errors(0.001),
            Term::Max(1e6),
        ];
        assert_eq!(slo.terms, expected);
        for text in [
            "", "p99", "p99<", "p0<1ms", "p100<1ms", "errors<5", "p99<0ms", "fast<1ms",
        ] {
            assert!(text.parse::<Slo>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_percentile_is_one_of_all_that_was_planned() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut recorder = Recorder::new(&[SECOND_NS], 1, 1000.0);
        for number in 0..100 {
            // One in ten is given up long before the bound below.
            let end = match number % 10 {
                0 => RequestEnd::Timeout,
                _ => RequestEnd::Answer(200),
            };
            let due_ns = number * SECOND_NS / 100;
            recorder.planned(RequestKind::Get, 0, due_ns);
            recorder.ended(&Ended {
                operation: RequestKind::Get,
                target: 0,
                due_ns,
                sent_ns: due_ns,
                done_ns: due_ns + 1_000_000,
                received_bytes: 0,
                body_bytes: 0,
                scanned: 0,
                end,
            });
        }
        let phase =
            recorder.into_phases()[0].finish("p".to_owned(), PhaseKind::Search, 0.0, 1000.0);
        let check = |text: &str| text.parse::<Slo>().expect("it is one").check(&phase);
        assert_eq!(check("p90<1s"), Ok(()));
        let clause = check("p91<1s").expect_err("a tenth took longer than any bound");
        assert_eq!(clause, "p91: 90.0 % of the requests did what was asked");
    }
}
