//! Requests as bytes, and one request from due to end.

use super::connection::Connections;
use super::options::{Endpoint, LoadError, Wish};
use super::story::{Failure, Story, Telling};
use crate::clock::now;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Value, json};
use std::time::Instant;
use tokio::time::timeout_at;

/// Bytes of an answer that is read whole.
const WHOLE_BYTES_MAX: usize = 4 << 20;

/// What all requests of a run share.
pub(super) struct Asker {
    pub(super) wish: Wish,
    model: String,
    connections: Connections,
    authorization: Option<HeaderValue>,
}

impl Asker {
    /// Learns the model's name from the server, if the wish has none.
    pub(super) async fn new(wish: Wish) -> Result<Self, LoadError> {
        let bearer = wish
            .api_key
            .as_ref()
            .map(|key| HeaderValue::try_from(format!("Bearer {key}")));
        let authorization = bearer.transpose();
        let mut asker = Self {
            model: wish.model.clone().unwrap_or_default(),
            connections: Connections::new(wish.target.clone()),
            authorization: authorization.map_err(|why| LoadError(format!("api-key: {why}")))?,
            wish,
        };
        if asker.wish.model.is_none() {
            asker.model = asker.first_model().await?;
        }
        Ok(asker)
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    async fn first_model(&self) -> Result<String, LoadError> {
        let request = self.request(Method::GET, "/models", Bytes::new())?;
        let list = self.whole(&request).await?;
        let id = list["data"][0]["id"].as_str().map(str::to_owned);
        id.ok_or_else(|| LoadError("the server lists no model; name one".to_owned()))
    }

    /// Tokens of a prompt, from the whole answer to it: some servers tell no usage in streams. None if they
    /// tell none there either, or give no whole answers.
    pub(super) async fn prompt_tokens(&self, prompt: &str) -> Option<u64> {
        let (path, mut body) = self.body(prompt, 1);
        body["stream"] = json!(false);
        if let Some(body) = body.as_object_mut() {
            body.remove("stream_options");
        }
        let request = self.request(Method::POST, path, body.to_string().into());
        let whole = self.whole(&request.ok()?).await.ok()?;
        whole["usage"]["prompt_tokens"].as_u64()
    }

    /// The JSON that answers a request.
    async fn whole(&self, request: &Request<Full<Bytes>>) -> Result<Value, LoadError> {
        let trouble = |failure: Failure| {
            let (method, uri, name) = (request.method(), request.uri(), failure.name());
            let host = &self.wish.target.authority;
            LoadError(format!("{method} {uri} at {host}: {name}"))
        };
        let (response, sender) = self.connections.send(request).await.map_err(trouble)?;
        if !response.status().is_success() {
            return Err(trouble(Failure::Status(response.status().as_u16())));
        }
        let body = Limited::new(response.into_body(), WHOLE_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|_| trouble(Failure::Cut))?.to_bytes();
        self.connections.keep(sender);
        serde_json::from_slice(&body).map_err(|_| trouble(Failure::Malformed))
    }

    /// The request for an answer to `prompt`.
    pub(super) fn asking(
        &self,
        prompt: &str,
        max_tokens: u32,
    ) -> Result<Request<Full<Bytes>>, LoadError> {
        let (path, body) = self.body(prompt, max_tokens);
        self.request(Method::POST, path, body.to_string().into())
    }

    /// Where to send it, and what.
    fn body(&self, prompt: &str, max_tokens: u32) -> (&'static str, Value) {
        let mut body = json!({
            "model": self.model,
            "max_tokens": max_tokens,
            "temperature": self.wish.temperature,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let path = match self.wish.endpoint {
            Endpoint::Chat => {
                body["messages"] = json!([{"role": "user", "content": prompt}]);
                "/chat/completions"
            }
            Endpoint::Completions => {
                body["prompt"] = json!(prompt);
                "/completions"
            }
        };
        if self.wish.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        (path, body)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, LoadError> {
        let target = &self.wish.target;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", target.base))
            .header(header::HOST, &target.authority)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        request.body(Full::new(body)).map_err(LoadError::of)
    }

    /// One request to its end, whatever that is.
    pub(super) async fn ask(
        &self,
        request: &Request<Full<Bytes>>,
        due: Instant,
    ) -> Result<Story, Failure> {
        let deadline = (due + self.wish.timeout).into();
        let answer = timeout_at(deadline, self.follow(request, due)).await;
        answer.unwrap_or(Err(Failure::Timeout))
    }

    async fn follow(&self, request: &Request<Full<Bytes>>, due: Instant) -> Result<Story, Failure> {
        let (response, sender) = self.connections.send(request).await?;
        if !response.status().is_success() {
            return Err(Failure::Status(response.status().as_u16()));
        }
        let (mut body, mut telling) = (response.into_body(), Telling::new(due));
        let mut end = None;
        while let Some(frame) = body.frame().await {
            // What came before a broken connection counts, if it was all there is to say.
            let Ok(frame) = frame else { break };
            if let Some(bytes) = frame.data_ref() {
                telling.push(bytes, now());
            }
            if telling.is_over() {
                end.get_or_insert_with(now);
            }
        }
        self.connections.keep(sender);
        telling.finish(end.unwrap_or_else(now))
    }
}
