//! Damaged tables: every answer is right or an error.
