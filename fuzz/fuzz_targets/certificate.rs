//! Any bytes as a certificate of a client: names that a table of tokens may have, or a reason.
//! And as a list of revoked certificates, and as a key.
#![no_main]

use dendra_wire::certificate::{CertificateFacts, RevocationListParts, public_key};
use dendra_wire::limits::CERTIFICATE_NAMES_MAX;
use dendra_wire::rights::is_certificate_name;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(facts) = CertificateFacts::read(bytes) {
        assert!(facts.names.len() <= CERTIFICATE_NAMES_MAX);
        assert!(facts.names.iter().all(|name| is_certificate_name(name)));
    }
    if let Some(list) = RevocationListParts::read(bytes) {
        assert!(list.issuer.len() < list.signed.len() && list.signed.len() < bytes.len());
    }
    if let Some((algorithm, key)) = public_key(bytes) {
        assert!(algorithm.len() + key.len() < bytes.len());
    }
});
