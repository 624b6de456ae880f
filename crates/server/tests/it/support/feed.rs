//! A reader of the feed.

use super::Rig;
use super::client::Client;
use super::named::send;
use serde_json::Value;

/// Path of the feed.
pub const FEED: &str = "/v1/streams/feed";

/// A reader of the feed.
pub struct Feed {
    pub client: Client,
    rest: String,
}

impl Feed {
    /// The feed at this path, for the caller that these header fields name.
    pub fn open(rig: &Rig, path: &str, fields: &str) -> Self {
        let mut client = send(rig, "GET", path, fields, &Value::Null);
        let head = client.head();
        assert_eq!(head.get("content-type"), Some("text/event-stream"));
        let rest = String::new();
        Self { client, rest }
    }

    /// The next event; comments are none.
    pub fn next(&mut self) -> Value {
        loop {
            if let Some((frame, rest)) = self.rest.split_once("\n\n") {
                let event = frame.strip_prefix("data: ").map(str::to_owned);
                self.rest = rest.to_owned();
                match event {
                    Some(event) => return serde_json::from_str(&event).unwrap(),
                    None => continue,
                }
            }
            self.rest += &self.client.chunk().expect("it goes on");
        }
    }
}
