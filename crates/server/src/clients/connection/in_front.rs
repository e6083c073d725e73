//! The request in front of a connection, from the first look at it until it is consumed.
//!
//! ```text
//! looked at ─► pause ─► looked at ─► line for the log ─► looked at … ─► consumed: all of this is new
//! ```
//!
//! Invariants
//! 1. Whatever it waits for, it pauses once and is counted among the sizes of writes once.
//!
//! Not here: the waits themselves (`mod.rs`), the length of a pause (crate `node`, `admission/`).

/// What has happened to the request in front.
#[derive(Debug, Default)]
pub(super) struct RequestInFront {
    /// It has had its delay.
    pub(super) has_paused: bool,
    /// The quota has let it in.
    pub(super) is_admitted: bool,
    /// It stands in line for the log or the engine, or has stood there, until then.
    pub(super) in_line_until_us: Option<u64>,
    is_sized: bool,
}

impl RequestInFront {
    /// Is it let in for the first time? It may be looked at again behind the line for the log.
    pub(super) fn is_to_be_sized(&mut self) -> bool {
        !std::mem::replace(&mut self.is_sized, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_is_looked_at_again_counts_once() {
        let mut request = RequestInFront::default();
        let counted = (0..3).filter(|_| request.is_to_be_sized()).count();
        assert_eq!(counted, 1);
    }
}
