//! Where the nodes of a cluster are found: free ports at first, the same ones each time after that.
//!
//! ```text
//! first start   free ports ─► dev.addresses.new ─► dev.addresses ─► the nodes start
//! later ones    dev.addresses ─► the same ports, or a sentence
//!
//! node 1 self 127.0.0.1:40003 listen 127.0.0.1:40001 admin 127.0.0.1:40002       one line a node
//! … joined replaced left        those of the three words that are true of the node, in this order
//! ```
//!
//! Invariants
//! 1. A node's folder knows its member by `self`: a folder that nodes ran in has the file, whole,
//!    or is refused.
//! 2. A node that starts finds its ports free: all of them were bound before the first node starts.
//!
//! Not here: the servers behind the addresses (`mod.rs`, `proxy.rs`).

use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Nodes of a cluster without `--nodes`: the fewest of which one may fail.
const NODES_DEFAULT: u8 = 3;

/// The file in the cluster's folder.
const FILE_NAME: &str = "dev.addresses";
/// Until it is whole it has another name.
const FILE_NAME_NEW: &str = "dev.addresses.new";
/// The file's first line.
const HEAD: &str = "# Where the nodes of this cluster are found. A later `dendra dev` on this folder takes the same addresses.";

/// Addresses of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Under which the members know it: the proxy's.
    pub(super) known_as: SocketAddr,
    /// For clients.
    pub(super) listen: SocketAddr,
    /// For people and scrapers.
    pub(super) admin: SocketAddr,
    /// How the node came into the cluster.
    pub(super) life: Life,
}

/// How a node came into its cluster, and whether it left. The default is a founder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    /// True when the node came later.
    pub(super) has_joined: bool,
    /// True when the node's folder took the place of another one.
    pub(super) is_replaced: bool,
    /// True when the node is no member any more.
    pub(super) has_left: bool,
}

impl Life {
    /// The words of the line, after the addresses.
    const WORDS: [&str; 3] = ["joined", "replaced", "left"];

    fn words(self) -> Vec<&'static str> {
        let has = [self.has_joined, self.is_replaced, self.has_left];
        let words = Life::WORDS.into_iter().zip(has);
        words
            .filter(|(_, is_so)| *is_so)
            .map(|(word, _)| word)
            .collect()
    }

    fn parse(words: &[&str]) -> Option<Life> {
        let has = |word: &str| words.contains(&word);
        let life = Life {
            has_joined: has("joined"),
            is_replaced: has("replaced"),
            has_left: has("left"),
        };
        (life.words() == words).then_some(life)
    }
}

/// The addresses of one node, held until its proxy and the node itself take them.
pub(super) struct ReservedAddresses {
    pub(super) addresses: Addresses,
    /// The listener of the proxy.
    pub(super) proxy: TcpListener,
    /// Let go before the node starts.
    _node: [TcpListener; 2],
}

impl ReservedAddresses {
    fn bind(
        addresses: [SocketAddr; 3],
        life: Life,
    ) -> Result<ReservedAddresses, (SocketAddr, io::Error)> {
        let bind = |address| TcpListener::bind(address).map_err(|error| (address, error));
        let known_as = addresses[0];
        let [proxy, listen, admin] = addresses.map(bind);
        let (proxy, listen, admin) = (proxy?, listen?, admin?);
        let found = |door: &TcpListener| door.local_addr().map_err(|error| (known_as, error));
        let bound = Addresses {
            known_as: found(&proxy)?,
            listen: found(&listen)?,
            admin: found(&admin)?,
            life,
        };
        Ok(ReservedAddresses {
            addresses: bound,
            proxy,
            _node: [listen, admin],
        })
    }
}

/// The doors of the cluster in `folder`: those that it had before, or free ones that it has from
/// now on.
pub(super) fn doors(folder: &Path, nodes: Option<u8>) -> Result<Vec<ReservedAddresses>, Failure> {
    let path = folder.join(FILE_NAME);
    let Some(remembered) = read(&path)? else {
        refuse_forgotten(folder)?;
        return free_doors(folder, nodes.unwrap_or(NODES_DEFAULT));
    };
    if let Some(nodes) = nodes.filter(|nodes| usize::from(*nodes) != remembered.len()) {
        return Err(Failure::usage(format!(
            "--nodes {nodes}: the cluster in {} has {}: leave --nodes out, or name another --folder",
            folder.display(),
            remembered.len()
        )));
    }
    let bind = |(index, of): (usize, &Addresses)| {
        ReservedAddresses::bind([of.known_as, of.listen, of.admin], of.life)
            .map_err(|(address, error)| not_ours(index + 1, address, &path, &error))
    };
    remembered.iter().enumerate().map(bind).collect()
}

fn free_doors(folder: &Path, nodes: u8) -> Result<Vec<ReservedAddresses>, Failure> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let doors = (0..nodes)
        .map(|_| ReservedAddresses::bind([any; 3], Life::default()))
        .collect::<Result<Vec<ReservedAddresses>, _>>()
        .map_err(|(_, error)| Failure::new(Exit::FAILURE, format!("no free port: {error}")))?;
    let all: Vec<Addresses> = doors.iter().map(|doors| doors.addresses).collect();
    write(folder, &all).map_err(|error| {
        let name = folder.join(FILE_NAME);
        Failure::new(
            Exit::FAILURE,
            format!("{} cannot be written: {error}", name.display()),
        )
    })?;
    Ok(doors)
}

/// Free doors for one node more.
pub(super) fn door_of_a_joiner() -> io::Result<ReservedAddresses> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let life = Life {
        has_joined: true,
        ..Life::default()
    };
    ReservedAddresses::bind([any; 3], life).map_err(|(_, error)| error)
}

/// Nodes that ran in a folder without the file are members at unknown addresses.
fn refuse_forgotten(folder: &Path) -> Result<(), Failure> {
    let name = folder.display();
    let holds_node = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        let is_node = entry.file_name().to_string_lossy().starts_with("node-");
        Ok::<bool, io::Error>(is_node && entry.file_type()?.is_dir())
    };
    let held = fs::read_dir(folder)
        .and_then(|entries| entries.map(holds_node).collect::<io::Result<Vec<bool>>>())
        .map_err(|error| {
            Failure::new(Exit::FAILURE, format!("{name} cannot be listed: {error}"))
        })?;
    if held.contains(&true) {
        return Err(Failure::usage(format!(
            "{name} holds nodes and no {FILE_NAME}, so the addresses by which they know each other are lost: name another \
             --folder, or empty this one"
        )));
    }
    Ok(())
}

fn not_ours(node: usize, address: SocketAddr, path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let sentence = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "port {} is taken by another process, and node {node} is at {address} as {path} says: end that process, which \
             may be a node that outlived its `dendra dev`, or name another --folder",
            address.port()
        ),
        _ => format!(
            "{address}, where node {node} is as {path} says, cannot be bound: {error}: name another --folder"
        ),
    };
    Failure::new(Exit::FAILURE, sentence)
}

/// The addresses of an earlier start; `None` when there was none.
fn read(path: &Path) -> Result<Option<Vec<Addresses>>, Failure> {
    let unreadable = |reason: String| {
        Failure::new(
            Exit::FAILURE,
            format!(
                "{} cannot be read ({reason}), and it says where the nodes are: restore it, or name another --folder",
                path.display()
            ),
        )
    };
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map(Some).map_err(unreadable),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Leaves the file in `folder`: whole, or not at all, and still there after a crash of the machine.
pub(super) fn write(folder: &Path, all: &[Addresses]) -> io::Result<()> {
    let new: PathBuf = folder.join(FILE_NAME_NEW);
    let mut file = File::create(&new)?;
    file.write_all(text(all).as_bytes())?;
    file.sync_all()?;
    fs::rename(new, folder.join(FILE_NAME))?;
    File::open(folder)?.sync_all()
}

fn text(all: &[Addresses]) -> String {
    let mut text = format!("{HEAD}\n");
    for (index, of) in all.iter().enumerate() {
        let (node, known_as) = (index + 1, of.known_as);
        let (listen, admin) = (of.listen, of.admin);
        write!(
            text,
            "node {node} self {known_as} listen {listen} admin {admin}"
        )
        .expect("a String takes everything");
        for word in of.life.words() {
            write!(text, " {word}").expect("a String takes everything");
        }
        text.push('\n');
    }
    text
}

/// Reads the text of `text`; else which line is wrong.
fn parse(text: &str) -> Result<Vec<Addresses>, String> {
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let node = (all.len() + 1).to_string();
        let of = addresses(line, &node).ok_or_else(|| {
            format!(
                "line {} is not `node {node} self ADDRESS listen ADDRESS admin ADDRESS`",
                at + 1
            )
        })?;
        all.push(of);
    }
    if all.is_empty() {
        return Err("it names no node".to_owned());
    }
    Ok(all)
}

fn addresses(line: &str, node: &str) -> Option<Addresses> {
    let words: Vec<&str> = line.split(' ').collect();
    let [
        "node",
        number,
        "self",
        known_as,
        "listen",
        listen,
        "admin",
        admin,
        ref rest @ ..,
    ] = words[..]
    else {
        return None;
    };
    if number != node {
        return None;
    }
    Some(Addresses {
        life: Life::parse(rest)?,
        known_as: known_as.parse().ok()?,
        listen: listen.parse().ok()?,
        admin: admin.parse().ok()?,
    })
}

/// Where a cluster lives that names no folder.
pub(super) fn default_folder() -> PathBuf {
    std::env::temp_dir().join("dendra-dev")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn any_addresses() -> impl Strategy<Value = Addresses> {
        any::<([(IpAddr, u16); 3], [bool; 3])>().prop_map(|(places, life)| {
            let [known_as, listen, admin] = places.map(SocketAddr::from);
            let [has_joined, is_replaced, has_left] = life;
            Addresses {
                known_as,
                listen,
                admin,
                life: Life {
                    has_joined,
                    is_replaced,
                    has_left,
                },
            }
        })
    }

    proptest! {
        #[test]
        fn any_legal_addresses_are_read_as_they_were_written(
            all in prop::collection::vec(any_addresses(), 1..8),
        ) {
            prop_assert_eq!(parse(&text(&all)), Ok(all));
        }
    }

    fn two_nodes() -> Vec<Addresses> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let gone = Life {
            has_joined: true,
            has_left: true,
            ..Life::default()
        };
        [(1, Life::default()), (4, gone)]
            .map(|(port, life)| Addresses {
                known_as: at(port),
                listen: at(port + 1),
                admin: at(port + 2),
                life,
            })
            .to_vec()
    }

    #[test]
    fn what_was_written_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        assert_eq!(read(&path).expect("there is none"), None);
        // A crash between the two names.
        fs::write(folder.path().join(FILE_NAME_NEW), "node 1 se").expect("written");
        assert_eq!(read(&path).expect("there is none"), None);
        write(folder.path(), &two_nodes()).expect("written");
        assert_eq!(read(&path).expect("it is whole"), Some(two_nodes()));
    }

    #[test]
    fn a_line_that_says_something_else_is_named() {
        let whole = text(&two_nodes());
        for (was, is, reason) in [
            ("node 2", "node 3", "line 3 is not `node 2 self"),
            ("127.0.0.1:2", "127.0.0.1", "line 2 is not `node 1 self"),
            ("admin", "and", "line 2 is not"),
            ("joined left", "left joined", "line 3 is not"),
            ("node", "# node", "it names no node"),
        ] {
            let sentence = parse(&whole.replace(was, is)).expect_err("it is something else");
            assert!(sentence.starts_with(reason), "{sentence}");
        }
    }
}
