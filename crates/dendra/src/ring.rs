//! `dendra ring`: the owners of a cluster's keys as it is founded, and how many copies differ from
//! one that is founded with other members.
//!
//! ```text
//! cluster dendra (14354410316984715941), epoch 1: 3 copies of 256 partitions on 4 members
//!
//!  #  member          zone  weight  first owner    copies       share
//!  0  http://h1:8080  a          1   64 (25.0 %)   192 (75 %)   192.0
//! …
//! partition 0:    2-0-3  1-3-2  …          owners by number, first owner first, eight partitions a line
//! key "k" is in partition 17: http://h3:8080, http://h1:8080, http://h2:8080
//! change: add http://h5:8080
//! as two foundings: 160 of 768 copies differ; …
//! ```
//!
//! Invariants
//! 1. No running node is asked: the table is computed from the list, as founders do it. A running
//!    cluster keeps its table, and its plans move less than two foundings differ in.
//!
//! Not here: the table itself (crate `ownership`).
//! See: docs/cli.md, "A cluster".

use crate::cli;
use crate::config::cluster::topology;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use dendra_server::settings::{BadTopology, Member, MemberIndex, Partition, Ring, Topology};
use serde_json::{Value, json};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Partitions shown on one line.
const PARTITIONS_PER_LINE: usize = 8;

/// A topology and its table.
struct RingTable {
    topology: Topology,
    ring: Ring,
}

/// In how many copies a cluster founded with other members differs.
struct RingChange {
    words: String,
    after: RingTable,
    arrivals: Vec<usize>,
    /// Partitions that get another first owner.
    first: usize,
}

/// `dendra ring`
pub(crate) fn ring(args: &cli::RingArgs) -> ExitResult {
    let members = parsed(args.cluster.split(','))?;
    let table = RingTable::new(args, &members).map_err(|bad| unusable("--cluster", &bad))?;
    let change = RingChange::asked_for(args, &members, &table)?;
    let key = args.key.as_ref().map(|key| key.as_bytes());
    if key.is_some_and(<[u8]>::is_empty) {
        return Err(Failure::usage(
            "--key is empty, and no record has an empty key",
        ));
    }
    let text = if args.json {
        let object = table.to_json(key, change.as_ref());
        format!("{object:#}\n")
    } else {
        let is_short = table.topology.partitions() <= 256;
        table.to_text(is_short || args.table, key, change.as_ref())
    };
    ops::print(text.as_bytes()).map(|()| Exit::OK)
}

fn parsed<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Vec<Member>, Failure> {
    let members: Result<Vec<Member>, _> = entries.map(str::parse).collect();
    members.map_err(|bad| Failure::usage(bad.to_string()))
}

/// `list` is the flag that the members come from.
fn unusable(list: &str, bad: &BadTopology) -> Failure {
    let flag = match bad {
        BadTopology::NoCopy | BadTopology::TooManyCopies { .. } => "--replication-factor",
        BadTopology::Name { .. } => "--cluster-name",
        BadTopology::Partitions { .. } => "--partitions",
        BadTopology::Empty
        | BadTopology::TooMany { .. }
        | BadTopology::Duplicate { .. }
        | BadTopology::Member(_) => list,
    };
    Failure::usage(format!("{flag}: {bad}"))
}

impl RingTable {
    fn new(args: &cli::RingArgs, members: &[Member]) -> Result<RingTable, BadTopology> {
        let topology = topology(
            &args.cluster_name,
            members,
            args.replication_factor,
            &args.partitions,
        )?;
        let ring = Ring::new(&topology);
        Ok(RingTable { topology, ring })
    }

    fn members(&self) -> impl Iterator<Item = (MemberIndex, &Member)> {
        (0..self.topology.len()).map(|i| {
            let member = MemberIndex(i);
            (member, self.topology.member(member))
        })
    }

    fn copies_of_all(&self) -> usize {
        usize::from(self.ring.partitions()) * usize::from(self.topology.copies())
    }

    fn owners(&self, partition: Partition) -> &[MemberIndex] {
        &self.ring.owners(partition)[..usize::from(self.topology.copies())]
    }

    fn urls(&self, partition: Partition) -> Vec<&str> {
        let owners = self.owners(partition).iter();
        owners
            .map(|&m| self.topology.member(m).url.as_str())
            .collect()
    }

    fn share(&self, member: MemberIndex) -> f64 {
        let share = self.ring.share(member, self.topology.copies());
        share.expect("a table is balanced for its copies")
    }

    fn to_text(&self, has_table: bool, key: Option<&[u8]>, change: Option<&RingChange>) -> String {
        let mut out = String::new();
        self.write_text(&mut out, has_table, key, change)
            .expect("a string takes any text");
        out
    }

    fn write_text(
        &self,
        out: &mut String,
        has_table: bool,
        key: Option<&[u8]>,
        change: Option<&RingChange>,
    ) -> std::fmt::Result {
        let (topology, partitions) = (&self.topology, f64::from(self.ring.partitions()));
        writeln!(
            out,
            "cluster {} ({}), epoch {}: {} copies of {} partitions on {} members\n",
            topology.name(),
            topology.id(),
            topology.epoch(),
            topology.copies(),
            topology.partitions(),
            topology.len()
        )?;
        let width = |of: fn(&Member) -> &str, least| {
            let lens = topology.members().iter().map(|member| of(member).len());
            lens.max().unwrap_or(0).max(least)
        };
        let (urls, zones) = (width(|m| &m.url, 6), width(|m| &m.zone, 4));
        writeln!(
            out,
            " #  {:urls$}  {:zones$}  weight     first owner          copies     share",
            "member", "zone"
        )?;
        let per_cent = |part: usize| 100.0 * part as f64 / partitions;
        for (index, member) in self.members() {
            let first = self.ring.load(index, 1);
            let copies = self.ring.load(index, topology.copies());
            writeln!(
                out,
                "{:2}  {:urls$}  {:zones$}  {:6}  {first:5} ({:4.1} %)  {copies:5} ({:5.1} %)  {:8.1}",
                index.0,
                member.url,
                member.zone,
                member.weight,
                per_cent(first),
                per_cent(copies),
                self.share(index)
            )?;
        }
        if has_table {
            self.write_table(out)?;
        }
        if let Some(key) = key {
            let partition = self.ring.partition(key);
            let owners = self.urls(partition).join(", ");
            let key = String::from_utf8_lossy(key);
            writeln!(
                out,
                "\nkey {key:?} is in partition {}: {owners}",
                partition.0
            )?;
        }
        if let Some(change) = change {
            change.write_text(out)?;
        }
        Ok(())
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let all: Vec<Partition> = self.ring.all().collect();
        for line in all.chunks(PARTITIONS_PER_LINE) {
            let groups: Vec<String> = line
                .iter()
                .map(|&partition| {
                    let owners = self.owners(partition).iter();
                    let numbers: Vec<String> = owners.map(|m| m.0.to_string()).collect();
                    numbers.join("-")
                })
                .collect();
            let gap = if line[0].0 == 0 { "\n" } else { "" };
            writeln!(
                out,
                "{gap}partition {:5}:  {}",
                line[0].0,
                groups.join("  ")
            )?;
        }
        Ok(())
    }

    fn to_json(&self, key: Option<&[u8]>, change: Option<&RingChange>) -> Value {
        let members: Vec<Value> = self
            .members()
            .map(|(index, member)| {
                json!({
                    "url": member.url,
                    "zone": member.zone,
                    "weight": member.weight,
                    "first": self.ring.load(index, 1),
                    "copies": self.ring.load(index, self.topology.copies()),
                    "share": self.share(index),
                })
            })
            .collect();
        let table: Vec<Vec<u8>> = self
            .ring
            .all()
            .map(|p| self.ring.owners(p).iter().map(|m| m.0).collect())
            .collect();
        let mut object = json!({
            "cluster": self.topology.name(),
            "id": self.topology.id(),
            "epoch": self.topology.epoch(),
            "copies": self.topology.copies(),
            "partitions": self.topology.partitions(),
            "topology": self.topology.describe(),
            "members": members,
            "table": table,
        });
        if let Some(key) = key {
            let partition = self.ring.partition(key);
            object["key"] = json!({"partition": partition.0, "owners": self.urls(partition)});
        }
        if let Some(change) = change {
            object["change"] = change.to_json();
        }
        object
    }
}

impl RingChange {
    fn asked_for(
        args: &cli::RingArgs,
        members: &[Member],
        before: &RingTable,
    ) -> Result<Option<RingChange>, Failure> {
        if args.add.is_empty() && args.remove.is_empty() {
            return Ok(None);
        }
        let mut list = members.to_vec();
        let mut words = Vec::new();
        for given in &args.remove {
            let at = before.topology.index_of(given).ok_or_else(|| {
                Failure::usage(format!("--remove: {given} is not in the list of --cluster"))
            })?;
            let url = &before.topology.member(at).url;
            list.retain(|member| member.url != *url);
            words.push(format!("remove {url}"));
        }
        for added in parsed(args.add.iter().map(String::as_str))? {
            words.push(format!("add {added}"));
            list.push(added);
        }
        let after = RingTable::new(args, &list).map_err(|bad| unusable("--add, --remove", &bad))?;
        let earlier = (&before.topology, &before.ring);
        let first_of = |table: &RingTable, p| {
            let owner = table.ring.owners(p)[0];
            table.topology.member(owner).url.clone()
        };
        let partitions = after.ring.all();
        Ok(Some(RingChange {
            words: words.join(", "),
            arrivals: after.ring.arrivals(&after.topology, earlier),
            first: partitions
                .filter(|&p| first_of(before, p) != first_of(&after, p))
                .count(),
            after,
        }))
    }

    fn moved(&self) -> usize {
        self.arrivals.iter().sum()
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let all = self.after.copies_of_all();
        writeln!(
            out,
            "\nchange: {}\nas two foundings: {} of {all} copies differ ({:.1} %); {} of {} partitions have another \
             first owner\na running cluster moves less: dendra cluster plan shows it",
            self.words,
            self.moved(),
            100.0 * self.moved() as f64 / all as f64,
            self.first,
            self.after.ring.partitions()
        )?;
        for (index, member) in self.after.members() {
            let arrivals = self.arrivals[index.at()];
            if arrivals > 0 {
                let share = self.after.share(index);
                writeln!(
                    out,
                    "  {} has {arrivals} that it did not have; its share is {share:.1}",
                    member.url
                )?;
            }
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let arrivals: serde_json::Map<String, Value> = self
            .after
            .members()
            .map(|(index, member)| (member.url.clone(), json!(self.arrivals[index.at()])))
            .collect();
        json!({
            "moved": self.moved(),
            "copies": self.after.copies_of_all(),
            "first_owners": self.first,
            "arrivals": arrivals,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(more: &[&str]) -> cli::RingArgs {
        use clap::Parser;
        let list = "h1:1;zone=a,h2:1;zone=b,h3:1;zone=c,h4:1;zone=a;weight=2";
        let given = [&["dendra", "ring", "--cluster", list], more].concat();
        match cli::Cli::try_parse_from(given)
            .expect("flags of ring")
            .command
        {
            cli::Command::Ring(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn shown(more: &[&str]) -> (String, Value) {
        let args = args(more);
        let members = parsed(args.cluster.split(',')).expect("members");
        let table = RingTable::new(&args, &members).expect("a topology");
        let change = RingChange::asked_for(&args, &members, &table).expect("a change");
        let key = args.key.as_ref().map(|key| key.as_bytes());
        let text = table.to_text(true, key, change.as_ref());
        (text, table.to_json(key, change.as_ref()))
    }

    #[test]
    fn the_table_is_shown_whole() {
        let (text, json) = shown(&["--key", "k"]);
        assert!(text.starts_with("cluster dendra ("), "{text}");
        assert!(text.contains("3 copies of 256 partitions on 4 members"));
        assert!(text.contains("partition   248:"), "{text}");
        let members = json["members"].as_array().expect("a list");
        let sum = |field: &str| -> u64 { members.iter().filter_map(|m| m[field].as_u64()).sum() };
        assert_eq!((sum("first"), sum("copies")), (256, 768));
        assert_eq!(json["table"].as_array().map(Vec::len), Some(256));
        let partition = json["key"]["partition"].as_u64().expect("a number");
        let line = format!("key \"k\" is in partition {partition}: http://h");
        assert!(text.contains(&line), "{text}");
    }

    #[test]
    fn a_change_says_in_what_two_foundings_differ() {
        let (text, json) = shown(&["--add", "http://h5:1", "--remove", "H2:1"]);
        assert!(
            text.contains("change: remove http://h2:1, add http://h5:1"),
            "{text}"
        );
        let moved = json["change"]["moved"].as_u64().expect("a number");
        assert!(
            text.contains(&format!("as two foundings: {moved} of 768 copies differ")),
            "{text}"
        );
        // Zones b and c hold one copy of everything, and there is no zone b any more.
        assert_eq!(json["change"]["arrivals"]["http://h3:1"], 0);
        assert!(json["change"]["arrivals"]["http://h5:1"].as_u64() >= Some(200));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let failure = |more: &[&str]| {
            let failure = ring(&args(more)).expect_err("unusable");
            assert_eq!(failure.exit, Exit::USAGE);
            failure.sentence
        };
        assert!(failure(&["--remove", "h9:1"]).contains("--remove: h9:1 is not in the list"));
        assert!(failure(&["--add", "h1:1"]).contains("in the list twice"));
        assert!(failure(&["--key", ""]).contains("--key is empty"));
        assert!(failure(&["--partitions", "7"]).contains("--partitions: 7 is no number"));
        assert!(failure(&["--cluster-name", "a b"]).contains("--cluster-name: the cluster's name"));
    }
}
