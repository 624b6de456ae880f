//! Parsers of content blocks, and the errors for unsupported blocks.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::request::PARTS_MAX;

/// Blocks of the protocol that this server does not support.
const UNSUPPORTED_BLOCKS: [&str; 4] = ["image", "document", "search_result", "container_upload"];

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
        (Some("text"), Some(block)) => required_string(fields, path, block, "text"),
        (kind, _) => {
            reject_block(fields, path, "", kind);
            None
        }
    }
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
    text.map(std::borrow::Cow::into_owned)
}

/// Records the error for a block of this type at this place.
pub(crate) fn reject_block(fields: &mut Fields<'_>, path: &str, role: &str, kind: Option<&str>) {
    if kind.is_some_and(|kind| UNSUPPORTED_BLOCKS.contains(&kind)) {
        let error_message =
            "only text: images, documents and files are not supported yet by this server";
        return fields.reject(path, error_message);
    }
    let error_message = match role {
        "user" => "must be text or tool_result",
        "assistant" => "must be text, tool_use, thinking or redacted_thinking",
        _ => "must be text",
    };
    fields.reject(format!("{path}.type"), error_message);
}
