//! `keep_alive`: how long a model stays loaded without a request.

use crate::fields::{self, Fields, JsonType, OrReject};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a model stays loaded without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKeepAlive {
    /// The model is unloaded after this time.
    For(Duration),
    /// The model is unloaded only to free memory for another model.
    Forever,
}

impl ModelKeepAlive {
    /// Time at which a model is unloaded if its last request was at `last`.
    pub fn unload_time(self, last: Instant) -> Option<Instant> {
        match self {
            Self::For(time) => last.checked_add(time),
            Self::Forever => None,
        }
    }

    /// Whether a model would be unloaded earlier than with `other`.
    pub fn is_shorter_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::For(own), Self::For(other)) => own < other,
            (Self::For(_), Self::Forever) => true,
            (Self::Forever, _) => false,
        }
    }
}

impl From<Option<Duration>> for ModelKeepAlive {
    fn from(idle: Option<Duration>) -> Self {
        idle.map_or(Self::Forever, Self::For)
    }
}

/// Error message for an invalid `keep_alive`.
const KEEP_ALIVE_MESSAGE: &str = "must be a number of seconds, or a duration like \"5m\" or \"1h30m\"; a negative number keeps the model loaded";

/// Parses `keep_alive`.
pub fn keep_alive(fields: &mut Fields<'_>) -> Option<ModelKeepAlive> {
    let raw = fields.described("keep_alive", || {
        json!({"type": ["number", "string"], "description": "seconds, or a duration such as 5m"})
    })?;
    let seconds = match fields::json_type(raw) {
        JsonType::Number => fields::parse_value::<f64>(raw),
        _ => fields::as_text(raw).and_then(|text| parse_seconds(&text)),
    };
    let seconds = seconds.or_reject(fields, "keep_alive", KEEP_ALIVE_MESSAGE)?;
    if seconds < 0.0 {
        return Some(ModelKeepAlive::Forever);
    }
    // Overflow means no limit.
    let time = Duration::try_from_secs_f64(seconds);
    Some(time.map_or(ModelKeepAlive::Forever, ModelKeepAlive::For))
}

/// Seconds of a duration in Go's syntax, or of a number.
fn parse_seconds(text: &str) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::parse_seconds;

    #[test]
    fn duration_in_go_syntax_is_parsed() {
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
            assert_eq!(parse_seconds(text), want, "{text:?}");
        }
    }
}
