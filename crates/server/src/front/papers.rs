//! The files by which a front door and its engine know each other, and their renewal.
//!
//! Invariants
//! 1. The files in force were read whole and fit together.
//! 2. A request under way stays on its connection; the next one goes over a new connection.
//!
//! Not here: when they are read again (`tls/file_watch.rs`), the files of the node's own port
//! (`tls/keeper.rs`), the calls of `look` (`clients/listener.rs`).
//! See: docs/stores.md.

use super::dial::SealedDial;
use crate::limits;
use crate::secret_file::secret;
use crate::tls::TlsClient;
use crate::tls::file_watch::FileWatch;
use dendra_stores::{ClearDial, EngineDial, EngineFace, EngineLogin, StoreAccess};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which files; none = clear text, and no user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFiles {
    /// CA of the servers: with it connections are sealed.
    pub ca: Option<PathBuf>,
    /// Certificate that the front door shows, and its key.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// `USER:PASSWORD`.
    pub login: Option<PathBuf>,
}

impl StoreFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        let pair = self.pair.iter().flat_map(|(cert, key)| [cert, key]);
        let all = self.ca.iter().chain(pair).chain(&self.login);
        all.map(PathBuf::as_path)
    }

    fn read(&self) -> Result<(Option<TlsClient>, Option<EngineLogin>), String> {
        let own = self.pair.as_ref();
        let own = own.map(|(cert, key)| (cert.as_path(), key.as_path()));
        let client = match (&self.ca, own) {
            (Some(ca), own) => Some(TlsClient::read(ca, own)?),
            (None, None) => None,
            (None, Some(_)) => return Err("store-cert and store-key need store-ca".to_owned()),
        };
        let login = self.login.as_ref().map(|path| {
            let bytes = secret(path, "the login", limits::STORE_LOGIN_BYTES_MAX)?;
            let text = String::from_utf8_lossy(&bytes);
            EngineLogin::parse(&text)
                .ok_or_else(|| format!("{} does not hold USER:PASSWORD", path.display()))
        });
        Ok((client, login.transpose()?))
    }
}

/// See the module.
#[derive(Debug)]
pub struct StorePapers {
    files: StoreFiles,
    sealed: Option<Arc<SealedDial>>,
    face: Arc<EngineFace>,
    pub(crate) watch: FileWatch,
}

impl StorePapers {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// A sentence about the one that is of no use.
    pub fn open(files: StoreFiles) -> Result<StorePapers, String> {
        let watch = FileWatch::new("the files for the store", files.all());
        let (client, login) = files.read()?;
        Ok(StorePapers {
            files,
            sealed: client.map(|client| Arc::new(SealedDial::new(&client))),
            face: Arc::new(EngineFace::new(login)),
            watch,
        })
    }

    /// How a driver reaches its engine with them.
    pub fn access(&self) -> StoreAccess {
        let dial: Arc<dyn EngineDial> = match &self.sealed {
            Some(sealed) => Arc::<SealedDial>::clone(sealed),
            None => Arc::new(ClearDial),
        };
        StoreAccess {
            dial,
            face: Arc::clone(&self.face),
        }
    }

    /// Is there a file at all?
    pub(crate) fn has_files(&self) -> bool {
        self.files.all().next().is_some()
    }

    /// Reads the files again, if they have changed or `is_asked`.
    pub(crate) fn look(&self, is_asked: bool) {
        self.watch.look(self.files.all(), is_asked, || {
            let (client, login) = self.files.read()?;
            if let (Some(sealed), Some(client)) = (&self.sealed, client) {
                sealed.renew(&client);
            }
            self.face.renew(login);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::Ordering::Relaxed;

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("it is ours");
    }

    #[test]
    fn a_login_that_is_of_no_use_leaves_the_old_one_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("login");
        write(&path, "app:one");
        let papers = StorePapers::open(StoreFiles {
            login: Some(path.clone()),
            ..StoreFiles::default()
        });
        let papers = papers.expect("it is of use");
        let face = papers.access().face;
        let user = || face.login().expect("there is one").password;
        papers.look(false);
        assert_eq!((user().as_str(), face.renewals()), ("one", 0));
        write(&path, "nobody at all");
        papers.look(false);
        assert_eq!((user().as_str(), face.renewals()), ("one", 0));
        let readings = || [&papers.watch.taken, &papers.watch.refused].map(|n| n.load(Relaxed));
        assert_eq!(readings(), [0, 1]);
        papers.look(false);
        assert_eq!(readings(), [0, 1], "it is not read again and again");
        write(&path, "app:another");
        papers.look(false);
        assert_eq!((user().as_str(), face.renewals()), ("another", 1));
        // A signal has them read even if no sign shows that they have changed.
        papers.look(true);
        assert_eq!(readings(), [2, 1]);
    }

    #[test]
    fn a_certificate_without_a_ca_is_refused() {
        let files = StoreFiles {
            pair: Some(("a.crt".into(), "a.key".into())),
            ..StoreFiles::default()
        };
        let refused = StorePapers::open(files).expect_err("it is of no use");
        assert!(refused.contains("need store-ca"), "{refused}");
    }
}
