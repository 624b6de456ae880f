//! The routes of the server and the layers around them.

use crate::app::App;
use crate::authentication::{self, Authentication};
use crate::embeddings;
use crate::error_response::{self, Rejected};
use crate::health;
use crate::metrics;
use crate::openapi;
use crate::paths;
use crate::realtime::handshake;
use crate::routes::ai_sdk;
use crate::routes::anthropic;
use crate::routes::generation;
use crate::routes::jobs;
use crate::routes::models;
use crate::routes::ollama;
use crate::routes::ollama_manage;
use crate::routes::ollama_models;
use crate::routes::ollama_unsupported;
use crate::routes::responses;
use crate::routes::stream_feed;
use crate::routes::streams;
use crate::routes::workflows;
use crate::vocabulary;
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, any, delete, get, post};
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;

/// One path of the server.
pub(crate) struct Route {
    /// The path as axum writes it: `{name}` is any segment, `{*name}` any rest.
    pub(crate) path: &'static str,
    /// The methods in lower case; `any` for all of them.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "the test of the OpenAPI description reads the methods"
        )
    )]
    pub(crate) methods: &'static [&'static str],
    handlers: fn() -> MethodRouter<App>,
}

/// `PATH: METHOD(HANDLER) METHOD(HANDLER)...;` for each path.
macro_rules! routes {
    ($($path:literal: $method:ident($handler:expr) $($more:ident($other:expr))*;)*) => {
        &[$(Route {
            path: $path,
            methods: &[stringify!($method) $(, stringify!($more))*],
            handlers: || $method($handler)$(.$more($other))*,
        }),*]
    };
}

/// All routes.
pub(crate) const ROUTES: &[Route] = routes! {
    "/metrics": get(metrics::show);
    "/v1/chat/completions": post(generation::chat);
    "/v1/completions": post(generation::completions);
    "/v1/ai-sdk/chat": post(ai_sdk::chat);
    "/v1/ai-sdk/chat/{id}/stream": get(ai_sdk::reconnect);
    "/v1/models": get(models::list_models);
    "/v1/models/{*id}": get(models::one_model);
    "/v1/streams": get(streams::list);
    "/v1/streams/feed": get(stream_feed::show);
    "/v1/streams/{id}": get(streams::one) delete(streams::delete);
    "/v1/streams/{id}/events": get(streams::watch);
    "/v1/streams/{id}/ack": post(streams::acknowledge);
    "/v1/streams/{id}/control": post(streams::control);
    "/v1/streams/{id}/pause": post(streams::pause);
    "/v1/streams/{id}/resume": post(streams::resume);
    "/v1/inference": post(jobs::inference);
    "/v1/jobs": post(jobs::submit);
    "/v1/jobs/{id}": get(jobs::show) delete(jobs::delete);
    "/v1/jobs/{id}/stream": get(jobs::watch);
    "/v1/jobs/{id}/cancel": post(jobs::cancel);
    "/v1/responses": post(responses::create);
    "/v1/responses/input_tokens": post(responses::count_input_tokens);
    "/v1/responses/{id}": get(responses::show) delete(responses::delete);
    "/v1/responses/{id}/cancel": post(responses::cancel);
    "/v1/responses/{id}/input_items": get(responses::input_items);
    "/v1/embeddings": post(embeddings::openai::embeddings);
    "/api/embed": post(embeddings::ollama::embed);
    "/api/embeddings": post(embeddings::ollama::embeddings);
    "/tokenize": post(vocabulary::tokenize);
    "/detokenize": post(vocabulary::detokenize);
    "/apply-template": post(vocabulary::apply_template);
    "/openapi.json": get(openapi::description);
    "/docs": get(openapi::page);
    "/v1/messages": post(anthropic::messages);
    "/v1/messages/count_tokens": post(anthropic::count_tokens);
    "/v1/realtime/streams": get(handshake::enter);
    "/": get(ollama::alive);
    "/api/generate": post(ollama::generate);
    "/api/chat": post(ollama::chat);
    "/api/version": get(ollama_models::version);
    "/api/tags": get(ollama_models::tags);
    "/api/ps": get(ollama_models::ps);
    "/api/show": post(ollama_models::show);
    "/api/pull": post(ollama_manage::pull);
    "/api/create": post(ollama_manage::create);
    "/api/copy": post(ollama_manage::copy);
    "/api/delete": delete(ollama_manage::forget);
    "/api/push": post(ollama_unsupported::push);
    "/api/blobs/{digest}": any(ollama_unsupported::blobs);
    "/v1/workflows": get(workflows::list);
    "/v1/workflows/{name}": get(workflows::one);
    "/v1/workflows/{name}/runs": post(workflows::run);
    "/v1/runs/{id}": get(workflows::show);
    "/v1/runs/{id}/channels/{channel}": post(workflows::write);
    "/health": get(health::health);
    "/health/liveness": get(health::liveness);
    "/health/readiness": get(health::readiness);
    "/v1/ready": get(health::ready);
    "/version": get(health::version);
    "/v1/loading/progress": get(health::progress);
    "/v1/heartbeats/stream": get(health::heartbeat_stream);
};

/// All routes, behind the authentication layer.
pub(crate) fn build_router(app: App, authentication: Authentication) -> Router {
    let metrics = Arc::clone(&app.metrics);
    let add = |router: Router<App>, route: &Route| router.route(route.path, (route.handlers)());
    ROUTES
        .iter()
        .fold(Router::new(), add)
        .fallback(not_found)
        .method_not_allowed_fallback(async || not_allowed())
        .layer(from_fn(error_response::write_errors))
        .layer(from_fn_with_state(
            Arc::new(authentication),
            authentication::authenticate,
        ))
        .layer(from_fn_with_state(metrics, metrics::count))
        .with_state(app)
}

async fn not_found(method: Method, uri: Uri) -> Rejected {
    if method == Method::OPTIONS {
        return not_allowed();
    }
    let message = paths::not_found_message(uri.path());
    ApiError::caller(ErrorKind::NotFound, "not_found", message).into()
}

fn not_allowed() -> Rejected {
    let (kind, code) = (ErrorKind::MethodNotAllowed, "method_not_allowed");
    let message = "this path does not answer to this method";
    ApiError::caller(kind, code, message).into()
}
