//! Client of a load run: a connection pool, request bodies, and one request from arrival to end.

use super::options::{Endpoint, LoadError, LoadOptions, Target};
use super::request_trace::{Failure, RequestTrace, TraceRecorder};
use crate::process::now;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

/// Largest non-streaming response body in bytes.
const BODY_BYTES_MAX: usize = 4 << 20;

/// State shared by all requests of a run.
pub(super) struct LoadClient {
    pub(super) options: LoadOptions,
    model: String,
    connections: Connections,
    authorization: Option<HeaderValue>,
}

impl LoadClient {
    /// Creates the client; asks the server for the model's name if the options have none.
    pub(super) async fn new(options: LoadOptions) -> Result<Self, LoadError> {
        let bearer = options
            .api_key
            .as_ref()
            .map(|key| HeaderValue::try_from(format!("Bearer {key}")));
        let authorization = bearer.transpose();
        let mut client = Self {
            model: options.model.clone().unwrap_or_default(),
            connections: Connections::new(options.target.clone()),
            authorization: authorization.map_err(|why| LoadError(format!("api-key: {why}")))?,
            options,
        };
        if client.options.model.is_none() {
            client.model = client.first_model().await?;
        }
        Ok(client)
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    async fn first_model(&self) -> Result<String, LoadError> {
        let request = self.build_request(Method::GET, "/models", Bytes::new())?;
        let list = self.fetch_json(&request).await?;
        let id = list["data"][0]["id"].as_str().map(str::to_owned);
        id.ok_or_else(|| LoadError("the server lists no model; name one".to_owned()))
    }

    /// Prompt tokens according to a non-streaming response, since some servers send no usage in streams. `None`
    /// if the server sends no usage or no non-streaming response.
    pub(super) async fn prompt_tokens(&self, prompt: &str) -> Option<u64> {
        let (path, mut body) = self.request_body(prompt, 1);
        body["stream"] = json!(false);
        if let Some(body) = body.as_object_mut() {
            body.remove("stream_options");
        }
        let request = self.build_request(Method::POST, path, body.to_string().into());
        let whole = self.fetch_json(&request.ok()?).await.ok()?;
        whole["usage"]["prompt_tokens"].as_u64()
    }

    /// Sends a request and parses the JSON response.
    async fn fetch_json(&self, request: &Request<Full<Bytes>>) -> Result<Value, LoadError> {
        let trouble = |failure: Failure| {
            let (method, uri) = (request.method(), request.uri());
            let name = match failure {
                Failure::Cut => "the answer was cut off".to_owned(),
                Failure::Malformed => "this is no answer of an OpenAI-compatible server".to_owned(),
                failure => failure.name(),
            };
            let host = &self.options.target.authority;
            LoadError(format!("{method} {uri} at {host}: {name}"))
        };
        let (response, sender) = self.connections.send(request).await.map_err(trouble)?;
        if !response.status().is_success() {
            return Err(trouble(Failure::Status(response.status().as_u16())));
        }
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|_| trouble(Failure::Cut))?.to_bytes();
        self.connections.return_idle(sender);
        serde_json::from_slice(&body).map_err(|_| trouble(Failure::Malformed))
    }

    /// A streaming request with `prompt`.
    pub(super) fn completion_request(
        &self,
        prompt: &str,
        max_tokens: u32,
    ) -> Result<Request<Full<Bytes>>, LoadError> {
        let (path, body) = self.request_body(prompt, max_tokens);
        self.build_request(Method::POST, path, body.to_string().into())
    }

    /// Path and body of a streaming request.
    fn request_body(&self, prompt: &str, max_tokens: u32) -> (&'static str, Value) {
        let mut body = json!({
            "model": self.model,
            "max_tokens": max_tokens,
            "temperature": self.options.temperature,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let path = match self.options.endpoint {
            Endpoint::Chat => {
                body["messages"] = json!([{"role": "user", "content": prompt}]);
                "/chat/completions"
            }
            Endpoint::Completions => {
                body["prompt"] = json!(prompt);
                "/completions"
            }
        };
        if self.options.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        (path, body)
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, LoadError> {
        let target = &self.options.target;
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

    /// Sends a request and records the stream to its end.
    pub(super) async fn send_request(
        &self,
        request: &Request<Full<Bytes>>,
        due: Instant,
    ) -> Result<RequestTrace, Failure> {
        let deadline = (due + self.options.timeout).into();
        let answer = timeout_at(deadline, self.read_stream(request, due)).await;
        answer.unwrap_or(Err(Failure::Timeout))
    }

    async fn read_stream(
        &self,
        request: &Request<Full<Bytes>>,
        due: Instant,
    ) -> Result<RequestTrace, Failure> {
        let (response, sender) = self.connections.send(request).await?;
        if !response.status().is_success() {
            return Err(Failure::Status(response.status().as_u16()));
        }
        let (mut body, mut recorder) = (response.into_body(), TraceRecorder::new(due));
        let mut end = None;
        while let Some(frame) = body.frame().await {
            // A broken connection is no failure if the stream was already complete.
            let Ok(frame) = frame else { break };
            if let Some(bytes) = frame.data_ref() {
                recorder.push(bytes, now());
            }
            if recorder.is_finished() {
                end.get_or_insert_with(now);
            }
        }
        self.connections.return_idle(sender);
        recorder.into_trace(end.unwrap_or_else(now))
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// Idle connections to one server, at most as many as requests were in flight.
pub(super) struct Connections {
    target: Target,
    idle: Mutex<Vec<Sender>>,
}

impl Connections {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            idle: Mutex::default(),
        }
    }

    /// Sends a request on an idle connection, or else on a new one. Returns the response head and the
    /// connection; pass the connection to [`Self::return_idle`] after the body was read to the end.
    pub(crate) async fn send(
        &self,
        request: &Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        if let Some(mut sender) = self.take_idle() {
            // The server may have closed the idle connection, which is no failure.
            if let Ok(response) = sender.send_request(request.clone()).await {
                return Ok((response, sender));
            }
        }
        let mut sender = self.connect().await.map_err(|_| Failure::Connect)?;
        let response = sender.send_request(request.clone()).await;
        response
            .map(|response| (response, sender))
            .map_err(|_| Failure::Cut)
    }

    pub(crate) fn return_idle(&self, sender: Sender) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|sender| !sender.is_closed())
    }

    async fn connect(&self) -> Result<Sender, LoadError> {
        let socket = TcpStream::connect(&self.target.authority)
            .await
            .map_err(LoadError::of)?;
        socket.set_nodelay(true).map_err(LoadError::of)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(LoadError::of)?;
        // The connection task ends with the sender or the server.
        tokio::spawn(connection);
        sender.ready().await.map_err(LoadError::of)?;
        Ok(sender)
    }
}
