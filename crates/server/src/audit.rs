//! Selects the requests that are written to the audit log, and collects the content of their lines.
//!
//! If there is an audit log, each request has an entry. The middleware (`observe`) holds the entry until the request is
//! answered or its client is gone. The task of a write holds the entry until the write is done. When the last holder
//! drops the entry, the line is written if the request is selected. So the line is also written if the client
//! disconnects or the handler panics.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::access::Caller;
use crate::audit_log::{AuditLog, Entry, WriteState};
use axum::{body::Body, extract::Request};
use bytes::Bytes;
use http::{Extensions, HeaderValue, Method, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use rashomon_clock::{Clock, Timestamp};
use rashomon_pages::shorten;

use crate::observe::MAX_LOGGED_METHOD_BYTES;

/// The maximum size of a path with its query in the audit log. Longer ones are shortened.
const MAX_PATH_BYTES: usize = 2 << 10;

/// A shared handle to the audit-log entry of a request. Empty if there is no audit log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit(Option<Arc<AuditEntry>>);

/// The data of one line of the audit log. When the last handle is dropped, the line is written if
/// [`Self::is_logged`].
#[derive(Debug)]
struct AuditEntry {
    log: AuditLog,
    clock: Arc<dyn Clock>,
    time: Timestamp,
    started: Duration,
    request_id: HeaderValue,
    address: Option<IpAddr>,
    method: Method,
    uri: Uri,
    token: OnceLock<Arc<str>>,
    /// The status of the answer; 0 as long as there is none.
    status: AtomicU16,
    /// A [`WriteState`], or 0 for none.
    write: AtomicU8,
    /// How many bytes of the body were received.
    bytes: AtomicU64,
}

impl Audit {
    /// Begins the entry of a request. `uri` is logged, so it must not contain a token.
    pub(crate) fn begin(
        log: &AuditLog,
        clock: &Arc<dyn Clock>,
        request_id: &HeaderValue,
        method: &Method,
        uri: &Uri,
        address: Option<IpAddr>,
    ) -> Self {
        Self(Some(Arc::new(AuditEntry {
            log: log.clone(),
            clock: Arc::clone(clock),
            time: clock.now(),
            started: clock.monotonic(),
            request_id: request_id.clone(),
            address,
            method: method.clone(),
            uri: uri.clone(),
            token: OnceLock::new(),
            status: AtomicU16::new(0),
            write: AtomicU8::new(0),
            bytes: AtomicU64::new(0),
        })))
    }

    /// Returns the handle that [`Self::attach`] has added to a request. Returns an empty one if there is none.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Adds the entry to the extensions of a request, and counts the bytes of the request's body. Does nothing for GET,
    /// HEAD and OPTIONS, which are logged only if they are refused.
    pub(crate) fn attach(&self, mut request: Request) -> Request {
        let Some(entry) = self.0.as_ref().filter(|entry| entry.may_change_something()) else {
            return request;
        };
        request.extensions_mut().insert(self.clone());
        request.map(|body| Body::new(CountedBody { body, entry: Arc::clone(entry) }))
    }

    /// Sets the id of the token that the client sent.
    pub(crate) fn set_caller(&self, caller: &Caller) {
        if let (Some(entry), Some(id)) = (&self.0, caller.token()) {
            // A request has one token.
            let _ = entry.token.set(Arc::clone(id));
        }
    }

    /// Sets the status of the answer.
    pub(crate) fn set_status(&self, status: StatusCode) {
        if let Some(entry) = &self.0 {
            entry.status.store(status.as_u16(), Ordering::Relaxed);
        }
    }

    /// Records that a write begins.
    pub(crate) fn begin_write(&self) {
        self.set_write(WriteState::Begun);
    }

    /// Records the end of a write.
    pub(crate) fn end_write<T, E>(&self, result: &std::result::Result<T, E>) {
        self.set_write(if result.is_ok() { WriteState::Done } else { WriteState::Failed });
    }

    fn set_write(&self, state: WriteState) {
        if let Some(entry) = &self.0 {
            entry.write.store(to_number(state), Ordering::Relaxed);
        }
    }
}

const WRITE_STATES: [WriteState; 3] = [WriteState::Begun, WriteState::Done, WriteState::Failed];

/// Returns the number of a state in [`AuditEntry::write`]: 1 or more.
const fn to_number(state: WriteState) -> u8 {
    match state {
        WriteState::Begun => 1,
        WriteState::Done => 2,
        WriteState::Failed => 3,
    }
}

impl AuditEntry {
    /// Whether requests with this method may change something. Such requests are always in the log.
    fn may_change_something(&self) -> bool {
        ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.method)
    }

    /// Whether the request is logged if it is answered with this status.
    fn is_logged(&self, status: Option<StatusCode>) -> bool {
        const REFUSALS: [StatusCode; 3] =
            [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
        self.may_change_something() || status.is_some_and(|status| REFUSALS.contains(&status))
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        let status = StatusCode::from_u16(*self.status.get_mut()).ok();
        if !self.is_logged(status) {
            return;
        }
        let write = WRITE_STATES.into_iter().find(|state| to_number(*state) == *self.write.get_mut());
        let duration = self.clock.monotonic().saturating_sub(self.started);
        self.log.write(&Entry {
            time: self.time,
            request_id: self.request_id.to_str().unwrap_or_default(),
            token: self.token.get().map(AsRef::as_ref),
            address: self.address,
            method: &shorten(&self.method, MAX_LOGGED_METHOD_BYTES),
            path: &logged_path(&self.uri),
            status: status.map(|status| status.as_u16()),
            write,
            bytes: *self.bytes.get_mut(),
            microseconds: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
        });
    }
}

/// Returns the path and the query of a request in the form that is logged.
fn logged_path(uri: &Uri) -> String {
    match uri.path_and_query() {
        Some(path) => shorten(path, MAX_PATH_BYTES),
        // The target of a CONNECT is a host.
        None => shorten(uri, MAX_PATH_BYTES),
    }
}

pin_project! {
    /// A body whose bytes are counted when they are received.
    struct CountedBody {
        #[pin]
        body: Body,
        entry: Arc<AuditEntry>,
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.entry.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use crate::audit_log::Target;
    use rashomon_clock::ManualClock;

    use super::*;

    /// The lines of requests with this method that are answered with these statuses.
    fn lines(method: Method, statuses: &[u16]) -> Vec<serde_json::Value> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("audit.log");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::EPOCH));
        let log = AuditLog::open(Target::File(file.clone()), Arc::clone(&clock)).unwrap();
        for status in statuses {
            let (id, uri) = (HeaderValue::from_static("1"), Uri::from_static("/"));
            let address = Some(IpAddr::from([192, 0, 2, 1]));
            let audit = Audit::begin(&log, &clock, &id, &method, &uri, address);
            audit.0.as_ref().unwrap().token.set("t7".into()).unwrap();
            audit.set_status(StatusCode::from_u16(*status).unwrap());
        }
        log.close();
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn reads_have_a_line_only_if_they_are_refused() {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            let lines = lines(method.clone(), &[200, 304, 400, 401, 403, 404, 405, 429, 500]);
            let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
            assert_eq!(statuses, [401, 403, 429], "{method}");
        }
        assert_eq!(lines(Method::TRACE, &[200, 405]).len(), 2);
    }

    #[test]
    fn line_names_the_token_and_the_client() {
        let lines = lines(Method::POST, &[201]);
        assert_eq!((&lines[0]["token"], &lines[0]["address"]), (&"t7".into(), &"192.0.2.1".into()));
    }

    #[test]
    fn each_state_of_a_write_has_a_number() {
        for state in WRITE_STATES {
            assert_eq!(WRITE_STATES[usize::from(to_number(state)) - 1], state);
        }
    }
}
