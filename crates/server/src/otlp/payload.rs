//! The metrics as an OpenTelemetry message.
//!
//! Names, units and attributes: <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/>.

use gateway::metrics::OperationMetrics;
use gateway::metrics::histogram::Distribution;
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
pub(super) struct ResourceAttributes {
    /// The name of the requested and of the answering model.
    pub(super) model: String,
    /// The listening address of the server.
    pub(super) address: SocketAddr,
    /// Start of the cumulative values.
    pub(super) since: SystemTime,
}

/// All metrics up to `now`. Metrics without a sample are left out.
pub(super) fn build_payload(
    attributes: &ResourceAttributes,
    operations: &[OperationMetrics],
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let mut points = DataPoints {
        attributes,
        now,
        duration: Vec::new(),
        first_token: Vec::new(),
        per_token: Vec::new(),
    };
    operations
        .iter()
        .for_each(|operation| points.add_operation(operation));
    let scope = InstrumentationScope {
        name: MILLRACE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = ScopeMetrics {
        scope: Some(scope),
        metrics: points.into_metrics(),
        schema_url: SCHEMA_URL.to_owned(),
    };
    let resource = Resource {
        attributes: vec![
            text_attribute("service.name", MILLRACE),
            text_attribute("service.version", env!("CARGO_PKG_VERSION")),
            text_attribute("service.instance.id", &attributes.address.to_string()),
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
struct DataPoints<'a> {
    attributes: &'a ResourceAttributes,
    now: SystemTime,
    duration: Vec<HistogramDataPoint>,
    first_token: Vec<HistogramDataPoint>,
    per_token: Vec<HistogramDataPoint>,
}

impl DataPoints<'_> {
    fn add_operation(&mut self, metrics: &OperationMetrics) {
        let operation = metrics.operation;
        for (error, took) in &metrics.durations {
            let point = self.data_point(operation, error.as_deref(), took);
            self.duration.extend(point);
        }
        let first_token = self.data_point(operation, None, &metrics.first_token);
        self.first_token.extend(first_token);
        let per_token = self.data_point(operation, None, &metrics.per_token);
        self.per_token.extend(per_token);
    }

    /// A data point; `None` without a sample.
    fn data_point(
        &self,
        operation: &str,
        error: Option<&str>,
        distribution: &Distribution,
    ) -> Option<HistogramDataPoint> {
        let ResourceAttributes { model, address, .. } = self.attributes;
        let mut attributes = vec![
            text_attribute("gen_ai.operation.name", operation),
            text_attribute("gen_ai.provider.name", MILLRACE),
            text_attribute("gen_ai.request.model", model),
            text_attribute("gen_ai.response.model", model),
            text_attribute("server.address", &address.ip().to_string()),
            integer_attribute("server.port", i64::from(address.port())),
        ];
        attributes.extend(error.map(|error| text_attribute("error.type", error)));
        let point = HistogramDataPoint {
            attributes,
            start_time_unix_nano: unix_ns(self.attributes.since),
            time_unix_nano: unix_ns(self.now),
            count: distribution.sample_count(),
            sum: Some(distribution.sum),
            bucket_counts: distribution.counts.clone(),
            explicit_bounds: distribution.bounds.clone(),
            ..HistogramDataPoint::default()
        };
        (point.count > 0).then_some(point)
    }

    fn into_metrics(self) -> Vec<Metric> {
        let all = [
            histogram_metric(
                "gen_ai.server.request.duration",
                "Time from receiving a request to its last byte.",
                self.duration,
            ),
            histogram_metric(
                "gen_ai.server.time_to_first_token",
                "Time from receiving a request to its first token, completed requests only.",
                self.first_token,
            ),
            histogram_metric(
                "gen_ai.server.time_per_output_token",
                "Mean time per output token after the first, completed requests only.",
                self.per_token,
            ),
        ];
        all.into_iter().flatten().collect()
    }
}

fn histogram_metric(
    name: &str,
    description: &str,
    points: Vec<HistogramDataPoint>,
) -> Option<Metric> {
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

fn text_attribute(key: &str, value: &str) -> KeyValue {
    key_value(key, Value::StringValue(value.to_owned()))
}

fn integer_attribute(key: &str, value: i64) -> KeyValue {
    key_value(key, Value::IntValue(value))
}

fn key_value(key: &str, value: Value) -> KeyValue {
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
