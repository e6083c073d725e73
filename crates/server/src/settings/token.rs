//! The token that opens everything: the operator's own, from a file.
//!
//! Invariants
//! 1. It is never shown, and after the start a node knows its hash alone.
//!
//! Not here: the tokens that are made with it (`rights/`).
//! See: docs/cli.md, section "Tokens".

use dendra_wire::rights::{TokenHash, hash_of};
use std::fmt;
use std::path::Path;

/// A file of a token has a line; a longer one is something else.
const FILE_BYTES_MAX: u64 = 1 << 10;

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct RootToken(TokenHash);

impl RootToken {
    /// The token in a file, with or without a line feed after it.
    ///
    /// # Errors
    /// When it cannot be read, is open to others, or holds no token.
    pub fn read(path: &Path) -> Result<RootToken, String> {
        let bytes = crate::secret_file::secret(path, "the root token", FILE_BYTES_MAX)?;
        RootToken::new(&bytes).ok_or_else(|| {
            let name = path.display();
            format!("the root token, {name}, is no token: make one in another file with dendra token root FILE")
        })
    }

    /// The token without white space around it; `None` when it is none.
    pub fn new(bytes: &[u8]) -> Option<RootToken> {
        hash_of(bytes.trim_ascii()).map(RootToken)
    }

    pub(crate) fn hash(&self) -> TokenHash {
        self.0
    }
}

impl fmt::Debug for RootToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootToken(not shown)")
    }
}
