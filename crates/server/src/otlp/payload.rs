//! The metrics as an OpenTelemetry message.
//!
//! Names, units and attributes: <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/>.

use crate::gateway::metrics::OperationMetrics;
use crate::gateway::metrics::histogram::Distribution;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Histogram, HistogramDataPoint, Metric, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the semantic conventions: the first with `gen_ai.provider.name`.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Name of the service, of the scope and of the provider.
const MILLRACE: &str = "millrace";

/// Attributes that do not change while the server runs.
pub(super) struct Origin {
    /// The name of the requested and of the answering model.
    pub(super) model: String,
    /// The listening address of the server.
    pub(super) address: SocketAddr,
    /// Start of the cumulative values.
    pub(super) since: SystemTime,
}

/// All metrics up to `now`. Metrics without a sample are left out.
pub(super) fn payload(
    origin: &Origin,
    figures: &[OperationMetrics],
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let mut rows = Rows {
        origin,
        now,
        duration: Vec::new(),
        first_token: Vec::new(),
        per_token: Vec::new(),
    };
    figures.iter().for_each(|figures| rows.add(figures));
    let scope = InstrumentationScope {
        name: MILLRACE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = ScopeMetrics {
        scope: Some(scope),
        metrics: rows.metrics(),
        schema_url: SCHEMA_URL.to_owned(),
    };
    let resource = Resource {
        attributes: vec![
            text("service.name", MILLRACE),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &origin.address.to_string()),
        ],
        ..Resource::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![metrics],
            schema_url: SCHEMA_URL.to_owned(),
        }],
    }
}

/// Data points of each metric.
struct Rows<'a> {
    origin: &'a Origin,
    now: SystemTime,
    duration: Vec<HistogramDataPoint>,
    first_token: Vec<HistogramDataPoint>,
    per_token: Vec<HistogramDataPoint>,
}

impl Rows<'_> {
    fn add(&mut self, figures: &OperationMetrics) {
        let operation = figures.operation;
        for (error, took) in &figures.durations {
            let point = self.point(operation, error.as_deref(), took);
            self.duration.extend(point);
        }
        let first_token = self.point(operation, None, &figures.first_token);
        self.first_token.extend(first_token);
        let per_token = self.point(operation, None, &figures.per_token);
        self.per_token.extend(per_token);
    }

    /// A data point; `None` without a sample.
    fn point(
        &self,
        operation: &str,
        error: Option<&str>,
        told: &Distribution,
    ) -> Option<HistogramDataPoint> {
        let Origin { model, address, .. } = self.origin;
        let mut attributes = vec![
            text("gen_ai.operation.name", operation),
            text("gen_ai.provider.name", MILLRACE),
            text("gen_ai.request.model", model),
            text("gen_ai.response.model", model),
            text("server.address", &address.ip().to_string()),
            number("server.port", i64::from(address.port())),
        ];
        attributes.extend(error.map(|error| text("error.type", error)));
        let point = HistogramDataPoint {
            attributes,
            start_time_unix_nano: unix_ns(self.origin.since),
            time_unix_nano: unix_ns(self.now),
            count: told.count(),
            sum: Some(told.sum),
            bucket_counts: told.counts.clone(),
            explicit_bounds: told.bounds.clone(),
            ..HistogramDataPoint::default()
        };
        (point.count > 0).then_some(point)
    }

    fn metrics(self) -> Vec<Metric> {
        let all = [
            metric(
                "gen_ai.server.request.duration",
                "Time from receiving a request to its last byte.",
                self.duration,
            ),
            metric(
                "gen_ai.server.time_to_first_token",
                "Time from receiving a request to its first token, completed requests only.",
                self.first_token,
            ),
            metric(
                "gen_ai.server.time_per_output_token",
                "Mean time per output token after the first, completed requests only.",
                self.per_token,
            ),
        ];
        all.into_iter().flatten().collect()
    }
}

fn metric(name: &str, description: &str, points: Vec<HistogramDataPoint>) -> Option<Metric> {
    let histogram = Histogram {
        data_points: points,
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    };
    (!histogram.data_points.is_empty()).then(|| Metric {
        name: name.to_owned(),
        description: description.to_owned(),
        unit: "s".to_owned(),
        data: Some(Data::Histogram(histogram)),
        ..Metric::default()
    })
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn unix_ns(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
