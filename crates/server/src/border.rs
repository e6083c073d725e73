//! What stands between a node and those that ask: TLS, tokens, the audit log.
//!
//! ```text
//! Settings ─► Border { tls, rights, audit } ─► admin plane, loops
//! ```
//!
//! Invariants
//! 1. It is whole before the first client is accepted: what cannot be used ends the start.
//!
//! Not here: TLS (`tls/`), tokens (`rights/`), the log (`audit/`), what changes there (`border_watch.rs`).
//! See: SECURITY.md.

use crate::audit::Audit;
use crate::border_watch::BorderWatch;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::tls::Tls;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub(crate) struct Border {
    /// What connections are sealed with; `None` = clear text.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Who may do what; `None` = everybody everything.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Where it is written who did what.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) watch: Arc<BorderWatch>,
}

impl Border {
    /// What the settings say.
    ///
    /// # Errors
    /// A sentence about the file that is of no use.
    pub(crate) fn open(settings: &Settings) -> Result<Border, String> {
        let watch = Arc::new(BorderWatch::default());
        let tls = settings.tls.as_ref();
        let tls = tls.map(|tls| Tls::new(tls, Arc::clone(&watch)));
        let audit = settings.audit.as_ref().map(Audit::start).transpose()?;
        Ok(Border {
            tls: tls.transpose()?.map(Arc::new),
            rights: settings.root_token.as_ref().map(Rights::new).map(Arc::new),
            audit: audit.map(Arc::new),
            watch,
        })
    }
}
