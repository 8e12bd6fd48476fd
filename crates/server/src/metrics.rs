//! The metrics of requests. No title and no domain is in a label, so the number of labels is bounded.

use std::{
    fmt,
    sync::{OnceLock, atomic::AtomicI64},
    time::Duration,
};

use crate::access::TokenRefusal;
use http::{Method, StatusCode, Uri};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The kinds of requests that metrics distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// The newest render of the latest revision, or a property of the latest revision.
    Latest,
    /// Another sub-resource of a page in the bucket `page`, or any other request below `/wiki/`.
    Page,
    /// An entry of a key-value bucket, or a page in a further bucket of pages.
    Entry,
    /// The definition of a bucket, or a list of buckets or entries.
    Bucket,
    /// An import.
    Import,
    /// A batch. Its requests are counted in addition.
    Batch,
    /// `/healthz`, `/readyz` or `/metrics`.
    Operators,
    /// Any other request: tokens, HTML pages and their files, `/openapi.json`, unknown paths, unreadable requests.
    Other,
}

impl Route {
    const ALL: [Self; 8] = [
        Self::Latest,
        Self::Page,
        Self::Entry,
        Self::Bucket,
        Self::Import,
        Self::Batch,
        Self::Operators,
        Self::Other,
    ];

    /// Derives the kind of a request cheaply from its URL.
    pub(crate) fn of(uri: &Uri) -> Self {
        let path = uri.path();
        let in_domain =
            || path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
        if path.starts_with("/wiki/") || in_domain().is_some_and(|rest| rest.starts_with("page/")) {
            let latest = uri.query().is_some_and(|query| query.starts_with("rev/latest/"));
            if latest { Self::Latest } else { Self::Page }
        } else if in_domain() == Some("import") {
            Self::Import
        } else if path == "/v1/batch" {
            Self::Batch
        } else if matches!(path, "/healthz" | "/readyz" | "/metrics") {
            Self::Operators
        } else {
            in_domain().filter(|_| !path.starts_with("/v1/tokens/")).map_or(Self::Other, Self::of_bucket)
        }
    }

    /// The kind of a path after the domain.
    fn of_bucket(rest: &str) -> Self {
        match rest.split_once('/') {
            Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => Self::Entry,
            _ => Self::Bucket,
        }
    }

    /// Whether a request with this method takes a permit to write before it receives its body.
    pub(crate) fn needs_permit(self, method: &Method) -> bool {
        match self {
            Self::Page => method == Method::POST || method == Method::PUT,
            Self::Entry => method == Method::POST || method == Method::PUT || method == Method::DELETE,
            Self::Batch => method == Method::POST,
            Self::Latest | Self::Bucket | Self::Import | Self::Operators | Self::Other => false,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Page => "page",
            Self::Entry => "entry",
            Self::Bucket => "bucket",
            Self::Import => "import",
            Self::Batch => "batch",
            Self::Operators => "operators",
            Self::Other => "other",
        }
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        EncodeLabelValue::encode(&self.name(), encoder)
    }
}

/// The methods that metrics distinguish. The last one counts all other methods.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other"];

/// The classes of status codes that metrics distinguish.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    method: &'static str,
    status: &'static str,
}

/// Why a token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedTokenLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: Route,
}

/// The metrics of the API.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    /// The counters of `requests` that are in use. A lookup in this list needs no lock of the family.
    known: Vec<OnceLock<Counter>>,
    durations: [Histogram; Route::ALL.len()],
    /// Requests that have arrived and are not answered yet.
    pub(crate) in_flight: Gauge<i64, AtomicI64>,
    /// Bytes of bodies that have been received.
    pub(crate) received_bytes: Counter,
    /// Bytes of sent bodies whose length was known beforehand.
    sent_bytes: Counter,
    /// Tokens that were refused.
    refused_tokens: Family<RefusedTokenLabels, Counter>,
    /// Connections that ended in the handshake of TLS.
    pub(crate) failed_handshakes: Counter,
    /// Reads of the latest, and of entries, that were answered with prepared headers.
    pub(crate) prepared_hits: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let requests = Family::default();
        registry.register("requests", "Requests answered", requests.clone());
        // From 50 microseconds to 26 seconds.
        let histogram = || Histogram::new(exponential_buckets(0.000_05, 2.0, 20));
        let durations =
            Family::<RouteLabels, Histogram, _>::new_with_constructor(histogram as fn() -> Histogram);
        registry.register(
            "request_duration_seconds",
            "Time from the end of a request's head to the beginning of its answer",
            durations.clone(),
        );
        let metrics = Self {
            requests,
            known: std::iter::repeat_with(OnceLock::new)
                .take(Route::ALL.len() * METHODS.len() * CLASSES.len())
                .collect(),
            durations: Route::ALL.map(|route| durations.get_or_create_owned(&RouteLabels { route })),
            in_flight: Gauge::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            refused_tokens: Family::default(),
            failed_handshakes: Counter::default(),
            prepared_hits: Counter::default(),
        };
        registry.register("requests_in_flight", "Requests not yet answered", metrics.in_flight.clone());
        registry.register("received_bytes", "Bytes of bodies received", metrics.received_bytes.clone());
        registry.register("sent_bytes", "Bytes of bodies sent, of known length", metrics.sent_bytes.clone());
        registry.register(
            "refused_tokens",
            "Requests whose token was refused: invalid, or from an address with too many invalid tokens",
            metrics.refused_tokens.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "Connections that ended in the handshake of TLS",
            metrics.failed_handshakes.clone(),
        );
        registry.register(
            "prepared_answers_used",
            "Reads of the latest and of entries answered with prepared headers",
            metrics.prepared_hits.clone(),
        );
        metrics
    }

    /// Counts a token that was refused. Does not count a token that the store could not look up.
    pub(crate) fn count_refused_token(&self, refused: &TokenRefusal) {
        let reason = match refused {
            TokenRefusal::Invalid(_) => "invalid",
            TokenRefusal::TooMany { .. } => "too_many",
            TokenRefusal::Store(_) => return,
        };
        self.refused_tokens.get_or_create(&RefusedTokenLabels { reason }).inc();
    }

    /// Counts a request that was answered. A request whose client goes away before the answer is not counted.
    pub(crate) fn count_answer(
        &self,
        route: Route,
        method: &Method,
        status: StatusCode,
        sent: Option<u64>,
        duration: Duration,
    ) {
        let method = METHODS.iter().position(|known| *known == method.as_str()).unwrap_or(METHODS.len() - 1);
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        let index = (route as usize * METHODS.len() + method) * CLASSES.len() + class;
        let labels = || RequestLabels { route, method: METHODS[method], status: CLASSES[class] };
        self.known[index].get_or_init(|| self.requests.get_or_create_owned(&labels())).inc();
        self.durations[route as usize].observe(duration.as_secs_f64());
        self.sent_bytes.inc_by(sent.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_is_derived_from_the_url_without_the_title() {
        for (uri, route) in [
            ("/v1/enwiki/page/A/B?rev/latest/html", Route::Latest),
            ("/wiki/A?rev/latest/html", Route::Latest),
            ("/v1/enwiki/page/A?rev/", Route::Page),
            ("/wiki/A", Route::Page),
            ("/v1/enwiki/import", Route::Import),
            ("/v1/batch", Route::Batch),
            ("/metrics", Route::Operators),
            ("/", Route::Other),
            ("/v1/enwiki", Route::Other),
            ("/v1/enwiki/math-png/a/b", Route::Entry),
            ("/v1/enwiki/math-png", Route::Bucket),
            ("/v1/enwiki/math-png/?limit=5", Route::Bucket),
            ("/v1/enwiki/page", Route::Bucket),
            ("/v1/enwiki/", Route::Bucket),
            ("/v1/tokens/x", Route::Other),
        ] {
            assert_eq!(Route::of(&uri.parse().unwrap()), route, "{uri}");
        }
    }

    #[test]
    fn every_combination_has_its_own_counter() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        for route in Route::ALL {
            for method in METHODS {
                for status in [101, 200, 302, 404, 503] {
                    let method = Method::from_bytes(method.as_bytes()).unwrap();
                    let status = StatusCode::from_u16(status).unwrap();
                    metrics.count_answer(route, &method, status, Some(3), Duration::from_millis(1));
                }
            }
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("requests_total{"));
        assert!(lines.clone().all(|line| line.ends_with(" 1")), "{text}");
        assert_eq!(lines.count(), Route::ALL.len() * METHODS.len() * CLASSES.len());
    }
}
