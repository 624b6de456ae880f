//! Requests that want no place in the engine: read and charged as any, and answered by whoever has the model's words.

use crate::app::App;
use crate::arrival;
use crate::door;
use crate::gateway::apart::apart;
use crate::gateway::keys::Caller;
use crate::gateway::served::ServedModel;
use crate::intake;
use crate::wire::clock;
use crate::wire::fields::Fields;
use crate::wire::format::Format;
use axum::extract::Request;
use generate::error::ApiError;
use std::sync::Arc;

/// Answers a request without a permit: what `read` makes of its fields is done apart, where its length asks for that.
///
/// # Errors
/// The caller may not ask so often; the body is none, or too long; there is no such model, or it is not ready; those
/// of `read` and of what it gives.
pub(crate) async fn answer<T, W>(
    app: &App,
    request: Request,
    format: Format,
    read: impl FnOnce(Fields<'_>, &Arc<ServedModel>, &Caller) -> Result<W, ApiError>,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    W: FnOnce() -> Result<T, ApiError> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    let config = app.config.now();
    let bytes = intake::read(&head.headers, body, &config).await?;
    let held = arrival::find_held(app, format, &bytes).await?;
    let work = {
        let mut fields = Fields::parse(&bytes)?;
        let held = arrival::expect_held(held, &mut fields, app)?;
        read(fields, &held.serving.model, caller)?
    };
    apart((bytes.len(), config.inline_prompt_bytes_max), work).await
}
