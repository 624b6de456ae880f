//! Streams whose client has to say what it has, and does not.

mod support;

use serde_json::json;
use server::ServerConfig;
use std::time::Duration;
use support::named::{CHAT, RESUMABLE, chat, fake, get, kept, send, stream_id};
use support::{Rig, wait_until};

/// Credit of such a stream comes from its client's word alone; without it the reader clock ends the stream,
/// whether its client is connected or not, and says so.
#[test]
fn a_client_that_never_acknowledges_is_ended_by_the_reader_clock() {
    for client_stays in [true, false] {
        let mut config = ServerConfig {
            credit_window: 4,
            ..kept()
        };
        config.clocks.reader = Some(Duration::from_millis(20));
        let rig = Rig::with(fake(), config);
        let fields = format!("{RESUMABLE}x-stream-acks: explicit\r\n");
        let body = chat(&json!({"max_tokens": 100}));
        let mut client = send(&rig, "POST", CHAT, &fields, &body);
        let path = format!("/v1/streams/{}", stream_id(&client.head()));
        let told = if client_stays {
            client.body()
        } else {
            drop(client);
            get(&rig, &format!("{path}/events"), "").body
        };
        assert!(
            told.contains("\"code\":\"timeout\"") && told.contains("reader"),
            "{told}"
        );
        assert!(!told.contains("[DONE]"), "{told}");
        wait_until("it has ended", || {
            get(&rig, &path, "").json()["state"] == "ended"
        });
    }
}
