//! All cases asked, a few at a time.

use super::answer::Answer;
use super::case::Case;
use super::options::{CLIENTS_MAX, EvalError, Wish};
use super::report::Report;
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

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Of an answer, where the case does not say.
const MAX_TOKENS: u32 = 512;

/// Asks every case and judges the answers.
///
/// # Errors
/// A wish out of bounds, a key that is no header's value, or no runtime. A server that does not answer makes its cases
/// wrong instead.
pub fn run(cases: Vec<Case>, wish: Wish) -> Result<Report, EvalError> {
    if !(1..=CLIENTS_MAX).contains(&wish.clients) {
        return Err(EvalError(format!(
            "clients is {}: from 1 to {CLIENTS_MAX} is possible",
            wish.clients
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| EvalError(why.to_string()))?;
    let asker = Asker::new(wish)?;
    let start = now();
    let verdicts = runtime.block_on(all(Arc::new(cases), Arc::new(asker)));
    Ok(Report::of(&verdicts, now() - start))
}

/// In the order of the cases.
async fn all(cases: Arc<Vec<Case>>, asker: Arc<Asker>) -> Vec<Verdict> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..asker.wish.clients.min(cases.len()) {
        let (cases, asker, next) = (Arc::clone(&cases), Arc::clone(&asker), Arc::clone(&next));
        tasks.spawn(async move {
            let mut verdicts = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(index) else {
                    return verdicts;
                };
                verdicts.push((index, asker.verdict(case).await));
            }
        });
    }
    let mut verdicts: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    verdicts.sort_by_key(|(index, _)| *index);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

struct Asker {
    wish: Wish,
    connections: Connections,
    authorization: Option<HeaderValue>,
}

impl Asker {
    fn new(wish: Wish) -> Result<Self, EvalError> {
        let bearer = wish
            .api_key
            .as_ref()
            .map(|key| HeaderValue::try_from(format!("Bearer {key}")));
        Ok(Self {
            connections: Connections::new(wish.target.clone()),
            authorization: bearer
                .transpose()
                .map_err(|why| EvalError(format!("api-key: {why}")))?,
            wish,
        })
    }

    async fn verdict(&self, case: &Case) -> Verdict {
        let answer = timeout(self.wish.timeout, self.answer(case)).await;
        let outcome = match answer.unwrap_or_else(|_| Err(Failure::Timeout.name())) {
            Ok(answer) => case
                .check
                .judge(&answer)
                .map_err(|why| format!("{}: {why}", answer.shown())),
            Err(why) => Err(format!("no answer: {why}")),
        };
        Verdict {
            skill: case.skill.clone(),
            question: question(case),
            outcome,
        }
    }

    async fn answer(&self, case: &Case) -> Result<Answer, String> {
        let request = self.request(case)?;
        let (response, sender) = self
            .connections
            .send(&request)
            .await
            .map_err(|failure| failure.name())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|_| Failure::Cut.name())?;
        self.connections.keep(sender);
        let body = body.to_bytes();
        if !status.is_success() {
            let told = String::from_utf8_lossy(&body);
            return Err(format!(
                "{}: {told}",
                Failure::Status(status.as_u16()).name()
            ));
        }
        let body: Value = serde_json::from_slice(&body).map_err(|why| why.to_string())?;
        Answer::of(&body).ok_or_else(|| Failure::Malformed.name())
    }

    fn request(&self, case: &Case) -> Result<Request<Full<Bytes>>, String> {
        let mut body = case.request.clone();
        if let Some(model) = &self.wish.model {
            body.entry("model").or_insert_with(|| json!(model));
        }
        body.entry("temperature").or_insert_with(|| json!(0));
        body.entry("max_tokens")
            .or_insert_with(|| json!(MAX_TOKENS));
        let target = &self.wish.target;
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

/// The last message that is text, for who reads the report.
fn question(case: &Case) -> String {
    let messages = case.request.get("messages").and_then(Value::as_array);
    let texts = messages.into_iter().flatten();
    let last = texts
        .filter_map(|message| message.get("content")?.as_str())
        .next_back();
    last.unwrap_or_default().to_owned()
}
