//! Parsers of content blocks, and the errors for unsupported blocks.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::request::PARTS_MAX;
use std::borrow::Cow;

/// Blocks with a text for the model; a document may also be a file.
const TEXT_BLOCKS: [&str; 4] = ["text", "document", "search_result", "tool_reference"];
/// Blocks of the protocol that this server does not support.
const UNSUPPORTED_BLOCKS: [&str; 3] = ["image", "document", "container_upload"];

/// Whether a block is the call or the result of a tool that ran at the API that gave the answer.
pub(crate) fn is_of_server_tool(kind: &str) -> bool {
    let is_call = matches!(kind, "server_tool_use" | "mcp_tool_use");
    // `web_search_tool_result` and the like.
    is_call || kind.ends_with("_tool_result")
}

/// Parses a string or a list of text blocks, whose texts are joined by line ends.
pub(crate) fn joined_text(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<String> {
    if let Some(text) = fields::as_text(raw) {
        return Some(text.into_owned());
    }
    if fields::json_type(raw) == JsonType::String {
        fields.reject(path, "has an invalid Unicode escape");
        return None;
    }
    let Some(blocks) = fields::as_list(raw, PARTS_MAX) else {
        let error_message =
            format!("must be a string or a list of at most {PARTS_MAX} text blocks");
        fields.reject(path, error_message);
        return None;
    };
    let texts: Vec<Option<String>> = blocks
        .into_iter()
        .enumerate()
        .map(|(i, block)| text_block(fields, &format!("{path}[{i}]"), block))
        .collect();
    let texts: Option<Vec<String>> = texts.into_iter().collect();
    texts.map(|texts| texts.join("\n"))
}

/// Parses a text block.
fn text_block(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<String> {
    let block = fields::as_object(raw);
    let kind = block.as_ref().and_then(|block| block.get("type"));
    let kind = kind.and_then(fields::as_text);
    match (kind.as_deref(), &block) {
        (Some(kind), Some(block)) if has_text(kind) => block_text(fields, path, block, kind),
        (kind, _) => {
            reject_block(fields, path, "", kind);
            None
        }
    }
}

/// Whether a block of this type may have a text for the model.
pub(crate) fn has_text(kind: &str) -> bool {
    TEXT_BLOCKS.contains(&kind)
}

/// Parses the text of a block of one of the [`TEXT_BLOCKS`].
pub(crate) fn block_text(
    fields: &mut Fields<'_>,
    path: &str,
    block: &JsonObject<'_>,
    kind: &str,
) -> Option<String> {
    match kind {
        "document" => document_text(fields, path, block),
        "search_result" => {
            let content = block.get("content");
            let text = content.map(|raw| joined_text(fields, &format!("{path}.content"), raw));
            let text = text.unwrap_or_else(|| Some(String::new()))?;
            let named = ["title", "source"].map(|name| block.get(name).and_then(fields::as_text));
            Some(lines(named.into_iter().flatten(), text))
        }
        "tool_reference" => required_string(fields, path, block, "tool_name"),
        _ => required_string(fields, path, block, "text"),
    }
}

/// The title, the context and the text of a document whose source is a text or a list of text blocks.
fn document_text(fields: &mut Fields<'_>, path: &str, block: &JsonObject<'_>) -> Option<String> {
    let source = block.get("source").and_then(fields::as_object);
    let kind = source.as_ref().and_then(|source| source.get("type"));
    let text = match (&source, kind.and_then(fields::as_text).as_deref()) {
        (Some(source), Some("text")) => {
            required_string(fields, &format!("{path}.source"), source, "data")?
        }
        (Some(source), Some("content")) => {
            let path = format!("{path}.source.content");
            let Some(raw) = source.get("content") else {
                fields.reject(path, "is required");
                return None;
            };
            joined_text(fields, &path, raw)?
        }
        _ => {
            reject_block(fields, path, "", Some("document"));
            return None;
        }
    };
    let named = ["title", "context"].map(|name| block.get(name).and_then(fields::as_text));
    Some(lines(named.into_iter().flatten(), text))
}

/// Lines that are not empty, and a text.
fn lines<'a>(before: impl Iterator<Item = Cow<'a, str>>, text: String) -> String {
    let before = before.filter(|line| !line.is_empty()).map(Cow::into_owned);
    before.chain([text]).collect::<Vec<_>>().join("\n")
}

/// Parses a required string member of a block.
pub(crate) fn required_string(
    fields: &mut Fields<'_>,
    path: &str,
    block: &JsonObject<'_>,
    name: &str,
) -> Option<String> {
    let text = block.get(name).and_then(fields::as_text);
    if text.is_none() {
        fields.reject(format!("{path}.{name}"), "must be a string");
    }
    text.map(Cow::into_owned)
}

/// Records the error for a block of this type at this place.
pub(crate) fn reject_block(fields: &mut Fields<'_>, path: &str, role: &str, kind: Option<&str>) {
    if kind.is_some_and(|kind| UNSUPPORTED_BLOCKS.contains(&kind)) {
        let error_message = "only text: images, files and documents without a text are not supported yet by this server";
        return fields.reject(path, error_message);
    }
    let error_message = match role {
        "user" => "must be text, document, search_result or tool_result",
        "assistant" => "must be text, tool_use, thinking or redacted_thinking",
        _ => "must be text, document, search_result or tool_reference",
    };
    fields.reject(format!("{path}.type"), error_message);
}
