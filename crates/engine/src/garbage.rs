//! Files that wait for their removal: replaced tables and manifests.

use crate::kept::Kept;
use crate::table::{self, Table};
use crate::vfs::Vfs;
use crate::waits::hold;
use crate::{Error, Result};
use std::sync::{Arc, Mutex};

/// Files that no manifest names any more.
#[derive(Default)]
pub(crate) struct Garbage {
    names: Mutex<Vec<String>>,
    /// Replaced tables that a reader may still hold.
    tables: Mutex<Vec<Arc<Table>>>,
}

impl Garbage {
    pub(crate) fn add(&self, name: String) {
        hold(&self.names).push(name);
    }

    pub(crate) fn add_table(&self, table: Arc<Table>) {
        hold(&self.tables).push(table);
    }

    /// Removes files that no reader needs; true when there was one. Those that are kept for backups
    /// stay: they come here again when they are not.
    pub(crate) fn collect(&self, vfs: &dyn Vfs, kept: &Kept) -> Result<bool> {
        let mut names = hold(&self.names);
        hold(&self.tables).retain(|table| {
            let is_held = Arc::strong_count(table) > 1;
            if !is_held {
                names.push(table::file_name(table.meta().id));
            }
            is_held
        });
        names.retain(|name| !kept.holds(name));
        let found = !names.is_empty();
        let mut failure = None;
        names.retain(|name| match vfs.remove(name) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                failure.get_or_insert(Error::io(format!("removing {name}"), e));
                true
            }
            _ => false,
        });
        failure.map_or(Ok(found), Err)
    }
}
