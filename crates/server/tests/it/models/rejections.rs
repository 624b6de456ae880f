//! Requests that are rejected while their model is loaded on demand. A response has begun by then, with a report of the
//! progress, except the response to a job, whose head waits for the model.

use super::shelf::Rig;
use crate::support::automaton::{Story, accept};
use crate::support::client::Client;
use crate::support::dialects::{DIALECTS, Dialect, JOBS};
use crate::support::named::set_fields;
use crate::support::wait_until;
use serde_json::{Value, json};
use server::ModelLimits;

/// Fields of a request, whether the model can be loaded, and what the error message contains.
fn cases() -> [(Value, bool, &'static str); 4] {
    [
        (json!({"stop_token_ids": ["x"]}), true, "stop_token_ids"),
        (json!({"logit_bias": {"x": 1}}), true, "logit_bias"),
        (json!({"seed": 1}), false, "could not be loaded"),
        (json!({"deadline_ms": 0}), true, "deadline_ms"),
    ]
}

/// A streaming request for the model `a`, which is being loaded.
struct Waiting {
    dialect: &'static Dialect,
    client: Client,
    /// The body so far, once the response has begun.
    body: Option<String>,
}

impl Waiting {
    fn begin(rig: &Rig, dialect: &'static Dialect, over: &Value) -> Self {
        let mut body = json!({"model": "a", "stream": true, "max_tokens": 4});
        (dialect.prompt)(&mut body, "hi");
        set_fields(&mut body, over);
        (dialect.shape)(&mut body);
        let (path, body) = (dialect.path, body.to_string());
        let fields = "host: localhost\r\nx-stream-resumable: 0\r\ncontent-type: application/json";
        let length = body.len();
        let mut client = Client::connect(rig.addr);
        let head = format!("POST {path} HTTP/1.1\r\n{fields}\r\ncontent-length: {length}\r\n\r\n");
        client.send((head + &body).as_bytes());
        wait_until("the model is being loaded", || rig.log() == ["loading a"]);
        let has_begun = dialect.name != JOBS.name;
        let body = has_begun.then(|| {
            assert_eq!(client.head().status, 200, "{}", dialect.name);
            client.chunk().expect("a report of progress")
        });
        Self {
            dialect,
            client,
            body,
        }
    }

    /// The complete response, which ends with an error.
    fn error(mut self) -> String {
        let dialect = self.dialect;
        let story = match self.body.take() {
            Some(body) => Self::streamed(dialect, &(body + &self.client.body())),
            None => {
                let reply = self.client.reply();
                let items = (dialect.whole)(reply.head.status, &reply.json());
                accept(dialect.rules(1), &items.expect("an error response"))
            }
        };
        let story = story.unwrap_or_else(|why| panic!("{}: {why}", dialect.name));
        assert!(story.texts.is_empty(), "{}: {story:?}", dialect.name);
        story.error.expect("an error").1
    }

    fn streamed(dialect: &Dialect, body: &str) -> Result<Story, String> {
        let items = (dialect.frames)(&(dialect.events)(body)?)?;
        accept(dialect.rules(1), &items).map_err(|why| format!("{why}: {body}"))
    }
}

#[test]
fn request_rejected_while_its_model_loads_ends_with_the_error_of_its_protocol() {
    for dialect in &DIALECTS {
        for (over, is_loaded, words) in cases() {
            let rig = Rig::start(ModelLimits::default());
            let waiting = Waiting::begin(&rig, dialect, &over);
            if is_loaded {
                rig.allow();
            } else {
                rig.refuse();
            }
            let message = waiting.error();
            assert!(message.contains(words), "{}: {message}", dialect.name);
        }
    }
}

#[test]
fn shutdown_while_a_model_loads_ends_with_the_error_of_the_protocol() {
    for dialect in &DIALECTS {
        let mut rig = Rig::start(ModelLimits::default());
        let waiting = Waiting::begin(&rig, dialect, &json!({}));
        rig.ask_to_stop();
        let message = waiting.error();
        assert!(
            message.contains("shutting down"),
            "{}: {message}",
            dialect.name
        );
        rig.allow();
    }
}
