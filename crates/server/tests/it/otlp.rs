//! What a collector of OpenTelemetry gets, and what becomes of it where it is none.

use crate::support::client::{Client, post};
use crate::support::exported::{CHAT, Exported, ask, used};
use crate::support::{MODEL, PATIENCE, Rig, config, fake, wait_until};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, HistogramDataPoint};
use prost::Message;
use server::{OtlpTarget, ServerConfig};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const DURATION: &str = "gen_ai.server.request.duration";
const FIRST_TOKEN: &str = "gen_ai.server.time_to_first_token";
const PER_TOKEN: &str = "gen_ai.server.time_per_output_token";

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
/// It rejected one data point: `partial_success { rejected_data_points: 1 }`.
const IN_PART: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x01";
const NO_HTTP: &[u8] = b"sesame\r\n";

/// A request as the collector got it.
struct Posted {
    /// The request line and the fields, a line each.
    head: Vec<String>,
    message: ExportMetricsServiceRequest,
}

/// Takes messages on a port of its own, and answers them with these in turn, the last again and again.
struct Collector {
    addr: SocketAddr,
    posted: Receiver<Posted>,
}

impl Collector {
    fn start(answers: &'static [&'static [u8]]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (tell, posted) = sync_channel(1024);
        std::thread::spawn(move || {
            let mut next = 0;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(got) = read(&mut stream) else {
                    continue;
                };
                let _ = stream.write_all(answers[next]);
                next = (next + 1).min(answers.len() - 1);
                if tell.send(got).is_err() {
                    return;
                }
            }
        });
        Self { addr, posted }
    }

    /// A server that sends here this often.
    fn config(&self, each: Duration) -> ServerConfig {
        let target = OtlpTarget::at(&format!("http://{}/base", self.addr)).unwrap();
        ServerConfig {
            metrics_export_interval: each,
            otlp: Some(
                target
                    .with_headers("authorization=Bearer%20sesame")
                    .unwrap(),
            ),
            ..config()
        }
    }

    fn next(&self) -> Posted {
        self.posted.recv_timeout(PATIENCE).expect("it sends")
    }
}

/// `None`: whoever came left before it had said all.
fn read(stream: &mut TcpStream) -> Option<Posted> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&n| n > 0)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let message = ExportMetricsServiceRequest::decode(&*body).expect("what OTLP says it is");
    Some(Posted { head, message })
}

fn attributes(all: &[KeyValue]) -> BTreeMap<&str, String> {
    let told = |pair: &KeyValue| match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    };
    let pairs = all.iter();
    pairs
        .filter_map(|pair| Some((pair.key.as_str(), told(pair)?)))
        .collect()
}

impl Posted {
    /// Each metric's points, by name.
    fn points(&self) -> BTreeMap<&str, &[HistogramDataPoint]> {
        let scopes = &self.message.resource_metrics[0].scope_metrics;
        let metrics = scopes.iter().flat_map(|scope| &scope.metrics);
        let points = metrics.map(|metric| {
            assert_eq!(metric.unit, "s", "{}", metric.name);
            let Some(Data::Histogram(told)) = &metric.data else {
                panic!("{} is a histogram", metric.name)
            };
            assert_eq!(
                told.aggregation_temporality(),
                AggregationTemporality::Cumulative
            );
            (metric.name.as_str(), &*told.data_points)
        });
        points.collect()
    }

    /// Samples of a metric, by operation and `error.type` (or none).
    fn counts(&self, metric: &str) -> BTreeMap<(String, String), u64> {
        let points = self.points().get(metric).copied().unwrap_or_default();
        let count = |point: &HistogramDataPoint| {
            let told = attributes(&point.attributes);
            let error = told.get("error.type").cloned().unwrap_or_default();
            ((told["gen_ai.operation.name"].clone(), error), point.count)
        };
        points.iter().map(count).collect()
    }
}

fn counts<const N: usize>(rows: [(&str, &str, u64); N]) -> BTreeMap<(String, String), u64> {
    let row =
        |(operation, error, n): (&str, &str, u64)| ((operation.to_owned(), error.to_owned()), n);
    rows.into_iter().map(row).collect()
}

const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(2);

#[test]
fn shutdown_exports_everything_once() {
    let collector = Collector::start(&[TAKEN]);
    let mut rig = Rig::gated(fake(), collector.config(NEVER));
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true));
    assert_eq!(client.head().status, 200);
    drop(client);
    let left = r#"millrace_answers_total{dialect="openai.chat",outcome="left"}"#;
    wait_until("it is seen to have left", || {
        Exported::from(&rig).value(left) == 1.0
    });
    rig.gate.open();
    used(&rig);
    rig.ask_to_stop();
    rig.stopped();
    let posted = collector.next();
    assert!(collector.posted.try_recv().is_err(), "there is no second");
    let durations = counts([
        ("chat", "", 2),
        ("chat", "disconnected", 1),
        ("text_completion", "", 1),
    ]);
    assert_eq!(posted.counts(DURATION), durations);
    let complete = counts([("chat", "", 2), ("text_completion", "", 1)]);
    assert_eq!(posted.counts(FIRST_TOKEN), complete);
    assert_eq!(posted.counts(PER_TOKEN), complete);
    assert_eq!(posted.points().len(), 3);
}

#[test]
fn export_has_resource_metrics_and_start_time() {
    let collector = Collector::start(&[TAKEN]);
    let mut rig = Rig::with(fake(), collector.config(NEVER));
    used(&rig);
    rig.ask_to_stop();
    rig.stopped();
    let posted = collector.next();
    assert_eq!(posted.head[0], "POST /base/v1/metrics HTTP/1.1");
    for field in [
        &format!("host: {}", collector.addr),
        "content-type: application/x-protobuf",
        "authorization: Bearer sesame",
    ] {
        assert!(posted.head.iter().any(|line| line == field), "{field}");
    }
    let told = &posted.message.resource_metrics[0];
    let resource = attributes(&told.resource.as_ref().unwrap().attributes);
    assert_eq!(resource["service.name"], "millrace");
    assert_eq!(resource["service.instance.id"], rig.addr.to_string());
    let (ip, port) = (rig.addr.ip().to_string(), rig.addr.port().to_string());
    for (name, points) in posted.points() {
        for point in points {
            let told = attributes(&point.attributes);
            for (key, value) in [
                ("gen_ai.provider.name", "millrace"),
                ("gen_ai.request.model", MODEL),
                ("gen_ai.response.model", MODEL),
                ("server.address", &ip),
                ("server.port", &port),
            ] {
                assert_eq!(told[key], value, "{name}");
            }
            assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
            assert_eq!(
                point.bucket_counts.iter().sum::<u64>(),
                point.count,
                "{name}"
            );
            assert!(point.sum.is_some_and(|sum| sum > 0.0), "{name}");
            assert!(point.start_time_unix_nano > 0);
            assert!(point.time_unix_nano > point.start_time_unix_nano);
        }
    }
}

#[test]
fn failing_collector_blocks_nothing_and_gets_all_later() {
    let collector = Collector::start(&[BUSY, NO_HTTP, IN_PART, TAKEN]);
    let rig = Rig::with(fake(), collector.config(OFTEN));
    let count = |outcome: &str| {
        let name = format!("millrace_otlp_exports_total{{outcome=\"{outcome}\"}}");
        Exported::from(&rig).value(&name)
    };
    assert_eq!(post(rig.addr, CHAT, &ask("hi", false)).head.status, 200);
    wait_until("it is taken in the end", || count("accepted") >= 1.0);
    assert_eq!(count("failed"), 3.0, "refused, broken and taken in part");
    rig.wait_until_empty();
    let all = counts([("chat", "", 1)]);
    while collector.next().counts(DURATION) != all {}
}

#[test]
fn missing_collector_affects_nothing_else() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for addr in [nobody.unwrap(), silent.local_addr().unwrap()] {
        let config = ServerConfig {
            metrics_export_interval: OFTEN,
            otlp: Some(OtlpTarget::at(&format!("http://{addr}")).unwrap()),
            ..config()
        };
        let rig = Rig::with(fake(), config);
        for _ in 0..10 {
            assert_eq!(post(rig.addr, CHAT, &ask("hi", true)).head.status, 200);
        }
    }
}
