//! The limit of a key over two gateways.

use super::conversation::SETTINGS;
use super::nats_server;
use super::processes::Cluster;
use crate::support::{Folder, millrace, stdout};
use std::time::{Duration, Instant};

const REQUESTS_PER_MIN: u32 = 40;
const BODY: &str = r#"{"prompt": "A", "max_tokens": 1}"#;
/// How long requests are sent: several times the silence after which gateways count on each other.
const SENDING: Duration = Duration::from_secs(4);

/// Requests to both gateways in turn, much more than the limit.
#[test]
#[expect(clippy::disallowed_methods, reason = "the bound grows with time")]
fn limit_of_a_key_holds_over_two_gateways() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-keys");
    let file: &str = folder.0.join("keys.yaml").display().to_string().leak();
    let limit = REQUESTS_PER_MIN.to_string();
    let made = millrace(&[
        "keys",
        "--file",
        file,
        "new",
        "alice",
        "--requests-per-min",
        &limit,
    ]);
    let field = format!("authorization: Bearer {}\r\n", stdout(&made).trim());
    let settings = [&SETTINGS[..], &[("MILLRACE_KEYS_FILE", file)]].concat();
    let mut cluster = Cluster::new(program, "cluster-limits", "", &settings);
    cluster.start_engines(1);
    let gateways = [cluster.start_gateway(), cluster.start_gateway()];
    let begin = Instant::now();
    let mut served = [0, 0];
    while begin.elapsed() < SENDING {
        for (gateway, served) in gateways.iter().zip(&mut served) {
            let reply = gateway.post_with(&field, "/v1/completions", BODY);
            let is_served = reply.starts_with("HTTP/1.1 200");
            assert!(is_served || reply.starts_with("HTTP/1.1 429"), "{reply}");
            *served += u32::from(is_served);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // The bucket, what the rate has added, one request for the other gateway, and one for the rounding.
    let added = begin.elapsed().as_secs_f64() / 60.0 * f64::from(REQUESTS_PER_MIN);
    let most = f64::from(REQUESTS_PER_MIN) + added + 2.0;
    let all = f64::from(served[0] + served[1]);
    assert!(all <= most, "{served:?} of at most {most}");
    assert!(all >= most / 2.0, "{served:?} of at most {most}");
    assert!(served.iter().all(|&served| served > 0), "{served:?}");
}
