//! How many copies an operation addresses, and how many of them must answer.
//!
//! ```text
//! asked for        from                               ack
//! nothing          replication factor, or all nodes   from/2 + 1     1/1  2/2  2/3  2/3 …
//! from=f           f                                  f/2 + 1
//! ack=a            replication factor, or all nodes   a
//! ack=a, from=f    f                                  a
//! ```
//!
//! Invariants
//! 1. `1 <= ack <= from <= nodes`: a `Quorum` that exists has been checked.
//!
//! Not here: which nodes those are (the ring), the text of the parameters (crate `wire`).
//! See: docs/api.md, "How many copies, how many answers".

use std::fmt;

/// How many copies, how many answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    ack: u8,
    from: u8,
}

/// The promise of a quorum's answer: `level=` of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// A majority of all copies of the record answered.
    Linearizable,
    /// Fewer did, or fewer copies were addressed: replicas converge, the newest version wins.
    Eventual,
}

/// The relation that does not hold. `Display` is the sentence of the error body, without its code
/// word [`BadQuorum::CODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadQuorum {
    /// `ack=0`.
    NoAnswer,
    /// `from=0`.
    NoCopy,
    /// More answers than copies.
    AckExceedsFrom {
        /// Answers asked for.
        ack: u32,
        /// Copies addressed.
        from: u32,
    },
    /// More copies than nodes.
    FromExceedsNodes {
        /// Copies asked for.
        from: u32,
        /// Nodes of the cluster.
        nodes: u8,
    },
}

impl BadQuorum {
    /// The stable code word of the error body.
    pub const CODE: &str = "bad-quorum";
}

impl fmt::Display for BadQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadQuorum::NoAnswer => f.write_str("ack=0 waits for no answer; the least is 1"),
            BadQuorum::NoCopy => f.write_str("from=0 addresses no copy; the least is 1"),
            BadQuorum::AckExceedsFrom { ack, from } => write!(f, "ack={ack} exceeds from={from}"),
            BadQuorum::FromExceedsNodes { from, nodes } => {
                write!(f, "from={from} exceeds the {nodes} node(s) of this cluster")
            }
        }
    }
}

impl std::error::Error for BadQuorum {}

impl Quorum {
    /// One copy, one answer: the quorum of a node by itself.
    pub const ONE: Quorum = Quorum { ack: 1, from: 1 };

    /// `ack` answers of `from` copies in a cluster of `nodes`.
    ///
    /// # Errors
    /// The relation that does not hold.
    pub fn new(ack: u32, from: u32, nodes: u8) -> Result<Quorum, BadQuorum> {
        if from == 0 {
            return Err(BadQuorum::NoCopy);
        }
        if ack == 0 {
            return Err(BadQuorum::NoAnswer);
        }
        if ack > from {
            return Err(BadQuorum::AckExceedsFrom { ack, from });
        }
        match (u8::try_from(ack), u8::try_from(from)) {
            (Ok(ack), Ok(from)) if from <= nodes => Ok(Quorum { ack, from }),
            _ => Err(BadQuorum::FromExceedsNodes { from, nodes }),
        }
    }

    /// The quorum of an operation that names neither number: all the copies there can be of
    /// `replication_factor`, and a majority of them.
    ///
    /// # Panics
    /// When there is no node or no copy at all.
    pub const fn usual(replication_factor: u8, nodes: u8) -> Quorum {
        let from = if replication_factor < nodes {
            replication_factor
        } else {
            nodes
        };
        assert!(from > 0, "a cluster has a node, and a record has a copy");
        Quorum {
            ack: from / 2 + 1,
            from,
        }
    }

    /// The quorum of an operation that names some of the numbers.
    ///
    /// # Errors
    /// The relation that does not hold.
    pub fn resolve(
        ack: Option<u32>,
        from: Option<u32>,
        replication_factor: u8,
        nodes: u8,
    ) -> Result<Quorum, BadQuorum> {
        let usual = Quorum::usual(replication_factor, nodes);
        let from = from.unwrap_or(u32::from(usual.from));
        Quorum::new(ack.unwrap_or(from / 2 + 1), from, nodes)
    }

    /// Replicas that must answer.
    pub const fn ack(self) -> u8 {
        self.ack
    }

    /// Replicas that the operation addresses: the copies that a write leaves.
    pub const fn from(self) -> u8 {
        self.from
    }

    /// The promise of `ack` answers where records usually have `replication_factor` copies, capped
    /// by the number of nodes.
    pub fn level(self, replication_factor: u8, nodes: u8) -> Consistency {
        if self.ack > self.from / 2 && self.from == replication_factor.min(nodes) {
            Consistency::Linearizable
        } else {
            Consistency::Eventual
        }
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ack, self.from)
    }
}

impl Consistency {
    /// Name of the level, as in receipts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Eventual => "eventual",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_quorum_grows_with_the_cluster_up_to_the_replication_factor() {
        let usual: Vec<String> = (1..=5).map(|n| Quorum::usual(3, n).to_string()).collect();
        assert_eq!(usual, ["1/1", "2/2", "2/3", "2/3", "2/3"]);
        assert_eq!(Quorum::usual(5, 7).to_string(), "3/5");
    }

    #[test]
    fn one_number_completes_the_other() {
        let resolve = |ack, from| Quorum::resolve(ack, from, 3, 9).map(|q| q.to_string());
        assert_eq!(resolve(None, None), Ok("2/3".into()));
        assert_eq!(resolve(None, Some(5)), Ok("3/5".into()));
        assert_eq!(resolve(Some(3), None), Ok("3/3".into()));
        assert_eq!(resolve(Some(1), Some(9)), Ok("1/9".into()));
    }

    #[test]
    fn a_bad_quorum_says_which_relation_fails() {
        let sentence = |ack, from, nodes| {
            Quorum::resolve(ack, from, 3, nodes).map_err(|error| error.to_string())
        };
        let no_answer = "ack=0 waits for no answer; the least is 1";
        let no_copy = "from=0 addresses no copy; the least is 1";
        let many = "from=300 exceeds the 255 node(s) of this cluster";
        let table = [
            (Some(3), Some(2), 3, "ack=3 exceeds from=2"),
            (Some(2), None, 1, "ack=2 exceeds from=1"),
            (Some(0), Some(1), 1, no_answer),
            (Some(0), None, 3, no_answer),
            (Some(1), Some(0), 1, no_copy),
            (None, Some(0), 3, no_copy),
            (
                None,
                Some(2),
                1,
                "from=2 exceeds the 1 node(s) of this cluster",
            ),
            (Some(300), Some(300), 255, many),
        ];
        for (ack, from, nodes, expected) in table {
            assert_eq!(sentence(ack, from, nodes), Err(expected.to_owned()));
        }
    }

    #[test]
    fn only_a_majority_of_all_copies_is_linearizable() {
        let level = |ack, from, nodes| {
            Quorum::new(ack, from, nodes)
                .expect("the table names possible quorums")
                .level(3, nodes)
        };
        assert_eq!(level(1, 1, 1), Consistency::Linearizable);
        assert_eq!(level(2, 2, 2), Consistency::Linearizable);
        assert_eq!(level(2, 3, 3), Consistency::Linearizable);
        assert_eq!(level(3, 3, 9), Consistency::Linearizable);
        assert_eq!(level(1, 2, 2), Consistency::Eventual);
        assert_eq!(level(1, 3, 3), Consistency::Eventual);
        assert_eq!(level(2, 2, 3), Consistency::Eventual);
        assert_eq!(level(3, 5, 5), Consistency::Eventual);
    }

    proptest! {
        #[test]
        fn exactly_the_possible_quorums_exist(ack in 0u32..300, from in 0u32..300, nodes in 1u8..) {
            let possible = 1 <= ack && ack <= from && from <= u32::from(nodes);
            let quorum = Quorum::new(ack, from, nodes);
            prop_assert_eq!(quorum.is_ok(), possible);
            if let Ok(quorum) = quorum {
                prop_assert_eq!((u32::from(quorum.ack()), u32::from(quorum.from())), (ack, from));
            }
        }

        #[test]
        fn two_linearizable_quorums_always_share_a_copy(
            rf in 1u8..20, nodes in 1u8..20, a in 1u32..20, b in 1u32..20,
        ) {
            let from = u32::from(rf.min(nodes));
            let quorum = |ack: u32| Quorum::new(ack.min(from), from, nodes)
                .expect("the numbers are within the cluster");
            let (a, b) = (quorum(a), quorum(b));
            let is_linearizable = |q: Quorum| q.level(rf, nodes) == Consistency::Linearizable;
            if is_linearizable(a) && is_linearizable(b) {
                prop_assert!(a.ack() + b.ack() > rf.min(nodes));
            }
        }

        #[test]
        fn the_usual_quorum_is_linearizable_and_possible(rf in 1u8.., nodes in 1u8..) {
            let usual = Quorum::usual(rf, nodes);
            prop_assert_eq!(usual.level(rf, nodes), Consistency::Linearizable);
            prop_assert_eq!(
                Quorum::new(usual.ack().into(), usual.from().into(), nodes),
                Ok(usual)
            );
            prop_assert_eq!(Quorum::resolve(None, None, rf, nodes), Ok(usual));
        }
    }
}
