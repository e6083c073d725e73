//! Orders to a running `dendra dev`: one line over a socket in its folder.
//!
//! ```text
//! dendra dev kill 2 ─► | kill 2 LF | ─► dev.sock ─► channel ─► the cluster's loop ─► | done: kill 2 LF |
//!                                                                                    | a sentence LF    |
//! ```
//!
//! Invariants
//! 1. The text of a `DevOrder` reads back as itself, and so does that of a `DevAnswer`.
//! 2. A socket without a listening process is replaced; one with a process is left alone.
//!
//! Not here: the effect of an order (`mod.rs`).

use super::flags::DevVerb;
use crate::exit::{Exit, ExitResult, Failure};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// The orders to a running cluster; nodes count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DevOrder {
    /// SIGKILL.
    Kill(usize),
    /// SIGSTOP.
    Pause(usize),
    /// SIGCONT.
    Resume(usize),
    /// Starts a node that is down.
    Start(usize),
    /// A further node joins.
    Add,
    /// A node leaves the cluster.
    Remove(usize),
    /// A node on an empty folder takes the place of another one.
    Replace(usize),
    /// No byte passes between two nodes.
    Cut(usize, usize),
    /// Bytes between two nodes wait until the links are mended.
    Stall(usize, usize),
    /// Bytes between two nodes take so many milliseconds longer, each way.
    Slow(usize, usize, u64),
    /// Flips bits of tables in a node's folder.
    Rot(usize),
    /// Ends a node, and removes all that its folder holds.
    Wipe(usize),
    /// Ends all cuts.
    Heal,
    /// Ends the cluster.
    Stop,
}

/// The end of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DevAnswer {
    /// The order was carried out: it, and a sentence where there is more to say.
    Done(String),
    /// The order was not carried out: the reason.
    Refused(String),
}

/// The word in front of the answer to an order that was carried out.
const DONE: &str = "done: ";

impl DevAnswer {
    fn parse(line: &str) -> DevAnswer {
        match line.strip_prefix(DONE) {
            Some(rest) => DevAnswer::Done(rest.to_owned()),
            None => DevAnswer::Refused(line.to_owned()),
        }
    }
}

impl fmt::Display for DevAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DevAnswer::Done(said) => write!(f, "{DONE}{said}"),
            DevAnswer::Refused(why) => f.write_str(why),
        }
    }
}

/// An order, and where its answer goes.
pub(super) type Ordered = (DevOrder, Option<SyncSender<DevAnswer>>);

impl DevOrder {
    /// The nodes that it names.
    pub(super) fn nodes(&self) -> Vec<usize> {
        match *self {
            DevOrder::Kill(a)
            | DevOrder::Pause(a)
            | DevOrder::Resume(a)
            | DevOrder::Start(a)
            | DevOrder::Rot(a)
            | DevOrder::Wipe(a)
            | DevOrder::Remove(a)
            | DevOrder::Replace(a) => vec![a],
            DevOrder::Cut(a, b) | DevOrder::Stall(a, b) | DevOrder::Slow(a, b, _) => vec![a, b],
            DevOrder::Add | DevOrder::Heal | DevOrder::Stop => Vec::new(),
        }
    }

    fn parse(line: &str) -> Option<DevOrder> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse().ok();
        let order = match *words.first()? {
            "kill" => DevOrder::Kill(number(1)?),
            "pause" => DevOrder::Pause(number(1)?),
            "resume" => DevOrder::Resume(number(1)?),
            "start" => DevOrder::Start(number(1)?),
            "add" => DevOrder::Add,
            "remove" => DevOrder::Remove(number(1)?),
            "replace" => DevOrder::Replace(number(1)?),
            "cut" => DevOrder::Cut(number(1)?, number(2)?),
            "stall" => DevOrder::Stall(number(1)?, number(2)?),
            "slow" => DevOrder::Slow(number(1)?, number(2)?, words.get(3)?.parse().ok()?),
            "rot" => DevOrder::Rot(number(1)?),
            "wipe" => DevOrder::Wipe(number(1)?),
            "heal" => DevOrder::Heal,
            "stop" => DevOrder::Stop,
            _ => return None,
        };
        // The order must read as the words do: no word may stand behind it.
        (order.to_string() == words.join(" ")).then_some(order)
    }
}

impl fmt::Display for DevOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DevOrder::Kill(a) => write!(f, "kill {a}"),
            DevOrder::Pause(a) => write!(f, "pause {a}"),
            DevOrder::Resume(a) => write!(f, "resume {a}"),
            DevOrder::Start(a) => write!(f, "start {a}"),
            DevOrder::Add => f.write_str("add"),
            DevOrder::Remove(a) => write!(f, "remove {a}"),
            DevOrder::Replace(a) => write!(f, "replace {a}"),
            DevOrder::Cut(a, b) => write!(f, "cut {a} {b}"),
            DevOrder::Stall(a, b) => write!(f, "stall {a} {b}"),
            DevOrder::Slow(a, b, ms) => write!(f, "slow {a} {b} {ms}"),
            DevOrder::Rot(a) => write!(f, "rot {a}"),
            DevOrder::Wipe(a) => write!(f, "wipe {a}"),
            DevOrder::Heal => f.write_str("heal"),
            DevOrder::Stop => f.write_str("stop"),
        }
    }
}

impl From<&DevVerb> for DevOrder {
    fn from(verb: &DevVerb) -> DevOrder {
        match *verb {
            DevVerb::Kill { node } => DevOrder::Kill(node),
            DevVerb::Pause { node } => DevOrder::Pause(node),
            DevVerb::Resume { node } => DevOrder::Resume(node),
            DevVerb::Start { node } => DevOrder::Start(node),
            DevVerb::Add => DevOrder::Add,
            DevVerb::Remove { node } => DevOrder::Remove(node),
            DevVerb::Replace { node } => DevOrder::Replace(node),
            DevVerb::Cut { a, b } => DevOrder::Cut(a, b),
            DevVerb::Stall { a, b } => DevOrder::Stall(a, b),
            DevVerb::Slow { a, b, ms } => DevOrder::Slow(a, b, ms),
            DevVerb::Rot { node } => DevOrder::Rot(node),
            DevVerb::Wipe { node } => DevOrder::Wipe(node),
            DevVerb::Heal => DevOrder::Heal,
            DevVerb::Stop => DevOrder::Stop,
        }
    }
}

/// How long an order may take.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Sends the order to the cluster in `folder`, and prints its answer.
pub(super) fn tell(folder: &Path, order: &DevOrder) -> ExitResult {
    let path = socket_of(folder);
    let no_cluster = |error| {
        Failure::new(
            Exit::UNAVAILABLE,
            format!(
                "no cluster listens at {} ({error}): start one with `dendra dev`, and name its --folder",
                path.display()
            ),
        )
    };
    let mut stream = UnixStream::connect(&path).map_err(no_cluster)?;
    let mut said = String::new();
    let talked = stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| writeln!(stream, "{order}"))
        .and_then(|()| stream.read_to_string(&mut said));
    talked.map_err(no_cluster)?;
    let said = said.trim_end();
    if said.is_empty() && *order == DevOrder::Stop {
        return Ok(Exit::OK);
    }
    match DevAnswer::parse(said) {
        done @ DevAnswer::Done(_) => {
            crate::ops::print(format!("{done}\n").as_bytes()).map(|()| Exit::OK)
        }
        DevAnswer::Refused(why) => Err(Failure::new(Exit::FAILURE, why)),
    }
}

/// A folder has one cluster at a time.
pub(super) fn refuse_second(folder: &Path) -> Result<(), Failure> {
    if UnixStream::connect(socket_of(folder)).is_ok() {
        return Err(Failure::usage(format!(
            "a cluster runs in {} already: name another --folder",
            folder.display()
        )));
    }
    Ok(())
}

/// Listens in `folder`; orders go to `orders`.
pub(super) fn listen(folder: &Path, orders: SyncSender<Ordered>) -> Result<PathBuf, Failure> {
    refuse_second(folder)?;
    let path = socket_of(folder);
    drop(std::fs::remove_file(&path));
    let cannot = |error| {
        Failure::new(
            Exit::FAILURE,
            format!("{} cannot be listened on: {error}", path.display()),
        )
    };
    let listener = UnixListener::bind(&path).map_err(cannot)?;
    std::thread::Builder::new()
        .name("orders".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                if serve(&stream, &orders).is_none() {
                    return;
                }
            }
        })
        .map_err(cannot)?;
    Ok(path)
}

/// One order; `None` when the cluster is gone.
fn serve(mut stream: &UnixStream, orders: &SyncSender<Ordered>) -> Option<()> {
    let mut line = String::new();
    let read = stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| BufReader::new(stream).take(256).read_line(&mut line));
    let (Ok(_), Some(order)) = (read, DevOrder::parse(&line)) else {
        // The sender of a bad order may have gone.
        drop(writeln!(stream, "{:?} is no order", line.trim_end()));
        return Some(());
    };
    let (answer, answered) = sync_channel(1);
    orders.send((order, Some(answer))).ok()?;
    if let Ok(said) = answered.recv_timeout(TIMEOUT) {
        drop(writeln!(stream, "{said}"));
    }
    Some(())
}

/// Where the control socket of a cluster in `folder` is.
fn socket_of(folder: &Path) -> PathBuf {
    folder.join("dev.sock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_order_is_read_as_it_was_told(a: usize, b: usize, ms: u64) {
            for order in [
                DevOrder::Kill(a),
                DevOrder::Pause(a),
                DevOrder::Resume(a),
                DevOrder::Start(a),
                DevOrder::Add,
                DevOrder::Remove(a),
                DevOrder::Replace(a),
                DevOrder::Cut(a, b),
                DevOrder::Stall(a, b),
                DevOrder::Slow(a, b, ms),
                DevOrder::Rot(a),
                DevOrder::Wipe(a),
                DevOrder::Heal,
                DevOrder::Stop,
            ] {
                prop_assert_eq!(DevOrder::parse(&order.to_string()), Some(order));
                for answer in [
                    DevAnswer::Done(order.to_string()),
                    DevAnswer::Refused(format!("node {a} is down")),
                ] {
                    prop_assert_eq!(DevAnswer::parse(&answer.to_string()), answer);
                }
            }
        }
    }

    #[test]
    fn an_order_reads_back() {
        for order in [
            DevOrder::Kill(2),
            DevOrder::Pause(1),
            DevOrder::Resume(1),
            DevOrder::Start(3),
            DevOrder::Add,
            DevOrder::Remove(2),
            DevOrder::Replace(3),
            DevOrder::Cut(1, 2),
            DevOrder::Stall(1, 2),
            DevOrder::Slow(1, 2, 50),
            DevOrder::Heal,
            DevOrder::Stop,
        ] {
            assert_eq!(DevOrder::parse(&order.to_string()), Some(order));
        }
        for nonsense in [
            "", "kill", "kill x", "kill 1 2", "cut 1", "heal 1", "add 4", "replace", "eat",
        ] {
            assert_eq!(DevOrder::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn an_answer_reads_back() {
        for answer in [
            DevAnswer::Done("kill 2".to_owned()),
            DevAnswer::Done("rot 1: 8 bits".to_owned()),
            DevAnswer::Refused("node 1 runs already".to_owned()),
        ] {
            assert_eq!(DevAnswer::parse(&answer.to_string()), answer);
        }
    }
}
