//! One broken rule, and how it reads.

use std::fmt;

/// One broken rule.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(super) path: String,
    /// One-based; 0 when the finding is about the file as a whole.
    pub(super) line: usize,
    pub(super) rule: &'static str,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(
        path: impl Into<String>,
        line: usize,
        rule: &'static str,
        message: impl Into<String>,
    ) -> Finding {
        Finding {
            path: path.into(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_file_line_rule_and_way_out() {
        let finding = Finding::new("a/b.rs", 3, "names", "call it something else");
        assert_eq!(
            finding.to_string(),
            "a/b.rs:3: [names] call it something else"
        );
    }
}
