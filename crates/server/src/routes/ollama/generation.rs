//! Ollama's API: `/api/generate`, `/api/chat`, and the routes of its models, at `/api` and `/`.
//!
//! Ollama requests without a prompt, which load or unload a model, and `keep_alive` of all.
//!
//! All keys use the same models, so a key without the scope `admin` cannot have one unloaded earlier.

use crate::request::extract::GenerationRequest;
use crate::response::Rejected;
use crate::response::stream_response::StreamResponder;
use crate::routes::ollama;
use crate::routes::responses::json_response;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use bytes::BytesMut;
use gateway::keys::{Scope, Scopes};
use gateway::models::{ModelEntry, ModelRegistry, ModelState, ResolvedModel};
use generate::error::{ApiError, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use wire::clock::{self, Nanos};
use wire::fields::Fields;
use wire::framing::Framing;
use wire::item_page::Query;
use wire::json;
use wire::ollama::request::is_given;
use wire::protocol::Protocol;
use wire::shared::keep_alive::{ModelKeepAlive, keep_alive};

/// The text by which clients recognize a running server.
pub(crate) const ALIVE: &str = "Ollama is running (its API, spoken by Millrace)";

/// Answers a request for a generation, or one that only loads or unloads the model.
pub(crate) async fn respond(
    State(responder): State<StreamResponder>,
    uri: Uri,
    headers: HeaderMap,
    request: GenerationRequest,
    protocol: Protocol,
) -> Result<Response, Rejected> {
    let requested = Framing::from_request(&headers, &Query::of(&uri)?)?;
    let models = &responder.gateway().models;
    let framing = protocol.framing().or_requested(requested);
    let scopes = request.caller.scopes;
    let request = request.in_protocol(protocol, framing)?;
    let residence = ResidenceRequest::of(protocol, request.body.fields())?;
    if residence.is_without_prompt {
        return Ok(residence.load_or_unload(models, protocol, scopes).await?);
    }
    residence.apply_keep_alive(models, scopes).await;
    Ok(responder.answer(request).await?)
}

/// The model and `keep_alive` of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResidenceRequest {
    model: Option<String>,
    keep: Option<ModelKeepAlive>,
    /// The request has no prompt.
    is_without_prompt: bool,
}

impl ResidenceRequest {
    /// Reads the fields of a request. Invalid fields of a request with a prompt are left to the parser of the generation.
    ///
    /// # Errors
    /// Invalid fields of a request without a prompt.
    pub(crate) fn of(protocol: Protocol, mut fields: Fields<'_>) -> Result<Self, ApiError> {
        let prompt_field = match protocol {
            Protocol::OllamaChat => "messages",
            _ => "prompt",
        };
        let is_without_prompt = ![prompt_field, "images", "suffix"]
            .iter()
            .any(|name| is_given(&fields, name));
        let model = fields.string("model").map(std::borrow::Cow::into_owned);
        let keep = keep_alive(&mut fields);
        let valid = fields.finish();
        if is_without_prompt {
            valid?;
        }
        Ok(Self {
            model,
            keep,
            is_without_prompt,
        })
    }

    /// Applies `keep_alive` of a request with a prompt, from a caller with these scopes. An unknown model is rejected by the
    /// parser of the generation.
    pub(crate) async fn apply_keep_alive(self, models: &ModelRegistry, scopes: Scopes) {
        if let (Some(keep), true) = (self.keep, models.library().is_some())
            && let Ok(named) = models.look_up(self.model.as_deref()).await
        {
            set_keep(&named.entry, keep, scopes);
        }
    }

    /// Loads or unloads the model for a caller with these scopes, and answers when that is done.
    ///
    /// # Errors
    /// An unknown model; a failed load; an unload of the only model, or without the scope `admin`.
    async fn load_or_unload(
        self,
        models: &Arc<ModelRegistry>,
        protocol: Protocol,
        scopes: Scopes,
    ) -> Result<Response, ApiError> {
        let named = models.look_up(self.model.as_deref()).await?;
        let done = match self.keep {
            Some(ModelKeepAlive::For(Duration::ZERO)) => {
                if models.library().is_none() {
                    return Err(ollama::not_supported(
                        "unloading a model by keep_alive",
                        "a model stays loaded as long as the server runs",
                    ));
                }
                if !scopes.has(Scope::Admin) {
                    return Err(ApiError::caller(
                        ErrorKind::Forbidden,
                        "insufficient_scope",
                        "keep_alive: 0 unloads the model for all API keys, and this one lacks the required scope: admin",
                    ));
                }
                // A model in use is unloaded when its last generation has ended.
                named.entry.set_keep(ModelKeepAlive::For(Duration::ZERO));
                models.unload(&named.entry).await;
                models.look_again();
                "unload"
            }
            keep => {
                if let Some(keep) = keep {
                    set_keep(&named.entry, keep, scopes);
                }
                wait_until_loaded(models, &named, self.model.as_deref()).await?;
                models.look_again();
                "load"
            }
        };
        let response = residence_response(&named.name, protocol, done);
        Ok(json_response(response.freeze()))
    }
}

fn set_keep(entry: &ModelEntry, keep: ModelKeepAlive, scopes: Scopes) {
    if scopes.has(Scope::Admin) {
        entry.set_keep(keep);
    } else {
        entry.lengthen_keep(keep);
    }
}

/// Waits until the model is ready.
async fn wait_until_loaded(
    models: &Arc<ModelRegistry>,
    named: &ResolvedModel,
    name: Option<&str>,
) -> Result<(), ApiError> {
    if models.library().is_some() {
        return models.want_named(name).await?.lease().await.map(drop);
    }
    let mut states = named.entry.watch_state();
    // An error means that the state no longer changes.
    let _ = states
        .wait_for(|state| !matches!(state, ModelState::Loading { .. }))
        .await;
    named.try_lease().map(drop)
}

/// The response of a request that only loads or unloads a model.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ResidenceResponse<'a> {
    model: &'a str,
    created_at: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<EmptyMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'static str>,
    done: bool,
    done_reason: &'a str,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaEmptyMessage")]
struct EmptyMessage {
    role: &'static str,
    content: &'static str,
}

fn residence_response(model: &str, protocol: Protocol, done_reason: &str) -> BytesMut {
    let is_chat = protocol == Protocol::OllamaChat;
    json::to_vec(&ResidenceResponse {
        model,
        created_at: Nanos(clock::wall(clock::now())),
        message: is_chat.then_some(EmptyMessage {
            role: "assistant",
            content: "",
        }),
        response: (!is_chat).then_some(""),
        done: true,
        done_reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_without_a_prompt_is_about_the_model() {
        let unload = Some(ModelKeepAlive::For(Duration::ZERO));
        let (chat, generate) = (Protocol::OllamaChat, Protocol::OllamaGenerate);
        let rows = [
            (generate, r#"{"model":"m"}"#, Ok((None, true))),
            (generate, r#"{"prompt":""}"#, Ok((None, true))),
            (
                generate,
                r#"{"prompt":"","keep_alive":0}"#,
                Ok((unload, true)),
            ),
            (generate, r#"{"keep_alive":"0s"}"#, Ok((unload, true))),
            (
                generate,
                r#"{"keep_alive":-1}"#,
                Ok((Some(ModelKeepAlive::Forever), true)),
            ),
            (
                generate,
                r#"{"keep_alive":1e300}"#,
                Ok((Some(ModelKeepAlive::Forever), true)),
            ),
            (
                generate,
                r#"{"prompt":"hi","keep_alive":0}"#,
                Ok((unload, false)),
            ),
            (chat, r#"{"messages":[]}"#, Ok((None, true))),
            (chat, r#"{"messages":[{}]}"#, Ok((None, false))),
            (chat, r#"{"messages":7}"#, Ok((None, false))),
            (
                chat,
                r#"{"messages":7,"keep_alive":"soon"}"#,
                Ok((None, false)),
            ),
            (
                chat,
                r#"{"keep_alive":"1m30s"}"#,
                Ok((Some(ModelKeepAlive::For(Duration::from_secs(90))), true)),
            ),
            (chat, r#"{"keep_alive":"soon"}"#, Err(())),
            (chat, r#"{"model":7}"#, Err(())),
            (chat, "x", Err(())),
        ];
        for (protocol, body, want) in rows {
            let fields = Fields::parse(body.as_bytes());
            let parsed = fields.and_then(|fields| ResidenceRequest::of(protocol, fields));
            let result = parsed.map(|parsed| (parsed.keep, parsed.is_without_prompt));
            assert_eq!(result.map_err(|_| ()), want, "{body}");
        }
    }
}
