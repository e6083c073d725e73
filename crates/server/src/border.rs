//! The border of a node: TLS, tokens and the audit log, between its ports and its clients.
//!
//! ```text
//! Settings ─► Border { tls, rights, audit } ─► admin plane, loops
//! ```
//!
//! Invariants
//! 1. It is whole before the first client is accepted: a file that cannot be used ends the start.
//!
//! Not here: TLS (`tls/`), tokens (`rights/`), the log (`audit/`), waits for changes
//! (`border_watch.rs`). See: SECURITY.md.

use crate::audit::Audit;
use crate::border_watch::BorderWatch;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::tls::Tls;
use dendra_wire::hosts::authority_of_url;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub(crate) struct Border {
    /// The certificates and keys of connections; `None` = clear text.
    pub(crate) tls: Option<Arc<Tls>>,
    /// The tokens and their grants; `None` = every request is allowed.
    pub(crate) rights: Option<Arc<Rights>>,
    /// The audit log; `None` = there is none.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) watch: Arc<BorderWatch>,
}

impl Border {
    /// The border that the settings describe.
    ///
    /// # Errors
    /// A sentence about the file that is of no use.
    pub(crate) fn open(settings: &Settings) -> Result<Border, String> {
        let watch = Arc::new(BorderWatch::default());
        let tls = settings.tls.as_ref();
        // A node that knows its own address alone has no links.
        let member = settings.cluster.as_ref().filter(|it| !it.is_single);
        let member = member.map(|cluster| authority_of_url(&cluster.member().url).to_owned());
        let tls = tls.map(|tls| Tls::new(tls, member, Arc::clone(&watch)));
        let audit = settings.audit.as_ref().map(Audit::start).transpose()?;
        Ok(Border {
            tls: tls.transpose()?.map(Arc::new),
            rights: settings.root_token.as_ref().map(Rights::new).map(Arc::new),
            audit: audit.map(Arc::new),
            watch,
        })
    }
}
