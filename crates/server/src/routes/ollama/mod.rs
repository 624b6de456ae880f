//! Handlers of Ollama's API.
//!
//! Errors of Ollama's API that are not errors of a generation: operations that this server does not support, and failed
//! operations of the model store.

pub(crate) mod generation;
pub(crate) mod models;
pub(crate) mod pull;
pub(crate) mod store;

use gateway::models::LibraryError;
use generate::error::{ApiError, Blame, ErrorKind};

/// The alternative to changing models over the API.
pub(crate) const MODELS: &str =
    "models are configured by the operator (`millrace serve MODEL.gguf`)";

/// The error of an unsupported operation.
pub(crate) fn not_supported(what: &str, instead: &str) -> ApiError {
    let message = format!("{what}: not supported yet by this server; {instead}");
    ApiError::caller(ErrorKind::NotSupported, "not_supported", message)
}

/// The error of a failed operation of the model store.
pub(crate) fn library_error(error: &LibraryError) -> ApiError {
    let message = error.to_string();
    match error {
        LibraryError::Unknown(_) => {
            ApiError::caller(ErrorKind::NotFound, "model_not_found", message)
        }
        LibraryError::Invalid(_) => ApiError::bad_request("invalid_value", message),
        LibraryError::Failed(_) | LibraryError::Abandoned => ApiError::new(
            ErrorKind::Upstream,
            Blame::Ours,
            "model_unavailable",
            message,
        ),
    }
}
