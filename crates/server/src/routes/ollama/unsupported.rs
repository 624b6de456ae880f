//! Routes of Ollama's API for operations that this server does not support.

use crate::response::error_response::Rejected;
use crate::routes::ollama::errors::not_supported;

const BLOBS: &str = "pull the model, or put its file into a directory of models";
const PUSH: &str = "this server does not upload models";

/// `POST /api/push`.
pub(crate) async fn push_model() -> Rejected {
    not_supported("pushing models", PUSH).into()
}

/// `/api/blobs/{digest}`, with any method.
pub(crate) async fn store_blob() -> Rejected {
    not_supported("storing blobs", BLOBS).into()
}
