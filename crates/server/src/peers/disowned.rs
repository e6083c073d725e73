//! A folder that another member does not let in: how the node hears of it, and what its next start finds.
//!
//! ```text
//! handshake: 409, hello, proof, "other-node: …" ─ from a member, for this handshake ─► Disowned ─► the node stops, exit 3
//!                                                                                        └► REFUSED ─► no start, exit 3
//! ```
//!
//! Invariants
//! 1. One member that remembers another folder is enough: what this one has forgotten may be what the two
//!    of them confirmed. Whoever remembers nothing has nothing to say.
//! 2. A refusal counts only from whom the handshake shows to be a member, and whom this node would let in
//!    itself. Everybody else is no reason to stop.
//! 3. A process whose member is there already ends when that stays so for `TWIN_PATIENCE`: longer than it takes to notice
//!    that a process has gone. Nothing is wrong with its folder.
//! 4. A folder that was refused stays so. The number of starts would catch up with what the others have seen.
//!
//! Not here: who is refused and in which words (crate `node`, `identity.rs`).
//! See: docs/consistency.md, section "When a member's folder is lost".

use super::cluster::{Cluster, STILL_THERE};
use dendra_engine::vfs::{Vfs, Wait, read_exact_at};
use dendra_node::MemberIndex;
use dendra_node::identity;
use dendra_wire::peer::{Hello, Proof, Role};
use std::io;

/// The file that keeps a folder from being started.
pub(crate) const MARK_NAME: &str = "REFUSED";
/// Until it is whole it has another name.
pub(crate) const MARK_NAME_NEW: &str = "REFUSED.new";
/// Of a file that somebody put in its place, this much is shown.
const MARK_BYTES_MAX: usize = 4096;

/// Why there is no link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoLink {
    /// It is tried again.
    ForNow(String),
    /// It is tried again, but one of the two does not let the other in: somebody has to change settings.
    NotLetIn(String),
    /// The other side has links to another process that is this member. It is tried again for a while.
    Elsewhere(String),
    /// The other side knows another folder than this one: nothing is tried again.
    Disowned(String),
}

/// Why this node has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disowned {
    /// Who says so, and why.
    pub(crate) sentence: String,
    /// Must no node start on this folder any more?
    pub(crate) is_for_ever: bool,
}

impl From<String> for NoLink {
    fn from(reason: String) -> NoLink {
        NoLink::ForNow(reason)
    }
}

impl From<&str> for NoLink {
    fn from(reason: &str) -> NoLink {
        NoLink::ForNow(reason.to_owned())
    }
}

/// The own side of a handshake.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) cluster: &'a Cluster,
    /// Who is meant.
    pub(super) member: MemberIndex,
    pub(super) own: &'a Hello,
    /// As it was sent.
    pub(super) own_line: &'a str,
}

/// How a handshake was refused, in the words of the other side.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedBy<'a> {
    pub(super) status: u16,
    pub(super) hello: Option<&'a str>,
    pub(super) proof: Option<&'a Proof>,
    /// Code word and sentence.
    pub(super) body: &'a str,
}

impl Asking<'_> {
    /// What a refused handshake means for this node.
    pub(super) fn refused(self, by: RefusedBy<'_>) -> NoLink {
        let said = by.body.trim();
        let code = said.split(':').next().unwrap_or_default();
        let is_for_ever = identity::DISOWNING.contains(&code);
        if by.status == 409 && (is_for_ever || code == STILL_THERE) && self.is_member(by) {
            let url = self.cluster.url(self.member);
            return match is_for_ever {
                true => NoLink::Disowned(format!("{url} does not let this folder in: {said}")),
                false => NoLink::Elsewhere(format!("{url} does not let this process in: {said}")),
            };
        }
        let reason = format!("it answered {}: {said}", by.status);
        match by.status {
            400 | 403 | 404 | 409 | 421 => NoLink::NotLetIn(reason),
            // It starts or stops, has too much to do, or somebody in between has nobody behind it.
            _ => NoLink::ForNow(reason),
        }
    }

    /// Is it the member that is meant who refuses, in answer to this handshake?
    fn is_member(self, by: RefusedBy<'_>) -> bool {
        let (Some(line), Some(proof)) = (by.hello, by.proof) else {
            return false;
        };
        let Ok(theirs) = Hello::parse(line.as_bytes()) else {
            return false;
        };
        let welcome = self.cluster.welcome(self.own, &theirs);
        welcome.is_ok_and(|(met, _)| met == self.member)
            && self
                .cluster
                .check(proof, Role::Acceptor, self.own_line, line)
    }
}

/// Leaves `sentence` in the folder for every later start.
pub(crate) fn mark(vfs: &dyn Vfs, sentence: &str) -> io::Result<()> {
    let text = format!(
        "{sentence}\n\nNo node starts on this folder any more. docs/consistency.md says what to do when a member's folder is \
         lost. Remove this file only when the other members have lost more than this folder has forgotten.\n"
    );
    if vfs.list()?.iter().any(|name| name == MARK_NAME_NEW) {
        vfs.remove(MARK_NAME_NEW)?;
    }
    let file = vfs.create(MARK_NAME_NEW)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync()?;
    vfs.rename(MARK_NAME_NEW, MARK_NAME)?;
    vfs.sync_folder()
}

/// Why no node may start on the folder, if that was left in it.
pub(crate) fn marked(vfs: &dyn Vfs) -> io::Result<Option<String>> {
    if !vfs.list()?.iter().any(|name| name == MARK_NAME) {
        return Ok(None);
    }
    let file = vfs.open(MARK_NAME)?;
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    let mut text = vec![0; len.min(MARK_BYTES_MAX)];
    read_exact_at(&*file, &mut text, 0, Wait::Block)?;
    let text = String::from_utf8_lossy(&text);
    let sentence = text.lines().next().unwrap_or_default();
    Ok(Some(format!(
        "no node may start on it, as its file {MARK_NAME} says: {sentence}"
    )))
}
