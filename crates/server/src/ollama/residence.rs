//! Requests that ask for no answer: they have a model loaded, or let go of.

use super::names;
use super::request::says_something;
use super::unsupported;
use crate::clock;
use crate::error::ApiError;
use crate::fields::{self, Fields, Kind};
use crate::format::Format;
use crate::json;
use crate::native::rfc3339;
use crate::router::App;
use crate::served::{Slot, State};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::BytesMut;

/// What `keep_alive` must be.
const KEEP_ALIVE: &str =
    "must be a number of seconds, or a text like \"5m\" or \"1h30m\"; below 0 is for ever";

/// How long a model is to stay after an answer. Here it stays as long as the server runs: only its
/// form matters, and whether it asks to let go at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    /// Until the operator says otherwise.
    Stay,
    /// Not at all.
    Go,
}

impl KeepAlive {
    /// What a request says; it need not.
    pub(super) fn parse(fields: &mut Fields<'_>) -> Self {
        let Some(raw) = fields.raw("keep_alive") else {
            return Self::Stay;
        };
        let seconds = match fields::kind(raw) {
            Kind::Number => fields::read::<f64>(raw),
            _ => fields::text(raw).and_then(|text| seconds(&text)),
        };
        match seconds {
            Some(0.0) => Self::Go,
            Some(_) => Self::Stay,
            None => {
                fields.wrong("keep_alive", KEEP_ALIVE);
                Self::Stay
            }
        }
    }
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

/// What a request without a question asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Residence {
    model: Option<String>,
    keep: KeepAlive,
}

impl Residence {
    /// `None`: there is a question.
    ///
    /// # Errors
    /// The body is no JSON, or says nonsense about the model.
    pub(super) fn of(format: Format, body: &[u8]) -> Result<Option<Self>, ApiError> {
        let mut fields = Fields::parse(body)?;
        let question = match format {
            Format::OllamaChat => "messages",
            _ => "prompt",
        };
        if [question, "images", "suffix"]
            .iter()
            .any(|name| says_something(&fields, name))
        {
            return Ok(None);
        }
        let model = fields.string("model").map(std::borrow::Cow::into_owned);
        let keep = KeepAlive::parse(&mut fields);
        fields.finish()?;
        Ok(Some(Self { model, keep }))
    }

    /// Waits until the model answers, and says so.
    ///
    /// # Errors
    /// There is no such model; it could not be loaded; it is to be let go of.
    pub(super) async fn answer(self, app: &App, format: Format) -> Result<Response, ApiError> {
        let slot = names::find(&app.models, self.model.as_deref())?;
        if self.keep == KeepAlive::Go {
            return Err(unsupported::refuse(
                "unloading a model by keep_alive",
                "a model stays loaded as long as the server runs",
            ));
        }
        loaded(slot).await;
        let serving = slot.expect_ready()?;
        let mut response = Response::new(Body::from(told(&serving.model.id, format).freeze()));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }
}

/// Waits while it is being loaded, as long as the client does.
async fn loaded(slot: &Slot) {
    let mut states = slot.watch();
    // An error says that nobody will change it any more.
    let _ = states
        .wait_for(|state| !matches!(state, State::Loading { .. }))
        .await;
}

fn told(model: &str, format: Format) -> BytesMut {
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
    json::raw(&mut out, ",\"done\":true,\"done_reason\":\"load\"}");
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
        let (stay, go) = (Some(KeepAlive::Stay), Some(KeepAlive::Go));
        let (chat, generate) = (Format::OllamaChat, Format::OllamaGenerate);
        let rows = [
            (generate, r#"{"model":"m"}"#, Ok(stay)),
            (generate, r#"{"prompt":""}"#, Ok(stay)),
            (generate, r#"{"prompt":"","keep_alive":0}"#, Ok(go)),
            (generate, r#"{"keep_alive":"0s"}"#, Ok(go)),
            (generate, r#"{"keep_alive":-1}"#, Ok(stay)),
            (generate, r#"{"prompt":"hi","keep_alive":0}"#, Ok(None)),
            (chat, r#"{"messages":[]}"#, Ok(stay)),
            (chat, r#"{"messages":[{}]}"#, Ok(None)),
            (chat, r#"{"messages":7}"#, Ok(None)),
            (chat, r#"{"keep_alive":"soon"}"#, Err(())),
            (chat, r#"{"model":7}"#, Err(())),
            (chat, "x", Err(())),
        ];
        for (format, body, want) in rows {
            let asked = Residence::of(format, body.as_bytes());
            let keep = asked
                .map(|asked| asked.map(|asked| asked.keep))
                .map_err(|_| ());
            assert_eq!(keep, want, "{body}");
        }
    }
}
