//! Errors of prompts that cannot be rendered or tokenized.

use crate::error::{ApiError, Blame, ErrorKind};
use crate::prompt_limit::PromptLimit;
use text::{TemplateError, TokenizerError};

/// The error of a template that drops images, or doubles them.
pub(super) fn images_lost(field: &str) -> ApiError {
    let message = format!("{field}: the model's chat template does not render the images");
    ApiError::field(field, "template_refused", message)
}

/// Code of the error of a chat template that is wrong, which neither the request nor this program can mend.
pub const TEMPLATE_BROKEN: &str = "template_broken";

/// The error of a chat template that failed on this field.
pub(super) fn template_failed(error: TemplateError, field: &str, room: PromptLimit) -> ApiError {
    match error {
        TemplateError::Refused(why) => ApiError::field(
            field,
            "template_refused",
            format!("{field}: the model's chat template rejected it: {why}"),
        ),
        TemplateError::TooLong(most) if most == room.bytes_max() => room.too_long(field, most + 1),
        TemplateError::TooLong(most) => ApiError::field(
            field,
            "too_long",
            format!(
                "{field}: the model's template makes a value of more than {most} bytes or items of it"
            ),
        ),
        TemplateError::Broken(why) | TemplateError::NoThread(why) => {
            tracing::error!(why, "chat template failed");
            ApiError::ours(
                TEMPLATE_BROKEN,
                "the model's chat template failed on this conversation",
            )
        }
    }
}

/// The error for a request for text to an encoder, and what the encoder is for.
pub fn no_text_error(name: &str, purpose: &str) -> ApiError {
    let message = format!("model: '{name}' is an encoder, which generates no text; {purpose}");
    ApiError::field("model", "not_supported", message)
}

/// The error where the name of the model is not known.
pub(super) fn no_text() -> ApiError {
    let message = "model: is an encoder, which generates no text".to_owned();
    ApiError::field("model", "not_supported", message)
}

/// The error of a prompt that the tokenizer rejects.
pub(super) fn tokenizer_failed(error: &TokenizerError) -> ApiError {
    tracing::error!(%error, "tokenizer failed");
    ApiError::new(
        ErrorKind::Internal,
        Blame::Ours,
        "tokenizer_failed",
        "the prompt could not be tokenized",
    )
}
