//! The metrics of forwarded requests. Their labels are the prefixes and servers of the configuration, so they are few.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::backend::ForwardError;
use axum::response::Response;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::{Forwarder, backend::Backend};

/// How a forwarded request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Redirect,
    ClientError,
    ServerError,
    Unreachable,
    Failed,
    TimedOut,
    TokenRefused,
    Loop,
    BodyNotReceived,
}

impl Outcome {
    const ALL: [Self; 10] = [
        Self::Success,
        Self::Redirect,
        Self::ClientError,
        Self::ServerError,
        Self::Unreachable,
        Self::Failed,
        Self::TimedOut,
        Self::TokenRefused,
        Self::Loop,
        Self::BodyNotReceived,
    ];

    pub(crate) fn of(result: &Result<Response, ForwardError>) -> Self {
        match result {
            Ok(answer) => match answer.status().as_u16() {
                ..300 => Self::Success,
                300..400 => Self::Redirect,
                400..500 => Self::ClientError,
                _ => Self::ServerError,
            },
            Err(ForwardError::Unreachable(_)) => Self::Unreachable,
            Err(ForwardError::TimedOut(_)) => Self::TimedOut,
            Err(ForwardError::TokenRefused) => Self::TokenRefused,
            Err(ForwardError::Loop) => Self::Loop,
            Err(ForwardError::Body(_)) => Self::BodyNotReceived,
            Err(_) => Self::Failed,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirect => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Unreachable => "unreachable",
            Self::Failed => "broken",
            Self::TimedOut => "timed_out",
            Self::TokenRefused => "token_refused",
            Self::Loop => "loop",
            Self::BodyNotReceived => "body_not_received",
        }
    }
}

/// Counts the outcomes of the requests of one prefix.
#[derive(Debug, Default)]
pub(crate) struct Outcomes([AtomicU64; Outcome::ALL.len()]);

impl Outcomes {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}

/// Reads the metrics of a forwarder for `/metrics`.
#[derive(Debug)]
pub struct ForwardMetrics(pub Arc<Forwarder>);

impl Collector for ForwardMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let table = self.0.table();
        let all = || {
            table.iter().filter_map(|entry| match &entry.backend {
                Backend::Servers(servers) => Some(servers),
                Backend::Store(_) => None,
            })
        };
        let help = "Requests for the servers of a prefix, by their outcome";
        let mut requests =
            encoder.encode_descriptor("rashomon_forward_requests", help, None, MetricType::Counter)?;
        for servers in all() {
            for outcome in Outcome::ALL {
                let labels = [("prefix", servers.prefix.as_str()), ("outcome", outcome.name())];
                ConstCounter::new(servers.outcomes.get(outcome)).encode(requests.encode_family(&labels)?)?;
            }
        }
        let help = "Attempts to send a request to a server; a request may have several";
        let mut attempts =
            encoder.encode_descriptor("rashomon_forward_attempts", help, None, MetricType::Counter)?;
        for servers in all() {
            for server in servers.backend.servers() {
                for (outcome, count) in [
                    ("answered", server.answered),
                    ("unreachable", server.unreachable),
                    ("broken", server.broken),
                    ("timed_out", server.timed_out),
                ] {
                    let labels = [
                        ("prefix", servers.prefix.as_str()),
                        ("server", &*server.server),
                        ("outcome", outcome),
                    ];
                    ConstCounter::new(count).encode(attempts.encode_family(&labels)?)?;
                }
            }
        }
        let help = "1 if a server is left out because it failed and has not answered since, else 0";
        let mut left_out =
            encoder.encode_descriptor("rashomon_forward_left_out", help, None, MetricType::Gauge)?;
        for servers in all() {
            for server in servers.backend.servers() {
                let labels = [("prefix", servers.prefix.as_str()), ("server", &*server.server)];
                ConstGauge::new(u64::from(server.is_left_out)).encode(left_out.encode_family(&labels)?)?;
            }
        }
        let help = "Bytes of request bodies in memory that may be sent again";
        let bytes = ConstGauge::new(self.0.replay_bytes() as u64);
        bytes.encode(encoder.encode_descriptor(
            "rashomon_forward_replay_bytes",
            help,
            None,
            MetricType::Gauge,
        )?)
    }
}
