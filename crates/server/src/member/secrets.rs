//! The secrets of the cluster that are valid now, and their use in handshakes.
//!
//! ```text
//! each second: the file is read ─┬─ other lines, of use ─► in force for the next handshake
//!                                └─ of no use           ─► a warning, once; the old ones stay
//!
//! asker     proves that it knows the first one; refused for that, the second one, on a new connection
//! acceptor  takes a proof of any of them; the keys of the link are of the one that was proven
//! ```
//!
//! Invariants
//! 1. Two members with one secret in common have links, in any order of their lines.
//! 2. A link that is open stays; the next handshake uses the secrets in force.
//! 3. A node that began without a secret never has one, and one that began with one never has none.
//!
//! Not here: the form of a secret (`settings/cluster.rs`), the bytes of a proof (crate `wire`).
//! See: docs/peer.md, section "Secret"; docs/operating.md, section "The secret of the cluster".

use crate::settings::{ClusterSettings, Secret};
use arc_swap::ArcSwapOption;
use dendra_wire::peer::{Proof, Role, SessionKeys};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// See the module.
pub(crate) struct Secrets {
    valid: ArcSwapOption<Secret>,
    file: Option<PathBuf>,
    /// The last reason why the file was of no use.
    said: Mutex<String>,
}

/// Both hellos of a handshake, as they were sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hellos<'a> {
    pub(crate) asker: &'a str,
    pub(crate) acceptor: &'a str,
}

impl Hellos<'_> {
    fn keys(self, secret: Option<&[u8]>) -> SessionKeys {
        SessionKeys::new(secret, self.asker, self.acceptor)
    }

    fn prove(self, secret: Option<&[u8]>) -> Proof {
        let secret = secret.unwrap_or_default();
        Proof::new(secret, Role::Asker, self.asker, self.acceptor)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(not shown)")
    }
}

impl Secrets {
    /// Secrets that a node begins with.
    pub(crate) fn new(settings: &ClusterSettings) -> Secrets {
        Secrets {
            valid: ArcSwapOption::from_pointee(settings.secret.clone()),
            file: settings.secret_file.clone(),
            said: Mutex::default(),
        }
    }

    /// Does the node have a secret at all?
    pub(crate) fn is_set(&self) -> bool {
        self.valid.load().is_some()
    }

    /// How many are valid.
    pub(crate) fn count(&self) -> usize {
        self.valid.load().as_ref().map_or(0, |s| s.expose().len())
    }

    /// The proof of an asker, and the keys that follow from it: of its first secret, or at its next
    /// tries of the others. `None` when there is no further one.
    pub(crate) fn prove(&self, at: usize, hellos: Hellos<'_>) -> Option<(Proof, SessionKeys)> {
        let all = self.all(hellos);
        all.into_iter().nth(at)
    }

    /// All proofs that are taken in this handshake, each with the keys that follow from it.
    pub(crate) fn all(&self, hellos: Hellos<'_>) -> Vec<(Proof, SessionKeys)> {
        let of = |secret| (hellos.prove(secret), hellos.keys(secret));
        match &*self.valid.load() {
            Some(secret) => secret.expose().map(|line| of(Some(line))).collect(),
            None => vec![of(None)],
        }
    }

    /// The keys that follow from the proof of an asker, if it is one of a valid secret.
    pub(crate) fn accept(&self, proof: &Proof, hellos: Hellos<'_>) -> Option<SessionKeys> {
        let holds = |secret| proof.holds(secret, Role::Asker, hellos.asker, hellos.acceptor);
        match &*self.valid.load() {
            Some(secret) => {
                let mut lines = secret.expose();
                let proven = lines.find(|line| holds(line));
                proven.map(|line| hellos.keys(Some(line)))
            }
            None => holds(&[]).then(|| hellos.keys(None)),
        }
    }

    /// The file that has to be looked at, if there is one.
    pub(crate) fn is_read_again(&self) -> bool {
        self.file.is_some() && self.is_set()
    }

    /// Reads the file again.
    pub(crate) fn look(&self) {
        let Some(file) = &self.file else { return };
        let mut said = self.said.lock().expect("no holder panics");
        match Secret::read(file) {
            Ok(secret) => {
                said.clear();
                if self.valid.load().as_deref() != Some(&secret) {
                    let valid = secret.expose().len();
                    self.valid.store(Some(Arc::new(secret)));
                    tracing::info!(
                        valid,
                        "the secret of the cluster was read again and is in force"
                    );
                }
            }
            Err(sentence) if sentence != *said => {
                tracing::warn!(
                    sentence,
                    "the secret of the cluster was read again and is of no use: the old one stays in force"
                );
                *said = sentence;
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Member, Topology};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    const OLD: &str = "hush, hush, hush";
    const NEW: &str = "shush, shush, shush";
    const HELLOS: Hellos<'_> = Hellos {
        asker: "a",
        acceptor: "b",
    };

    fn write(path: &Path, text: &str) {
        let mut file = std::fs::File::options();
        let file = file.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file.open(path).expect("a file");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
    }

    fn secrets(path: &Path, text: &str) -> Secrets {
        write(path, text);
        let member = Member::new("h1:1").expect("an address");
        let topology = Topology::new("dendra", vec![member], 1).expect("one member");
        let mut settings = ClusterSettings::new(topology, "h1:1").expect("a member");
        settings.secret = Some(Secret::read(path).expect("a secret"));
        settings.secret_file = Some(path.to_owned());
        Secrets::new(&settings)
    }

    /// At which try of the asker the acceptor takes its proof.
    fn meet(asker: &Secrets, acceptor: &Secrets) -> Option<usize> {
        (0..)
            .map_while(|at| asker.prove(at, HELLOS))
            .position(|(proof, keys)| {
                let Some(theirs) = acceptor.accept(&proof, HELLOS) else {
                    return false;
                };
                let sum = |keys: &SessionKeys| {
                    let mut frame = Vec::new();
                    let mut seal = keys.of_requests(Role::Asker);
                    dendra_wire::peer::encode_probe(&mut frame, &mut seal, 1);
                    frame
                };
                assert_eq!(sum(&keys), sum(&theirs), "the same keys");
                true
            })
    }

    #[test]
    fn members_with_one_secret_in_common_meet_and_others_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |text: &str| secrets(&folder.path().join("secret"), text);
        let both = format!("{OLD}\n{NEW}\n");
        for (asker, acceptor, at) in [
            (OLD, OLD, Some(0)),
            (OLD, both.as_str(), Some(0)),
            (NEW, both.as_str(), Some(0)),
            (both.as_str(), OLD, Some(0)),
            (both.as_str(), NEW, Some(1)),
            (OLD, NEW, None),
        ] {
            assert_eq!(
                meet(&of(asker), &of(acceptor)),
                at,
                "{asker:?} {acceptor:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_read_again_is_in_force_and_one_of_no_use_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let (old, other) = (secrets(&path, OLD), folder.path().join("other"));
        let new = secrets(&other, NEW);
        for useless in ["", "short", "hush, hush, hush\na\nb"] {
            write(&path, useless);
            old.look();
            assert_eq!((old.count(), meet(&new, &old)), (1, None), "{useless}");
        }
        write(&path, &format!("{OLD}\n{NEW}"));
        old.look();
        assert_eq!((old.count(), meet(&new, &old)), (2, Some(0)));
        write(&path, NEW);
        old.look();
        assert_eq!(old.count(), 1);
        assert_eq!(meet(&secrets(&other, OLD), &old), None, "it is over");
        std::fs::remove_file(&path).expect("it is there");
        old.look();
        assert_eq!(meet(&new, &old), Some(0), "it stays");
    }
}
