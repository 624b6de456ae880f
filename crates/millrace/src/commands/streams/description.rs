//! The server's description of a stream, on the terminal.

use crate::terminal_text;
use crate::terminal_text::Align;
use serde::Deserialize;
use std::fmt::Write;

/// The fields that are shown.
#[derive(Deserialize)]
pub(super) struct StreamDescription {
    id: String,
    model: String,
    dialect: String,
    state: String,
    #[serde(default)]
    position: Option<u64>,
    #[serde(default)]
    refused: Option<String>,
    #[serde(default)]
    parked: Option<String>,
    resumable: bool,
    #[serde(default)]
    durable: Option<bool>,
    #[serde(default)]
    recovered: Option<u64>,
    attached: bool,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    pub(super) choices: Vec<ChoiceDescription>,
    pub(super) timings_ms: Timings,
}

#[derive(Deserialize)]
pub(super) struct ChoiceDescription {
    pub(super) tokens: u64,
    end: Option<String>,
    #[serde(default)]
    detail: Option<String>,
}

/// Milliseconds since the opening of the stream.
#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct Timings {
    pub(super) age: u64,
    pub(super) first_token: Option<u64>,
    pub(super) ended: Option<u64>,
}

impl StreamDescription {
    /// Whether nothing more is generated.
    pub(super) fn has_ended(&self) -> bool {
        self.state == "ended"
    }

    /// The state with the reason or the position.
    fn shown_state(&self) -> String {
        let ends = self.choices.iter().filter_map(|choice| {
            let end = choice.end.as_deref()?;
            Some(match &choice.detail {
                Some(detail) => format!("{end}: {detail}"),
                None => end.to_owned(),
            })
        });
        let detail = match &*self.state {
            "ended" => self.refused.clone().or_else(|| {
                let mut ends: Vec<String> = ends.collect();
                ends.dedup();
                (!ends.is_empty()).then(|| ends.join(", "))
            }),
            "queued" => self.position.map(|position| position.to_string()),
            "parked" => self.parked.clone(),
            _ => None,
        };
        match detail {
            Some(detail) => format!("{} ({detail})", self.state),
            None => self.state.clone(),
        }
    }

    /// A line for each property.
    pub(super) fn details(&self) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let ms = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
        let mut rows = vec![
            ("id", self.id.clone()),
            ("model", self.model.clone()),
            ("API", self.dialect.clone()),
            ("state", self.shown_state()),
            ("resumable", yes(self.resumable)),
        ];
        rows.extend(self.durable.map(|durable| ("durable", yes(durable))));
        rows.extend(self.recovered.map(|times| ("recovered", times.to_string())));
        rows.push(("reader", yes(self.attached)));
        let prompt = format!(
            "{} tokens ({} cached)",
            self.prompt_tokens, self.cached_tokens
        );
        rows.push(("prompt", prompt));
        rows.push(("answer", format!("{} tokens", self.completion_tokens)));
        if self.choices.len() > 1 {
            let tokens = self.choices.iter().map(|choice| choice.tokens.to_string());
            rows.push(("choices", tokens.collect::<Vec<_>>().join(", ")));
        }
        rows.push(("age", ms(self.timings_ms.age)));
        rows.extend(
            self.timings_ms
                .first_token
                .map(|at| ("first token", format!("after {}", ms(at)))),
        );
        rows.extend(
            self.timings_ms
                .ended
                .map(|at| ("end", format!("after {}", ms(at)))),
        );
        let mut out = String::new();
        for (name, value) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<12} {value}");
        }
        out
    }
}

/// A line for each stream.
pub(super) fn stream_table(streams: &[StreamDescription]) -> String {
    let rows = streams.iter().map(|stream| {
        [
            stream.id.clone(),
            stream.model.clone(),
            stream.dialect.clone(),
            stream.shown_state(),
            stream.completion_tokens.to_string(),
            terminal_text::span(stream.timings_ms.age / 1000),
        ]
    });
    let head = ["ID", "MODEL", "API", "STATE", "TOKENS", "AGE"];
    let align = [
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Right,
        Align::Left,
    ];
    terminal_text::table(head, align, rows)
}
