use std::io;

use rustls::{AlertDescription, CertificateError};

/// Why a connection is not secured, or why files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What it comes down to.
    pub reason: Reason,
    text: String,
}

/// What went wrong, for programs. [`Error`] says it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A file is missing, unreadable, or holds something else than it should.
    Files,
    /// The other side does not speak TLS.
    NotTls,
    /// The other side's certificate is past its end or before its beginning.
    Expired,
    /// The other side's certificate is not signed by an authority that is trusted here.
    UntrustedCertificate,
    /// The other side's certificate is for another name.
    WrongName,
    /// The other side showed no certificate and has to.
    MissingCertificate,
    /// The other side refuses our certificate, or wants one.
    Refused,
    /// The other side closed, or was silent for too long.
    Broken,
    /// Anything else.
    Other,
}

impl Error {
    pub(crate) fn new(reason: Reason, text: impl Into<String>) -> Error {
        Error { reason, text: text.into() }
    }

    /// The other side speaks TLS and nothing else.
    pub fn wants_tls() -> Error {
        Error::new(Reason::NotTls, "the other side speaks TLS and was not spoken to in TLS")
    }

    /// What an error of a secured connection says about TLS; `None` if the connection below it broke.
    pub fn of_io(error: &io::Error) -> Option<Error> {
        let inner = error.get_ref()?;
        if let Some(error) = inner.downcast_ref::<Error>() {
            return Some(error.clone());
        }
        inner.downcast_ref::<rustls::Error>().map(Error::of_tls)
    }

    /// As [`Error::of_io`], in a handshake, where a broken connection is told as well.
    pub(crate) fn of_handshake(error: &io::Error) -> Error {
        Error::of_io(error).unwrap_or_else(|| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::new(Reason::Broken, "the other side closed during the TLS handshake")
            }
            _ => Error::new(Reason::Broken, format!("the TLS handshake was cut off: {error}")),
        })
    }

    pub(crate) fn of_tls(error: &rustls::Error) -> Error {
        use rustls::Error as Tls;
        let (reason, text) = match error {
            Tls::InvalidMessage(_) => (Reason::NotTls, "the other side does not speak TLS".to_owned()),
            Tls::InvalidCertificate(why) => return Error::of_certificate(why),
            Tls::NoCertificatesPresented => {
                (Reason::MissingCertificate, "the other side shows no certificate".to_owned())
            }
            Tls::AlertReceived(alert) => {
                (reason_of(*alert), format!("the other side refuses: {}", told(*alert)))
            }
            Tls::PeerIncompatible(why) => {
                (Reason::Other, format!("the other side wants TLS that is not spoken here: {why:?}"))
            }
            other => (Reason::Other, format!("TLS failed: {other}")),
        };
        Error::new(reason, text)
    }

    fn of_certificate(why: &CertificateError) -> Error {
        use CertificateError as Bad;
        let (reason, text) = match why {
            Bad::Expired | Bad::ExpiredContext { .. } => (Reason::Expired, "has expired".to_owned()),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                (Reason::Expired, "is not valid yet".to_owned())
            }
            Bad::UnknownIssuer => {
                (Reason::UntrustedCertificate, "is not signed by a trusted authority".to_owned())
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                (Reason::WrongName, format!("is for another name ({why})"))
            }
            other => (Reason::UntrustedCertificate, format!("is not accepted: {other}")),
        };
        Error::new(reason, format!("the other side's certificate {text}"))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

fn reason_of(alert: AlertDescription) -> Reason {
    use AlertDescription as Alert;
    match alert {
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::UnknownCA
        | Alert::AccessDenied
        // A chain that does not hold together.
        | Alert::DecryptError => Reason::Refused,
        Alert::DecodeError | Alert::UnexpectedMessage => Reason::NotTls,
        _ => Reason::Other,
    }
}

fn told(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired | Alert::NoCertificate => "it wants a certificate".to_owned(),
        Alert::CertificateExpired => "the certificate shown to it has expired".to_owned(),
        Alert::UnknownCA => "it does not trust the authority of the certificate shown to it".to_owned(),
        other => format!("{other:?}"),
    }
}
