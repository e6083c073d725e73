//! Faults of a certificate, and the way out of each, in the words of a client and of a member.
//!
//! Invariants
//! 1. A sentence is made of certificates alone: of any other end of a session the request may have
//!    been applied.
//! 2. Each names the way out.
//!
//! Not here: the sentences about files (`files.rs`).

use super::files::OwnFault;
use crate::settings::TlsSettings;
use rustls::{AlertDescription, CertificateError, Error};
use std::io;
use std::path::Path;

/// The sentence about a session that was not made because of a certificate; `None` when `error` has
/// another cause. No byte of the client's request was looked at then.
pub fn certificate_fault(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    CLIENT.about(error)
}

/// The sentence about a connection between members that broke.
pub(crate) fn link_fault(error: &io::Error) -> String {
    MEMBER.about(error).unwrap_or_else(|| error.to_string())
}

/// The sentences for one reader.
struct FaultWords {
    /// The begin of a sentence about the other side's certificate, which is refused here.
    refused: &'static str,
    /// The way out when it is for another name.
    for_another_name: &'static str,
    /// The way out when no CA that is trusted here signed it.
    of_another_ca: &'static str,
    /// The other side misses a certificate.
    wanted: &'static str,
    /// The own certificate has ended there.
    ended: &'static str,
    /// The own certificate was taken back there.
    taken_back: &'static str,
    /// No CA that is trusted there signed the own certificate.
    untrusted: &'static str,
}

const CLIENT: FaultWords = FaultWords {
    refused: "the node's certificate is refused",
    for_another_name: "use such a name in the URL, or make a certificate that has both (dendra cert \
                       FOLDER --member HOST,OTHER --renew)",
    of_another_ca: "another CA signed it: name that one with --ca. Or the node does not show the \
                    certificates between its own and the CA: put them behind its own into its file \
                    of --tls-cert",
    wanted: "the node wants a certificate: show one with --cert and --key-file",
    ended: "the node refuses the certificate of --cert: it has ended, or does not hold yet",
    taken_back: "the node refuses the certificate of --cert: it was taken back",
    untrusted: "the node refuses the certificate of --cert: show one of the CA that it trusts for \
                clients (--tls-client-ca), and have the file of --cert hold the certificates between \
                it and the CA, too",
};

const MEMBER: FaultWords = FaultWords {
    refused: "its certificate is refused here",
    for_another_name: "make one with the host of its URL (dendra cert FOLDER --member HOST --renew)",
    of_another_ca: "another CA signed it: have the file of --tls-peer-ca here hold that CA, too. Or \
                    it does not show the certificates between its own and the CA: put them behind \
                    its own into its file of --tls-cert",
    wanted: "it wants a certificate: start this member with --tls-peer-ca",
    ended: "it refuses this member's certificate: it has ended, or does not hold yet there",
    taken_back: "it refuses this member's certificate: it was taken back",
    untrusted: "it refuses this member's certificate: have the file of --tls-peer-ca there hold the \
                CA that signed it, too, and the file of --tls-cert here the certificates between",
};

impl FaultWords {
    /// `None` when `error` has another cause than a certificate.
    fn about(&self, error: &(dyn std::error::Error + 'static)) -> Option<String> {
        let mut cause = Some(error);
        while let Some(found) = cause {
            // An io::Error does not name the error that it wraps as its source.
            let wrapped = found.downcast_ref::<io::Error>().and_then(|e| e.get_ref());
            let tls = match wrapped {
                Some(wrapped) => wrapped.downcast_ref::<Error>(),
                None => found.downcast_ref::<Error>(),
            };
            let sentence = match tls {
                Some(Error::InvalidCertificate(bad)) => Some(self.refusal(bad)),
                Some(Error::AlertReceived(alert)) => self.alert(*alert).map(str::to_owned),
                _ => None,
            };
            if sentence.is_some() {
                return sentence;
            }
            cause = found.source();
        }
        None
    }

    fn refusal(&self, bad: &CertificateError) -> String {
        let remedy = match bad {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                self.for_another_name
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => self.of_another_ca,
            _ => remedy_by_time(bad),
        };
        format!("{} ({bad}): {remedy}", self.refused)
    }

    fn alert(&self, alert: AlertDescription) -> Option<&'static str> {
        match alert {
            AlertDescription::CertificateRequired => Some(self.wanted),
            AlertDescription::CertificateExpired => Some(self.ended),
            AlertDescription::CertificateRevoked => Some(self.taken_back),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate => Some(self.untrusted),
            _ => None,
        }
    }
}

/// For a certificate that holds at another time, or has another fault.
fn remedy_by_time(bad: &CertificateError) -> &'static str {
    match bad {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "put a new one there (dendra cert FOLDER --member HOST --renew), or set the clock of \
             this machine"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "compare the clocks of both machines"
        }
        _ => "put another one there",
    }
}

/// The sentence about the own certificate of the member at `host`, which the others do not take.
pub(super) fn own_fault(fault: &OwnFault, settings: &TlsSettings, host: &str) -> String {
    let cert = settings.cert.display();
    let host = dendra_wire::hosts::name_of_authority(host);
    let bad = match fault {
        OwnFault::Refused(Error::InvalidCertificate(bad)) => bad,
        OwnFault::Refused(other) => return format!("the certificate {cert}: {other}"),
        OwnFault::Unreadable(why) => return format!("the certificate {cert}: {why}"),
    };
    match bad {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the certificate {cert} is not for {host}, the host of --self, so that the other \
                 members would refuse it: make one that is (dendra cert FOLDER --member {host} \
                 --renew)"
            )
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            let ca = settings.peer_ca.as_deref().unwrap_or(Path::new(""));
            format!(
                "the certificate {cert} is of no CA in {}, so that the other members would refuse \
                 it: put one of that CA there, with the certificates between it and the CA behind \
                 it, or first add the new CA to the file of --tls-peer-ca on every member",
                ca.display()
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!(
                "the certificate {cert} is not for a member, which has to serve and to ask: make \
                 one that is (dendra cert FOLDER --member {host} --renew)"
            )
        }
        CertificateError::Revoked => format!(
            "the certificate {cert} was taken back (--tls-revoked), so that the other members \
             refuse it: make a new one (dendra cert FOLDER --member {host})"
        ),
        _ => format!(
            "the certificate {cert} would be refused by the other members ({bad}): {}",
            remedy_by_time(bad)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: Error) -> Option<String> {
        certificate_fault(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn a_member_is_told_on_which_side_to_change_what() {
        let told = |error| link_fault(&io::Error::new(io::ErrorKind::InvalidData, error));
        for (bad, remedy) in [
            (CertificateError::Expired, "--renew"),
            (CertificateError::NotValidForName, "the host of its URL"),
            (CertificateError::BadSignature, "--tls-peer-ca here"),
            (CertificateError::UnknownIssuer, "--tls-peer-ca here"),
            (CertificateError::UnknownIssuer, "certificates between its"),
        ] {
            let sentence = told(Error::InvalidCertificate(bad));
            assert!(sentence.contains(remedy), "{sentence}");
        }
        for (alert, remedy) in [
            (AlertDescription::DecryptError, "--tls-peer-ca there"),
            (AlertDescription::UnknownCA, "--tls-peer-ca there"),
            (AlertDescription::CertificateRequired, "start this member"),
        ] {
            let sentence = told(Error::AlertReceived(alert));
            assert!(sentence.contains(remedy), "{sentence}");
        }
        assert_eq!(link_fault(&io::Error::other("gone")), "gone");
    }

    #[test]
    fn a_member_is_told_why_its_own_certificate_shuts_it_out() {
        let mut settings = TlsSettings::new("h1.crt", "h1.key");
        settings.peer_ca = Some("members.crt".into());
        for (bad, part) in [
            (
                CertificateError::NotValidForName,
                "h1.crt is not for h1, the",
            ),
            (CertificateError::UnknownIssuer, "of no CA in members.crt"),
            (CertificateError::BadSignature, "of no CA in members.crt"),
            (CertificateError::InvalidPurpose, "--member h1 --renew"),
            (CertificateError::Revoked, "h1.crt was taken back"),
            (CertificateError::Expired, "put a new one there"),
        ] {
            let fault = OwnFault::Refused(Error::InvalidCertificate(bad));
            let sentence = own_fault(&fault, &settings, "h1:8080");
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn each_fault_of_a_certificate_names_its_remedy_and_other_faults_are_none() {
        for (bad, remedy) in [
            (CertificateError::Expired, "--renew"),
            (CertificateError::NotValidYet, "compare the clocks"),
            (CertificateError::NotValidForName, "in the URL"),
            (CertificateError::UnknownIssuer, "with --ca"),
            (CertificateError::UnknownIssuer, "certificates between its"),
        ] {
            let sentence = told(Error::InvalidCertificate(bad)).unwrap_or_default();
            assert!(sentence.contains(remedy), "{sentence}");
        }
        for (alert, remedy) in [
            (AlertDescription::CertificateRequired, "--key-file"),
            (AlertDescription::CertificateExpired, "has ended"),
            (AlertDescription::CertificateRevoked, "taken back"),
            (AlertDescription::UnknownCA, "--tls-client-ca"),
            (AlertDescription::UnknownCA, "certificates between"),
        ] {
            let sentence = told(Error::AlertReceived(alert)).unwrap_or_default();
            assert!(sentence.contains(remedy), "{sentence}");
        }
        let closed = Error::AlertReceived(AlertDescription::CloseNotify);
        assert_eq!(told(closed), None);
        assert_eq!(certificate_fault(&io::Error::other("gone")), None);
    }
}
