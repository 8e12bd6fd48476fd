//! Reads the time at which a certificate expires, and makes and logs notices for operators.

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

use super::{CERTIFICATE, LoadedCertificate, Tls};

const DAY: Duration = Duration::from_secs(86_400);

/// The notices begin at most this long before the expiry.
const MAX_NOTICE_PERIOD: Duration = Duration::from_secs(14 * 86_400);

/// The notices begin at most this part of the validity before the expiry: a quarter. A certificate with a short
/// validity is usually renewed when a third or a half of the validity is left, and needs no notice before that.
const VALIDITY_PARTS: u32 = 4;

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

    /// Returns how long before the expiry the notices begin.
    fn notice_period(self) -> Duration {
        MAX_NOTICE_PERIOD.min(self.not_after.since(self.not_before) / VALIDITY_PARTS)
    }
}

/// A notice for an operator about the expiry of a certificate.
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

impl LoadedCertificate {
    /// Returns the notice at this time; `None` if the certificate does not expire soon.
    fn expiry_notice(&self, path: &Path, now: Timestamp) -> Option<ExpiryNotice> {
        let path = path.to_owned();
        match &self.validity {
            Err(error) => Some(ExpiryNotice::Unreadable { path, why: error.to_string() }),
            Ok(Validity { not_after, .. }) if now > *not_after => {
                Some(ExpiryNotice::Expired { path, at: *not_after })
            }
            Ok(validity) if validity.not_after.since(now) < validity.notice_period() => {
                Some(ExpiryNotice::Soon { path, at: validity.not_after })
            }
            Ok(_) => None,
        }
    }
}

impl Tls {
    /// Returns the last time at which clients accept the certificate in use. `None` if this time cannot be read.
    #[must_use]
    pub fn expiry(&self) -> Option<Timestamp> {
        self.0.current().validity.as_ref().ok().map(|validity| validity.not_after)
    }

    /// Returns the notice at this time about the certificate in use. `None` if the certificate does not expire soon.
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
    last: Option<LoggedNotice>,
}

/// The last notice that was logged.
#[derive(Debug)]
struct LoggedNotice {
    notice: ExpiryNotice,
    /// The certificate. A certificate that is loaded again counts as another one, even if its file has the same
    /// content.
    certificate: Arc<LoadedCertificate>,
    /// The monotonic time at which the notice was logged.
    at: Duration,
}

impl ExpiryLog {
    /// Creates a log in which no notice has been logged yet.
    #[must_use]
    pub const fn new(tls: Tls, clock: Arc<dyn Clock>) -> Self {
        Self { tls, clock, last: None }
    }

    /// Logs the notice about the certificate in use, if the notice is new, or was last logged a day ago or longer. An
    /// unreadable expiry is logged only once for each certificate. A server should call this function at its start, and
    /// after each [`Tls::reload`].
    pub fn check(&mut self) {
        let certificate = self.tls.0.current();
        let Some(notice) = certificate.expiry_notice(self.tls.certificate_path(), self.clock.now()) else {
            return;
        };
        let at = self.clock.monotonic();
        if self.last.as_ref().is_some_and(|last| last.makes_redundant(&certificate, &notice, at)) {
            return;
        }
        match notice {
            ExpiryNotice::Expired { .. } => tracing::error!("{notice}"),
            ExpiryNotice::Soon { .. } | ExpiryNotice::Unreadable { .. } => tracing::warn!("{notice}"),
        }
        self.last = Some(LoggedNotice { notice, certificate, at });
    }
}

impl LoggedNotice {
    /// Whether a notice need not be logged now, since the same notice was logged recently.
    fn makes_redundant(
        &self,
        certificate: &Arc<LoadedCertificate>,
        notice: &ExpiryNotice,
        now: Duration,
    ) -> bool {
        let is_recent =
            matches!(notice, ExpiryNotice::Unreadable { .. }) || now.saturating_sub(self.at) < DAY;
        Arc::ptr_eq(&self.certificate, certificate) && self.notice == *notice && is_recent
    }
}

#[cfg(test)]
mod tests;
