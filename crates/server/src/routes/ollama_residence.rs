//! Requests that ask for no answer: they have a model loaded, or let go of.

use crate::app::App;
use crate::gateway::served::{Keep, Named, State};
use crate::routes::ollama_unsupported;
use crate::wire::clock;
use crate::wire::fields::{self, Fields, Kind};
use crate::wire::format::Format;
use crate::wire::json;
use crate::wire::native::rfc3339;
use crate::wire::ollama::request::says_something;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::BytesMut;
use generate::error::ApiError;
use std::time::Duration;

/// What `keep_alive` must be.
const KEEP_ALIVE: &str =
    "must be a number of seconds, or a text like \"5m\" or \"1h30m\"; below 0 is for ever";

/// How long a model is to stay after an answer, as a request says it.
pub(crate) fn keep_alive(fields: &mut Fields<'_>) -> Option<Keep> {
    let raw = fields.raw("keep_alive")?;
    let seconds = match fields::kind(raw) {
        Kind::Number => fields::read::<f64>(raw),
        _ => fields::text(raw).and_then(|text| seconds(&text)),
    };
    let Some(seconds) = seconds else {
        fields.wrong("keep_alive", KEEP_ALIVE);
        return None;
    };
    if seconds < 0.0 {
        return Some(Keep::ForEver);
    }
    // Longer than a duration can be is for ever.
    let time = Duration::try_from_secs_f64(seconds);
    Some(time.map_or(Keep::ForEver, Keep::For))
}

/// A duration as Go writes it, or a plain number of seconds.
fn seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain(rest) {
        return rest.parse::<f64>().ok().map(|seconds| sign * seconds);
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(unit);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let each = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * each;
        rest = after;
    }
    Some(sign * sum)
}

/// What a request says of the model beside its question, or without one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Residence {
    model: Option<String>,
    keep: Option<Keep>,
    /// The request asks for no answer.
    is_all: bool,
}

impl Residence {
    /// Reads it. What is wrong beside a question is left to who reads that.
    ///
    /// # Errors
    /// The body is no JSON, or has no question and says nonsense about the model.
    pub(crate) fn of(format: Format, body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let question = match format {
            Format::OllamaChat => "messages",
            _ => "prompt",
        };
        let is_all = ![question, "images", "suffix"]
            .iter()
            .any(|name| says_something(&fields, name));
        let model = fields.string("model").map(std::borrow::Cow::into_owned);
        let keep = keep_alive(&mut fields);
        let right = fields.finish();
        if is_all {
            right?;
        }
        Ok(Self {
            model,
            keep,
            is_all,
        })
    }

    /// Whether the model is all it is about.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Has the model stay as long as the request with a question wants it to. A model that there is not is refused
    /// by who reads the question.
    pub(crate) async fn noted(self, app: &App) {
        if let (Some(keep), true) = (self.keep, app.models.library().is_some())
            && let Ok(named) = app.models.look_up(self.model.as_deref()).await
        {
            named.slot.set_keep(keep);
        }
    }

    /// Waits until the model answers, or is let go of, and says so.
    ///
    /// # Errors
    /// There is no such model; it could not be loaded; nobody could load it again.
    pub(crate) async fn answer(self, app: &App, format: Format) -> Result<Response, ApiError> {
        let models = &app.models;
        let named = models.look_up(self.model.as_deref()).await?;
        let done = match self.keep {
            Some(Keep::For(Duration::ZERO)) => {
                if models.library().is_none() {
                    return Err(ollama_unsupported::refuse(
                        "unloading a model by keep_alive",
                        "a model stays loaded as long as the server runs",
                    ));
                }
                // Who is at work leaves when it is done.
                named.slot.set_keep(Keep::For(Duration::ZERO));
                models.unload(&named.slot).await;
                models.look_again();
                "unload"
            }
            keep => {
                if let Some(keep) = keep {
                    named.slot.set_keep(keep);
                }
                loaded(app, &named, self.model.as_deref()).await?;
                models.look_again();
                "load"
            }
        };
        let mut response = Response::new(Body::from(told(&named.name, format, done).freeze()));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }
}

/// Waits until it is ready, as long as the client does.
async fn loaded(app: &App, named: &Named, name: Option<&str>) -> Result<(), ApiError> {
    if app.models.library().is_some() {
        return app.models.want_named(name).await?.held().await.map(drop);
    }
    let mut states = named.slot.watch();
    // An error says that nobody will change it any more.
    let _ = states
        .wait_for(|state| !matches!(state, State::Loading { .. }))
        .await;
    named.hold().map(drop)
}

fn told(model: &str, format: Format, done: &str) -> BytesMut {
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"model\":");
    json::string(&mut out, model);
    json::raw(&mut out, ",\"created_at\":\"");
    rfc3339::write_nanos(clock::wall(clock::now()), &mut out);
    json::raw(
        &mut out,
        match format {
            Format::OllamaChat => "\",\"message\":{\"role\":\"assistant\",\"content\":\"\"}",
            _ => "\",\"response\":\"\"",
        },
    );
    json::raw(&mut out, ",\"done\":true,\"done_reason\":");
    json::string(&mut out, done);
    json::raw(&mut out, "}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let rows = [
            ("5m", Some(300.0)),
            ("1h30m", Some(5400.0)),
            ("1.5h", Some(5400.0)),
            ("-1", Some(-1.0)),
            ("-1s", Some(-1.0)),
            ("0", Some(0.0)),
            ("0s", Some(0.0)),
            ("250ms", Some(0.25)),
            ("", None),
            ("m", None),
            ("5 m", None),
            ("5d", None),
            ("soon", None),
            ("1.2.3s", None),
        ];
        for (text, want) in rows {
            assert_eq!(seconds(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_request_without_a_question_is_about_the_model() {
        let go = Some(Keep::For(Duration::ZERO));
        let (chat, generate) = (Format::OllamaChat, Format::OllamaGenerate);
        let rows = [
            (generate, r#"{"model":"m"}"#, Ok((None, true))),
            (generate, r#"{"prompt":""}"#, Ok((None, true))),
            (generate, r#"{"prompt":"","keep_alive":0}"#, Ok((go, true))),
            (generate, r#"{"keep_alive":"0s"}"#, Ok((go, true))),
            (
                generate,
                r#"{"keep_alive":-1}"#,
                Ok((Some(Keep::ForEver), true)),
            ),
            (
                generate,
                r#"{"keep_alive":1e300}"#,
                Ok((Some(Keep::ForEver), true)),
            ),
            (
                generate,
                r#"{"prompt":"hi","keep_alive":0}"#,
                Ok((go, false)),
            ),
            (chat, r#"{"messages":[]}"#, Ok((None, true))),
            (chat, r#"{"messages":[{}]}"#, Ok((None, false))),
            (chat, r#"{"messages":7}"#, Ok((None, false))),
            (
                chat,
                r#"{"messages":7,"keep_alive":"soon"}"#,
                Ok((None, false)),
            ),
            (
                chat,
                r#"{"keep_alive":"1m30s"}"#,
                Ok((Some(Keep::For(Duration::from_secs(90))), true)),
            ),
            (chat, r#"{"keep_alive":"soon"}"#, Err(())),
            (chat, r#"{"model":7}"#, Err(())),
            (chat, "x", Err(())),
        ];
        for (format, body, want) in rows {
            let asked = Residence::of(format, body.as_bytes());
            let told = asked.map(|asked| (asked.keep, asked.is_all));
            assert_eq!(told.map_err(|_| ()), want, "{body}");
        }
    }
}
