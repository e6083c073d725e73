//! A folder that another member does not let in: how the node hears of it, and what its next start finds.
//!
//! ```text
//! handshake: farewell, "other-node: …" ─ under the keys of this handshake ─► Disowned ─► the node stops, exit 3
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
//! See: docs/operating.md, section "When a member's folder is lost".

use super::cluster::{Cluster, STILL_THERE};
use bytes::Bytes;
use dendra_engine::vfs::{Vfs, Wait, read_exact_at};
use dendra_node::MemberIndex;
use dendra_node::identity;
use dendra_wire::peer::{self, Malformed, Message, Seal};
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

/// What a member says for certain about this node, in the words of a refusal: code word and sentence.
pub(super) fn told(cluster: &Cluster, member: MemberIndex, said: &str) -> NoLink {
    let code = said.split(':').next().unwrap_or_default();
    let url = cluster.url(member);
    if identity::DISOWNING.contains(&code) {
        NoLink::Disowned(format!("{url} does not let this folder in: {said}"))
    } else if code == STILL_THERE {
        NoLink::Elsewhere(format!("{url} does not let this process in: {said}"))
    } else {
        NoLink::NotLetIn(said.to_owned())
    }
}

/// What a frame means that does not fit the keys of the handshake.
pub(super) fn unproven(
    cluster: &Cluster,
    member: MemberIndex,
    frame: &Bytes,
    malformed: Malformed,
) -> NoLink {
    match peer::decode(frame, &mut Seal::plain()) {
        Ok(Message::Farewell(said)) => NoLink::NotLetIn(said),
        _ => NoLink::NotLetIn(format!(
            "cluster-secret: {} does not know the secret that {} knows ({malformed}): start both with the same \
             --cluster-secret-file",
            cluster.url(member),
            cluster.url(cluster.me)
        )),
    }
}

/// What the refusal of a hello means: nothing shows that a member made it.
pub(super) fn refused(status: u16, body: &str) -> NoLink {
    let reason = format!("it answered {status}: {}", body.trim());
    match status {
        400 | 403 | 404 | 409 | 421 => NoLink::NotLetIn(reason),
        // It starts or stops, has too much to do, or somebody in between has nobody behind it.
        _ => NoLink::ForNow(reason),
    }
}

/// Leaves `sentence` in the folder for every later start.
pub(crate) fn mark(vfs: &dyn Vfs, sentence: &str) -> io::Result<()> {
    let text = format!(
        "{sentence}\n\nNo node starts on this folder any more. docs/operating.md says what to do when a member's folder is \
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
