//! The node's own certificate, made anew before it ends, where the node has the CA:
//! `--tls-renew-with`.
//!
//! ```text
//! each LOOK: the certificate in the file ─► a third of its time is left ─► a new key, the same names, as long a time
//!            ─► key and certificate in their places ─► the server reads them (tls/keeper.rs)
//! ```
//!
//! Invariants
//! 1. A start is refused when the CA did not sign the certificate: others would not know the new
//!    one.
//! 2. The names stay: which hosts a member has is the operator's to say.
//! 3. A failure is an error in the log, and tried again at the next look.
//!
//! Not here: the files of `dendra cert` (`cert.rs`), warnings of certificates that end (crate
//! `server`).
//! See: docs/operating.md, section "Certificates".

use crate::cert;
use crate::exit::Failure;
use dendra_server::settings::TlsSettings;
use dendra_server::tls::CertificateFacts;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(10);

/// The certificates that are renewed, and the CA.
#[derive(Debug)]
pub(crate) struct Renewal {
    tls: TlsSettings,
    folder: PathBuf,
}

impl Renewal {
    /// Renews the certificate of `tls` with the CA in `folder`.
    ///
    /// # Errors
    /// It has no key there, or it did not sign the certificate.
    pub(crate) fn new(tls: &TlsSettings, folder: PathBuf) -> Result<Renewal, Failure> {
        let begins = |sentence: String| Failure::usage(format!("tls-renew-with: {sentence}"));
        if cert::authority(&folder)
            .map_err(|failure| begins(failure.sentence))?
            .is_none()
        {
            return Err(begins(format!(
                "{} has no ca.crt and no ca.key: dendra cert makes them",
                folder.display()
            )));
        }
        let found = dendra_server::tls::certificates(&tls.cert, "the certificate");
        let found = found.map_err(Failure::usage)?;
        let facts = cert::facts(&tls.cert)?;
        // It may have ended: then it is renewed at once.
        let last_s = u64::try_from(facts.until_s.saturating_sub(1)).unwrap_or(0);
        dendra_server::tls::check_signed(&folder.join("ca.crt"), &found[0], last_s)
            .map_err(begins)?;
        Ok(Renewal {
            tls: tls.clone(),
            folder,
        })
    }

    /// Renews each certificate that is due, once before the server reads it, and then from time to
    /// time on a thread of its own.
    pub(crate) fn start(self) -> Result<(), Failure> {
        self.look()?;
        let spawned = std::thread::Builder::new()
            .name("renewal".to_owned())
            .spawn(move || {
                loop {
                    std::thread::sleep(LOOK);
                    if let Err(failure) = self.look() {
                        tracing::error!("the certificate is not renewed: {}", failure.sentence);
                    }
                }
            });
        match spawned {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::new(
                crate::exit::Exit::FAILURE,
                format!("the certificate would not be renewed: no thread ({error})"),
            )),
        }
    }

    fn look(&self) -> Result<(), Failure> {
        let facts = cert::facts(&self.tls.cert)?;
        let now_s = i64::try_from(cert::now_s()).unwrap_or(i64::MAX);
        if !is_due(&facts, now_s) {
            return Ok(());
        }
        let Some(ca) = cert::authority(&self.folder)? else {
            return Err(Failure::usage(format!(
                "{} has no CA any more",
                self.folder.display()
            )));
        };
        let params = cert::of_member(&facts.hosts)?;
        let time = time_of(&facts);
        let place: (&Path, &Path) = (&self.tls.cert, &self.tls.key);
        cert::write_pair(&self.folder, &ca, params, time, place)?;
        tracing::info!(
            file = %self.tls.cert.display(),
            hours = time.as_secs() / 3_600,
            "the certificate is renewed"
        );
        Ok(())
    }

    /// The renewal that the option of `dendra serve` asks for.
    pub(crate) fn of(
        tls: Option<&TlsSettings>,
        folder: Option<PathBuf>,
    ) -> Result<Option<Renewal>, Failure> {
        let Some((tls, folder)) = tls.zip(folder) else {
            return Ok(None);
        };
        Renewal::new(tls, folder).map(Some)
    }
}

/// Is only a third of its time left?
fn is_due(facts: &CertificateFacts, now_s: i64) -> bool {
    facts.until_s - now_s < (facts.until_s - facts.from_s) / 3
}

/// How long the next one holds from now on: as long as this one did.
fn time_of(facts: &CertificateFacts) -> Duration {
    let whole = Duration::from_secs(u64::try_from(facts.until_s - facts.from_s).unwrap_or(0));
    let since = whole.saturating_sub(cert::BACKDATED);
    if since < cert::BACKDATED {
        whole
    } else {
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(from_s: i64, until_s: i64) -> CertificateFacts {
        CertificateFacts {
            names: Vec::new(),
            hosts: Vec::new(),
            from_s,
            until_s,
            serial: Vec::new(),
        }
    }

    #[test]
    fn a_certificate_is_due_with_the_last_third_of_its_time() {
        let it = facts(1_000, 4_000);
        assert!(!is_due(&it, 3_000));
        assert!(is_due(&it, 3_001));
        assert!(is_due(&it, 9_000), "it has ended");
    }

    #[test]
    fn the_next_one_holds_as_long() {
        let hour = 3_600;
        let day = Duration::from_secs(24 * 3_600);
        assert_eq!(time_of(&facts(-hour, 24 * hour)), day);
        assert_eq!(time_of(&facts(0, 600)), Duration::from_secs(600));
    }
}
