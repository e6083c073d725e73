//! Files of released formats stay readable.
