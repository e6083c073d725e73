//! The name of an order's effects that were shown and not carried out: of a plan, or a loss.

use std::fmt;

/// Names a plan, or a loss, that was shown and not carried out: 64 bits of all that it would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DraftId(pub u64);

impl fmt::Display for DraftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl DraftId {
    /// Reads the text of `Display`.
    pub fn parse(text: &str) -> Option<DraftId> {
        let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| is_hex && text.len() == 16).map(DraftId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_id_of_a_draft_is_read_as_it_was_shown(number: u64) {
            let id = DraftId(number);
            prop_assert_eq!(DraftId::parse(&id.to_string()), Some(id));
            prop_assert_eq!(DraftId::parse(&id.to_string().to_uppercase()), Some(id));
        }
    }
}
