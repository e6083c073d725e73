//! How many copies an operation addresses and how many of them must answer.
//!
//! ```text
//! given               from                                   ack
//! nothing             replication factor, capped by nodes    from/2 + 1
//! from=f              f                                      f/2 + 1
//! ack=a               as above                               a
//! replicas=a/f        f                                      a
//! ```
//!
//! Invariants
//! 1. `1 <= ack <= from <= nodes`: a `Copies` that exists has been checked.
//!
//! Not here: which nodes those are (crate `node`).
//! See: docs/api.md, section "How many copies, how many answers".

use crate::refusal::Refusal;

/// How many copies, how many answers: checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Replicas that must answer.
    pub ack: u8,
    /// Replicas that the operation addresses.
    pub from: u8,
}

/// What was promised by an answer of a number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A majority of all copies of the record answered.
    Linearizable,
    /// Fewer did: replicas converge, the newest version wins.
    Eventual,
}

impl Copies {
    /// What a request that names neither number gets.
    pub const fn of_cluster(nodes: u8, replication_factor: u8) -> Copies {
        let from = if replication_factor < nodes {
            replication_factor
        } else {
            nodes
        };
        Copies {
            ack: from / 2 + 1,
            from,
        }
    }

    /// Checks what a request named against the cluster.
    ///
    /// # Errors
    /// 400 `bad-quorum`, with the relation that does not hold.
    pub fn check(
        ack: Option<u32>,
        from: Option<u32>,
        nodes: u8,
        replication_factor: u8,
    ) -> Result<Copies, Refusal> {
        let usual = Copies::of_cluster(nodes, replication_factor);
        if ack.is_none() && from.is_none() {
            return Ok(usual);
        }
        let refuse = |sentence: String| Err(Refusal::bad("bad-quorum", sentence));
        let from = from.unwrap_or(u32::from(usual.from));
        let ack = ack.unwrap_or(from / 2 + 1);
        if from == 0 {
            return refuse("from=0 addresses no copy; the least is 1".into());
        }
        if ack == 0 {
            return refuse("ack=0 waits for no answer; the least is 1".into());
        }
        if ack > from {
            return refuse(format!("ack={ack} exceeds from={from}"));
        }
        match (u8::try_from(ack), u8::try_from(from)) {
            (Ok(ack), Ok(from)) if from <= nodes => Ok(Copies { ack, from }),
            _ => refuse(format!(
                "from={from} exceeds the {nodes} node(s) of this cluster"
            )),
        }
    }

    /// The level that `ack` answers of these copies stand for.
    pub const fn level(self, nodes: u8, replication_factor: u8) -> Level {
        let usual = Copies::of_cluster(nodes, replication_factor);
        if self.from == usual.from && self.ack > self.from / 2 {
            Level::Linearizable
        } else {
            Level::Eventual
        }
    }
}

impl Level {
    /// The text in `Dendra-Receipt`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Linearizable => "linearizable",
            Level::Eventual => "eventual",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ack: Option<u32>, from: Option<u32>, nodes: u8) -> Result<(u8, u8), String> {
        match Copies::check(ack, from, nodes, 3) {
            Ok(copies) => Ok((copies.ack, copies.from)),
            Err(refusal) => {
                assert_eq!(refusal.status, 400);
                Err(refusal.to_string())
            }
        }
    }

    #[test]
    fn the_usual_numbers_are_1_of_1_then_2_of_2_then_2_of_3() {
        for (nodes, expected) in [(1, (1, 1)), (2, (2, 2)), (3, (2, 3)), (9, (2, 3))] {
            assert_eq!(check(None, None, nodes), Ok(expected));
        }
    }

    #[test]
    fn one_number_completes_the_other() {
        assert_eq!(check(None, Some(5), 9), Ok((3, 5)));
        assert_eq!(check(Some(3), None, 9), Ok((3, 3)));
        assert_eq!(check(Some(1), Some(9), 9), Ok((1, 9)));
    }

    #[test]
    fn impossible_numbers_say_which_relation_fails() {
        let table: [(Option<u32>, Option<u32>, u8, &str); 6] = [
            (Some(3), Some(2), 3, "bad-quorum: ack=3 exceeds from=2"),
            (
                Some(0),
                None,
                3,
                "bad-quorum: ack=0 waits for no answer; the least is 1",
            ),
            (
                None,
                Some(0),
                3,
                "bad-quorum: from=0 addresses no copy; the least is 1",
            ),
            (
                None,
                Some(2),
                1,
                "bad-quorum: from=2 exceeds the 1 node(s) of this cluster",
            ),
            (Some(2), None, 1, "bad-quorum: ack=2 exceeds from=1"),
            (
                Some(300),
                Some(300),
                255,
                "bad-quorum: from=300 exceeds the 255 node(s) of this cluster",
            ),
        ];
        for (ack, from, nodes, sentence) in table {
            assert_eq!(check(ack, from, nodes), Err(sentence.to_string()));
        }
    }

    #[test]
    fn only_a_majority_of_all_copies_is_linearizable() {
        let level = |ack, from, nodes| Copies { ack, from }.level(nodes, 3);
        assert_eq!(level(1, 1, 1), Level::Linearizable);
        assert_eq!(level(2, 3, 3), Level::Linearizable);
        assert_eq!(level(1, 3, 3), Level::Eventual);
        assert_eq!(level(2, 2, 3), Level::Eventual);
        assert_eq!(level(3, 5, 5), Level::Eventual);
        assert_eq!(level(1, 2, 2), Level::Eventual);
    }
}
