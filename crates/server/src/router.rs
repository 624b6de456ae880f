//! The routes of the server and the layers around them.

use crate::access::authentication::{self, Authentication};
use crate::app::App;
use crate::embeddings::ollama::embed_texts;
use crate::realtime::handshake;
use crate::request::{foreign_id, foreign_stream, paths};
use crate::response::{self, Rejected};
use crate::routes::generation::generate;
use crate::routes::{
    cluster, completion_list, durable_streams, generation, jobs, llama_cpp, models, ollama, page,
    responses, stream_feed, stream_list, streams, vocabulary, webhooks, workflows,
};
use crate::{embeddings, health, metrics, openapi};
use ::cluster::messages::Role;
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, any, delete, get, post};
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;
use wire::embeddings_request::EmbedRoute;
use wire::protocol::Protocol;

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
    "/metrics": get(metrics::show_metrics);
    "/v1/chat/completions": post(|responder, request| generate(responder, request, Protocol::Chat)) get(completion_list::list_completions);
    "/v1/chat/completions/{id}": get(completion_list::show_completion) post(completion_list::update_completion)
        delete(completion_list::delete_completion);
    "/v1/chat/completions/{id}/messages": get(completion_list::list_messages);
    "/v1/completions": post(|responder, request| generate(responder, request, Protocol::Completion));
    "/v1/ai-sdk/chat": post(generation::answer_chat);
    "/v1/ai-sdk/chat/{id}/stream": get(generation::reconnect_chat);
    "/v1/models": get(models::list_models);
    "/v1/models/{*id}": get(models::one_model);
    "/v1/streams": get(stream_list::list_streams);
    "/v1/streams/feed": get(stream_feed::show_feed);
    "/v1/streams/{id}": get(streams::show_stream) delete(streams::delete_stream);
    "/v1/streams/{id}/events": get(streams::watch_stream);
    "/v1/streams/{id}/ack": post(streams::acknowledge_stream);
    "/v1/streams/{id}/control": post(streams::update_stream);
    "/v1/streams/{id}/pause": post(streams::pause_stream);
    "/v1/streams/{id}/resume": post(streams::resume_stream);
    "/v1/stream/{id}": get(durable_streams::read_stream) head(durable_streams::show_tail);
    "/v1/inference": post(jobs::run_inference);
    "/v1/jobs": post(jobs::submit_job);
    "/v1/jobs/{id}": get(jobs::show_job) delete(jobs::delete_job);
    "/v1/jobs/{id}/stream": get(jobs::watch_job);
    "/v1/jobs/{id}/cancel": post(jobs::cancel_job);
    "/v1/responses": post(responses::create_response);
    "/v1/responses/input_tokens": post(responses::count_input_tokens);
    "/v1/responses/{id}": get(responses::show_response) delete(responses::delete_response);
    "/v1/responses/{id}/cancel": post(responses::cancel_response);
    "/v1/responses/{id}/input_items": get(responses::input_items);
    "/v1/webhooks/deliveries": get(webhooks::list_deliveries);
    "/v1/webhooks/deliveries/{id}": get(webhooks::show_delivery) delete(webhooks::delete_delivery);
    "/v1/webhooks/deliveries/{id}/redeliver": post(webhooks::redeliver_event);
    "/v1/embeddings": post(embeddings::openai::create_embeddings);
    "/v1/rerank": post(embeddings::rerank::rank_documents);
    "/api/embed": post(|gateway, caller, scheduling, body| embed_texts(gateway, caller, scheduling, body, EmbedRoute::Embed));
    "/api/embeddings": post(|gateway, caller, scheduling, body| embed_texts(gateway, caller, scheduling, body, EmbedRoute::Embeddings));
    "/lora-adapters": get(models::list_adapters) post(models::set_scales);
    "/completion": post(|responder, request| generate(responder, request, Protocol::LlamaCompletion));
    "/infill": post(|responder, request| generate(responder, request, Protocol::Infill));
    "/props": get(llama_cpp::show_props);
    "/slots": get(llama_cpp::list_slots);
    "/tokenize": post(|handles, caller, body| vocabulary::respond(handles, caller, body, vocabulary::parse_tokenize));
    "/detokenize": post(|handles, caller, body| vocabulary::respond(handles, caller, body, vocabulary::parse_detokenize));
    "/apply-template": post(|handles, caller, body| vocabulary::respond(handles, caller, body, vocabulary::parse_apply_template));
    "/openapi.json": get(openapi::description);
    "/docs": get(openapi::page);
    "/v1/messages": post(|responder, request| generate(responder, request, Protocol::Messages));
    "/v1/messages/count_tokens": post(generation::count_tokens);
    "/v1/realtime/streams": get(handshake::open_websocket);
    "/": get(page::show_document);
    "/page/{version}/{file}": get(page::show_file);
    "/api/generate": post(|responder, uri, headers, request| ollama::generation::respond(responder, uri, headers, request, Protocol::OllamaGenerate));
    "/api/chat": post(|responder, uri, headers, request| ollama::generation::respond(responder, uri, headers, request, Protocol::OllamaChat));
    "/api/version": get(ollama::models::show_version);
    "/api/tags": get(ollama::models::list_models);
    "/api/ps": get(ollama::models::list_running);
    "/api/show": post(ollama::models::show_model);
    "/api/pull": post(ollama::store::pull_model);
    "/api/create": post(ollama::store::create_model);
    "/api/copy": post(ollama::store::copy_model);
    "/api/delete": delete(ollama::store::delete_model);
    "/api/push": post(ollama::store::push_model);
    "/api/blobs/{digest}": any(ollama::store::store_blob);
    "/v1/workflows": get(workflows::list_workflows);
    "/v1/workflows/{name}": get(workflows::show_workflow);
    "/v1/workflows/{name}/runs": post(workflows::run_workflow);
    "/v1/runs/{id}": get(workflows::show_run);
    "/v1/runs/{id}/channels/{channel}": post(workflows::write_channel);
    "/health": get(health::show_health);
    "/health/liveness": get(health::show_liveness);
    "/health/readiness": get(health::show_readiness);
    "/v1/ready": get(health::show_ready);
    "/version": get(health::show_version);
    "/v1/cluster": get(cluster::show_cluster);
    "/v1/loading/progress": get(health::show_progress);
    "/v1/heartbeats/stream": get(health::heartbeat_stream);
};

/// All routes, behind the authentication layer.
pub(crate) fn build_router(app: App, authentication: Authentication) -> Router {
    let (metrics, barrier) = (
        Arc::clone(&app.metrics),
        Arc::clone(&app.gateway.registration),
    );
    let is_in_cluster = app.cluster.get().is_some() || app.gateway.owners.is_set();
    let authentication = if is_in_cluster {
        authentication.in_cluster(app.peer_calls.peers.clone(), Arc::clone(&app.config))
    } else {
        authentication
    };
    let add = |router: Router<App>, route: &Route| router.route(route.path, (route.handlers)());
    let is_engine = app
        .cluster
        .get()
        .is_some_and(|node| node.role() == Role::Engine);
    let routes = ROUTES
        .iter()
        .filter(|route| !is_engine || is_for_operators(route.path));
    let router = routes.fold(Router::new(), add);
    let router = if is_engine {
        router.fallback(not_at_engine)
    } else {
        router.fallback(not_found)
    };
    router
        .method_not_allowed_fallback(async || not_allowed())
        .layer(from_fn_with_state(app.clone(), foreign_stream::find_owner))
        .layer(from_fn_with_state(app.clone(), foreign_id::find_elsewhere))
        .layer(from_fn_with_state(
            barrier,
            foreign_stream::wait_for_registration,
        ))
        .layer(from_fn(response::write_errors))
        .layer(from_fn_with_state(
            Arc::new(authentication),
            authentication::authenticate,
        ))
        .layer(from_fn_with_state(metrics, metrics::count_request))
        .with_state(app)
}

/// Whether a path is answered by a process that serves no clients.
fn is_for_operators(path: &str) -> bool {
    const PATHS: [&str; 6] = [
        "/metrics",
        "/version",
        "/v1/cluster",
        "/v1/heartbeats/stream",
        "/v1/loading/progress",
        "/v1/ready",
    ];
    path.starts_with("/health") || PATHS.contains(&path)
}

async fn not_at_engine() -> Rejected {
    let message = "this process is an engine of a cluster (cluster.role): requests go to a gateway";
    ApiError::caller(ErrorKind::NotFound, "not_a_gateway", message).into()
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
