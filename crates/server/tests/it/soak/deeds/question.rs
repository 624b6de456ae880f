//! What is asked, and how.

use super::{Actor, Outcome};
use crate::support::Rig;
use crate::support::client::{Client, Head};
use crate::support::dialects::{DIALECTS, Dialect, JOBS};
use crate::support::named;
use crate::support::named::set_fields;
use serde_json::{Value, json};

const CLASSES: [&str; 5] = ["critical", "high", "normal", "low", "background"];
const TOKENS_MAX: usize = 120;

/// A question and where it goes.
pub(crate) struct Question {
    pub(crate) dialect: &'static Dialect,
    /// Header fields.
    pub(crate) fields: String,
    pub(crate) body: Value,
    /// Tokens of its answer, each a letter.
    pub(crate) tokens: usize,
}

impl Actor {
    /// In any dialect.
    pub(crate) fn question(&mut self, over: &Value) -> Question {
        let dialect = self.dialect();
        self.question_in(dialect, over)
    }

    pub(crate) fn dialect(&mut self) -> &'static Dialect {
        &DIALECTS[self.below(DIALECTS.len())]
    }

    /// `over`: fields in place of its own, as OpenAI's chat has them.
    pub(crate) fn question_in(&mut self, dialect: &'static Dialect, over: &Value) -> Question {
        let tokens = 1 + self.below(TOKENS_MAX);
        let words = "a word ".repeat(1 + self.below(20)) + &self.below(1 << 20).to_string();
        let mut body = json!({
            "model": crate::support::MODEL, "seed": self.below(1000), "stream": true,
            "max_tokens": tokens, "ignore_eos": true, "stream_options": {"include_usage": true},
        });
        if dialect.name == "openai.responses" {
            body["store"] = json!(false);
        }
        set_fields(&mut body, over);
        (dialect.prompt)(&mut body, &words);
        (dialect.shape)(&mut body);
        let class = CLASSES[self.below(CLASSES.len())];
        Question {
            dialect,
            fields: format!("{}x-priority: {class}\r\n", self.field()),
            body,
            tokens,
        }
    }

    /// A job to run alone.
    pub(crate) fn job(&mut self) -> Question {
        self.question_in(JOBS, &json!({}))
    }
}

impl Question {
    /// Its request's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (path, fields, body) = (self.dialect.path, &self.fields, self.body.to_string());
        let length = body.len();
        let kind = "content-type: application/json";
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}{kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Asks on a connection of its own.
    ///
    /// # Errors
    /// It was refused.
    pub(crate) fn ask(&self, rig: &Rig) -> Result<(Client, Head), Outcome> {
        let mut client = Client::connect(rig.addr);
        client.send(&self.bytes());
        self.open(client)
    }

    /// The head of an answer that goes on.
    ///
    /// # Errors
    /// It was refused.
    pub(crate) fn open(&self, mut client: Client) -> Result<(Client, Head), Outcome> {
        let head = client.head();
        match (head.status, Outcome::of_status(head.status)) {
            (200, _) => Ok((client, head)),
            (429 | 503 | 504 | 529, Some(refused)) => Err(refused),
            _ => {
                let body = client.rest(&head);
                panic!("{}: {head:?} {body} to {}", self.dialect.name, self.body)
            }
        }
    }

    /// The whole answer at once.
    pub(crate) fn whole(&self, rig: &Rig) -> crate::support::client::Reply {
        named::call(rig, "POST", self.dialect.path, &self.fields, &self.body)
    }
}
