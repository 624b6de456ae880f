//! Client of an evaluation: sends all cases, several at a time.

use super::answer::ModelAnswer;
use super::case::EvalCase;
use super::options::{CLIENTS_MAX, EvalError, EvalOptions};
use super::report::EvalReport;
use super::verdict::Verdict;
use crate::clock::now;
use crate::load::{Connections, Failure};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Largest response body in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Default of `max_tokens`, where the case has none.
const MAX_TOKENS: u32 = 512;

/// Sends all cases and checks the answers.
///
/// # Errors
/// Options out of bounds, an API key that is not a valid header value, or no runtime. A server that does not
/// answer makes its cases wrong instead.
pub fn run(cases: Vec<EvalCase>, options: EvalOptions) -> Result<EvalReport, EvalError> {
    if !(1..=CLIENTS_MAX).contains(&options.clients) {
        return Err(EvalError(format!(
            "clients is {}: from 1 to {CLIENTS_MAX} is possible",
            options.clients
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| EvalError(why.to_string()))?;
    let client = EvalClient::new(options)?;
    let start = now();
    let verdicts = runtime.block_on(run_all(Arc::new(cases), Arc::new(client)));
    Ok(EvalReport::of(&verdicts, now() - start))
}

/// Runs all cases; verdicts are in the order of the cases.
async fn run_all(cases: Arc<Vec<EvalCase>>, client: Arc<EvalClient>) -> Vec<Verdict> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..client.options.clients.min(cases.len()) {
        let (cases, client, next) = (Arc::clone(&cases), Arc::clone(&client), Arc::clone(&next));
        tasks.spawn(async move {
            let mut verdicts = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(index) else {
                    return verdicts;
                };
                verdicts.push((index, client.run_case(case).await));
            }
        });
    }
    let mut verdicts: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    verdicts.sort_by_key(|(index, _)| *index);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

struct EvalClient {
    options: EvalOptions,
    connections: Connections,
    authorization: Option<HeaderValue>,
}

impl EvalClient {
    fn new(options: EvalOptions) -> Result<Self, EvalError> {
        let bearer = options
            .api_key
            .as_ref()
            .map(|key| HeaderValue::try_from(format!("Bearer {key}")));
        Ok(Self {
            connections: Connections::new(options.target.clone()),
            authorization: bearer
                .transpose()
                .map_err(|why| EvalError(format!("api-key: {why}")))?,
            options,
        })
    }

    async fn run_case(&self, case: &EvalCase) -> Verdict {
        let answer = timeout(self.options.timeout, self.fetch_answer(case)).await;
        let outcome = match answer.unwrap_or_else(|_| Err(Failure::Timeout.name())) {
            Ok(answer) => case
                .check
                .judge(&answer)
                .map_err(|why| format!("{}: {why}", answer.summary())),
            Err(why) => Err(format!("no answer: {why}")),
        };
        Verdict {
            skill: case.skill.clone(),
            question: last_message(case),
            outcome,
        }
    }

    async fn fetch_answer(&self, case: &EvalCase) -> Result<ModelAnswer, String> {
        let request = self.build_request(case)?;
        let (response, sender) = self
            .connections
            .send(&request)
            .await
            .map_err(|failure| failure.name())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|_| Failure::Cut.name())?;
        self.connections.return_idle(sender);
        let body = body.to_bytes();
        if !status.is_success() {
            let message = String::from_utf8_lossy(&body);
            return Err(format!(
                "{}: {message}",
                Failure::Status(status.as_u16()).name()
            ));
        }
        let body: Value = serde_json::from_slice(&body).map_err(|why| why.to_string())?;
        ModelAnswer::of(&body).ok_or_else(|| Failure::Malformed.name())
    }

    fn build_request(&self, case: &EvalCase) -> Result<Request<Full<Bytes>>, String> {
        let mut body = case.request.clone();
        if let Some(model) = &self.options.model {
            body.entry("model").or_insert_with(|| json!(model));
        }
        body.entry("temperature").or_insert_with(|| json!(0));
        body.entry("max_tokens")
            .or_insert_with(|| json!(MAX_TOKENS));
        let target = &self.options.target;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/chat/completions", target.base))
            .header(header::HOST, &target.authority)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let body = Value::Object(body).to_string();
        request
            .body(Full::new(body.into()))
            .map_err(|why| why.to_string())
    }
}

/// The last message with text content, for the report.
fn last_message(case: &EvalCase) -> String {
    let messages = case.request.get("messages").and_then(Value::as_array);
    let texts = messages.into_iter().flatten();
    let last = texts
        .filter_map(|message| message.get("content")?.as_str())
        .next_back();
    last.unwrap_or_default().to_owned()
}
