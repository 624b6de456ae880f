//! Treatment of each field of a request: one table per wire protocol.
//!
//! A table has a row for every top-level field that the official clients of the protocol can send and the parser does not
//! read, and for fields of vLLM and llama.cpp that would change an answer. Such a field is accepted without effect, or
//! rejected with a 400 that names the field; a field that the parser reads is honored, and has a row only where some of
//! its values are rejected. A field without a row that the parser does not read is accepted, and named in the
//! response header [`IGNORED_FIELDS`] and in a log line, as is a part of a field that the parser left out
//! (`tools.web_search`). `docs/request-fields.md` shows these tables with the fields that the parsers read; a test of
//! `request_schema` compares them.

pub mod rows;

pub use rows::{
    CHAT, COMPLETIONS, EMBEDDINGS, INFILL, JOBS, LLAMA_COMPLETION, MESSAGES, OLLAMA_CHAT,
    OLLAMA_EMBED, OLLAMA_EMBEDDINGS, OLLAMA_GENERATE, RERANK, RESPONSES,
};

use crate::fields::{self, Fields, RawJson};
use generate::request::IgnoredFields;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// The response header that names ignored fields.
const IGNORED_FIELDS: HeaderName = HeaderName::from_static("x-millrace-ignored-fields");
/// Names in that header; the rest are `...`.
const IGNORED_FIELDS_NAMED_MAX: usize = 16;
/// Bytes of a name in that header; a longer name is `...`.
const IGNORED_FIELD_BYTES_MAX: usize = 64;
/// The error message of a rejected field.
const NOT_SUPPORTED: &str = "is not supported yet by this server";

/// The fields of one wire protocol.
pub struct FieldTable {
    /// One row per field that the parser does not read, or of which it rejects values.
    pub rows: &'static [FieldRow],
}

/// One field.
pub struct FieldRow {
    /// Name of the field.
    pub name: &'static str,
    /// Treatment of the field by the server.
    pub treatment: Treatment,
}

/// Treatment of a field.
#[derive(Clone, Copy)]
pub enum Treatment {
    /// The parser reads the field. The text names values that are rejected in addition to wrong types and ranges.
    Honored(&'static str),
    /// Accepted without effect on the answer, for this reason.
    NoEffect(&'static str),
    /// A 400 that names the field, except for these values (JSON), which request the default behavior.
    Rejected {
        /// Accepted values.
        accepted: &'static [&'static str],
        /// The alternative, for the error message.
        instead: &'static str,
    },
}

impl FieldTable {
    /// Adds each rejected field to the problems.
    pub fn reject_fields(&self, fields: &mut Fields<'_>) {
        for row in self.rows {
            let Treatment::Rejected { accepted, instead } = row.treatment else {
                continue;
            };
            fields.record(row.name, || row.schema());
            let Some(raw) = fields.raw(row.name) else {
                continue;
            };
            if !is_one_of(raw, accepted) {
                let separator = if instead.is_empty() { "" } else { ": " };
                fields.reject(row.name, format!("{NOT_SUPPORTED}{separator}{instead}"));
            }
        }
    }

    /// Records what the rows say about the schemas of their fields.
    pub(crate) fn record(&self, fields: &Fields<'_>) {
        for row in self.rows {
            // A parser of a part of the protocol does not read all fields that the protocol honors.
            let is_honored = matches!(row.treatment, Treatment::Honored(_));
            if !is_honored || fields.has_recorded(row.name) {
                fields.record(row.name, || row.schema());
            }
        }
    }

    /// Whether the field has a row, and that row is not `Honored`.
    fn has_no_effect(&self, name: &str) -> bool {
        let row = self.rows.iter().find(|row| row.name == name);
        row.is_some_and(|row| !matches!(row.treatment, Treatment::Honored(_)))
    }
}

impl FieldRow {
    /// Description of the field, and the values of a refused field that are accepted.
    fn schema(&self) -> Value {
        match self.treatment {
            Treatment::Honored(words) => json!({ "description": words }),
            Treatment::NoEffect(reason) => json!({"description": format!("no effect: {reason}")}),
            Treatment::Rejected { accepted, instead } => {
                let values = accepted
                    .iter()
                    .filter_map(|text| serde_json::from_str(text).ok());
                let values: Vec<Value> = values.chain([Value::Null]).collect();
                json!({"enum": values, "description": format!("not supported: {instead}")})
            }
        }
    }
}

/// Whether a value equals one of `values`.
fn is_one_of(raw: RawJson<'_>, values: &[&str]) -> bool {
    let longest = values.iter().map(|value| value.len()).max().unwrap_or(0);
    // A value may differ only in white space, so a much longer value cannot be equal.
    if values.is_empty() || raw.get().len() > 4 * longest {
        return false;
    }
    let value: Option<Value> = fields::parse_value(raw);
    let is_it = |other: &&str| serde_json::from_str::<Value>(other).ok() == value;
    value.is_some() && values.iter().any(is_it)
}

/// The ignored fields of a request, after parsing.
pub fn ignored_fields(fields: &Fields<'_>, table: &FieldTable) -> IgnoredFields {
    let mut names = String::new();
    let unread = fields
        .unread_fields()
        .filter(|name| !table.has_no_effect(name));
    for (i, name) in unread.chain(fields.left_out_names()).enumerate() {
        names.push_str(if i == 0 { "" } else { ", " });
        if i == IGNORED_FIELDS_NAMED_MAX {
            names.push_str("...");
            break;
        }
        names.push_str(if is_plain(name) { name } else { "..." });
    }
    IgnoredFields::new(&names)
}

/// Puts the names into the header of a response.
pub fn write_ignored(ignored: &IgnoredFields, headers: &mut HeaderMap) {
    let value = ignored.names().map(HeaderValue::from_str);
    if let Some(Ok(names)) = value {
        headers.insert(IGNORED_FIELDS, names);
    }
}

/// Logs how many fields were ignored. Their names come from the client, so no log has them.
pub fn log_ignored(ignored: &IgnoredFields) {
    if let Some(names) = ignored.names() {
        let fields = names.split(", ").count();
        tracing::debug!(fields, "request fields without effect were ignored");
    }
}

/// Whether a header may hold the name as it is.
fn is_plain(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=IGNORED_FIELD_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;
