//! Mark behind a text that the answer continues.

use crate::error::ApiError;
use serde_json::Value;
use text::Message;

/// Private-use sentinel behind a text that the answer continues. If user text contains it, the last occurrence is the
/// inserted one.
const SENTINEL: &str = "\u{F8FF}end\u{F8FF}";

/// Puts the sentinel behind the text of the last message.
pub(super) fn append_sentinel(messages: &mut [Message]) {
    if let Some(Value::String(text)) = messages.last_mut().map(|m| &mut m.content) {
        text.push_str(SENTINEL);
    }
}

/// Cuts what the template put after the last message's text, so that the answer continues that text.
///
/// # Errors
/// The template does not render the last message.
pub(super) fn cut_at_sentinel(field: &str, text: &mut String) -> Result<(), ApiError> {
    let Some(at) = text.rfind(SENTINEL) else {
        let message = format!(
            "{field}: the model's chat template does not render the last message, so an answer cannot \
             continue it"
        );
        return Err(ApiError::field(field, "template_refused", message));
    };
    text.truncate(at);
    Ok(())
}
