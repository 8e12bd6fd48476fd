//! The time at which a certificate expires, and the notices about it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp, rfc3339};
use rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::{self, Decode as _},
};

use super::{CERTIFICATE, Loaded, Tls};

const DAY: Duration = Duration::from_secs(86_400);

/// How long before the expiry the notices begin.
const NOTICE: Duration = Duration::from_secs(14 * 86_400);

/// The notices begin in the last quarter of the validity, if that is later. A certificate with a short validity is
/// usually renewed when a third or a half of it is left, and needs no notice before that.
const PARTS: u32 = 4;

/// The period in which clients accept a certificate. Both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    /// Reads the validity of a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, der::Error> {
        let certificate = Certificate::from_der(certificate)?;
        let validity = certificate.tbs_certificate().validity();
        let time = |time: x509_cert::time::Time| Timestamp::EPOCH.saturating_add(time.to_unix_duration());
        Ok(Self { not_before: time(validity.not_before), not_after: time(validity.not_after) })
    }

    /// The length of the time before the expiry in which there are notices.
    fn notice(self) -> Duration {
        NOTICE.min(self.not_after.since(self.not_before) / PARTS)
    }
}

/// What an operator has to know about the expiry of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpiryNotice {
    /// The certificate expires soon.
    #[error(
        "the certificate in {CERTIFICATE} {} expires soon, at {}: renew it; a running server loads the new file by \
         itself",
        path.display(),
        rfc3339::format(*at)
    )]
    Soon {
        /// The file.
        path: PathBuf,
        /// The last time at which clients accept the certificate.
        at: Timestamp,
    },
    /// The certificate has expired.
    #[error(
        "the certificate in {CERTIFICATE} {} expired at {}, and clients refuse it: renew it; a running server loads \
         the new file by itself",
        path.display(),
        rfc3339::format(*at)
    )]
    Expired {
        /// The file.
        path: PathBuf,
        /// The last time at which clients accepted the certificate.
        at: Timestamp,
    },
    /// The time of the expiry cannot be read. The certificate may be in use nevertheless.
    #[error(
        "cannot read when the certificate in {CERTIFICATE} {} expires ({why}): there will be no warning before it does",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl Loaded {
    /// What an operator has to know at this time; `None` if the certificate is valid for long.
    fn expiry_notice(&self, path: &Path, now: Timestamp) -> Option<ExpiryNotice> {
        let path = path.to_owned();
        match &self.validity {
            Err(error) => Some(ExpiryNotice::Unreadable { path, why: error.to_string() }),
            Ok(Validity { not_after, .. }) if now > *not_after => {
                Some(ExpiryNotice::Expired { path, at: *not_after })
            }
            Ok(validity) if validity.not_after.since(now) < validity.notice() => {
                Some(ExpiryNotice::Soon { path, at: validity.not_after })
            }
            Ok(_) => None,
        }
    }
}

impl Tls {
    /// The last time at which clients accept the certificate in use. `None` if it cannot be read.
    #[must_use]
    pub fn expiry(&self) -> Option<Timestamp> {
        self.0.current().validity.as_ref().ok().map(|validity| validity.not_after)
    }

    /// What an operator has to know at this time about the expiry of the certificate in use. `None` if the certificate
    /// is valid for long.
    #[must_use]
    pub fn expiry_notice(&self, now: Timestamp) -> Option<ExpiryNotice> {
        self.0.current().expiry_notice(self.certificate_path(), now)
    }

    fn certificate_path(&self) -> &Path {
        &self.0.source().0.certificate
    }
}

/// Logs each [`ExpiryNotice`] about the certificate in use.
#[derive(Debug)]
pub struct ExpiryLog {
    tls: Tls,
    clock: Arc<dyn Clock>,
    last: Option<Logged>,
}

/// The last notice that was logged.
#[derive(Debug)]
struct Logged {
    notice: ExpiryNotice,
    /// The certificate. A certificate that is loaded again is another one, even if its file has the same content.
    certificate: Arc<Loaded>,
    /// The monotonic time.
    at: Duration,
}

impl ExpiryLog {
    /// A log that has no line yet.
    #[must_use]
    pub const fn new(tls: Tls, clock: Arc<dyn Clock>) -> Self {
        Self { tls, clock, last: None }
    }

    /// Logs the notice about the certificate in use if it is a new one, or if it was last logged a day ago. That the
    /// expiry cannot be read is logged once for each certificate. A server should call this at its start, and after
    /// each [`Tls::reload`].
    pub fn check(&mut self) {
        let certificate = self.tls.0.current();
        let Some(notice) = certificate.expiry_notice(self.tls.certificate_path(), self.clock.now()) else {
            return;
        };
        let at = self.clock.monotonic();
        if self.last.as_ref().is_some_and(|last| last.is_enough(&certificate, &notice, at)) {
            return;
        }
        match notice {
            ExpiryNotice::Expired { .. } => tracing::error!("{notice}"),
            ExpiryNotice::Soon { .. } | ExpiryNotice::Unreadable { .. } => tracing::warn!("{notice}"),
        }
        self.last = Some(Logged { notice, certificate, at });
    }
}

impl Logged {
    /// Whether this notice need not be logged again now.
    fn is_enough(&self, certificate: &Arc<Loaded>, notice: &ExpiryNotice, now: Duration) -> bool {
        let is_recent =
            matches!(notice, ExpiryNotice::Unreadable { .. }) || now.saturating_sub(self.at) < DAY;
        Arc::ptr_eq(&self.certificate, certificate) && self.notice == *notice && is_recent
    }
}

#[cfg(test)]
mod tests;
