//! Any bytes as the record of an epoch, or as a vote: what is read has one form.
#![no_main]

use dendra_ownership::epoch::chain::VoteNote;
use dendra_ownership::epoch::record::EpochRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = EpochRecord::decode(bytes) {
        assert_eq!(record.encode(), bytes);
    }
    if let Ok(vote) = VoteNote::decode(bytes) {
        assert_eq!(vote.encode(), bytes);
    }
});
