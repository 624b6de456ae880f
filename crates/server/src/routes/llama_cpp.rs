//! `/props` and `/slots`, compatible with llama.cpp's server. There is no fixed slot: each running choice takes one, and
//! a list of slots has the caller's choices first.

use crate::request::extract::Authenticated;
use crate::response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use gateway::models::{ModelRegistry, ReadyModel};
use gateway::streams::{StreamRecord, StreamRegistry, StreamState};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use stream::LIST_PAGE_MAX;
use wire::item_page::Query;
use wire::llama_cpp::result_encoder::GenerationSettings;
use wire::llama_cpp::seen_prompt::MEDIA_MARKER;

/// `Retry-After` where no slot is free.
const SLOT_RETRY: Duration = Duration::from_secs(1);

/// Properties of the model that the server was started with.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Props {
    default_generation_settings: DefaultSettings,
    /// Choices that may run at the same time now.
    total_slots: usize,
    model_alias: String,
    /// The model's name: paths of this machine are not shown.
    model_path: String,
    modalities: Modalities,
    /// Text that stands for an image in a prompt with `multimodal_data`; only of a model that sees images.
    #[serde(skip_serializing_if = "Option::is_none")]
    media_marker: Option<&'static str>,
    chat_template: String,
    bos_token: String,
    eos_token: String,
    build_info: &'static str,
}

/// Settings of a request that sets none.
#[derive(JsonSchema, Serialize)]
struct DefaultSettings {
    params: GenerationSettings<'static>,
    n_ctx: usize,
}

/// Inputs other than text.
#[derive(JsonSchema, Serialize)]
struct Modalities {
    vision: bool,
    audio: bool,
}

/// Properties of the model.
pub(crate) async fn show_props(
    State(models): State<Arc<ModelRegistry>>,
    Authenticated(_): Authenticated,
) -> Result<Json<Props>, Rejected> {
    let entry = models.first_entry();
    let serving = entry.expect_ready()?;
    let (model, handle) = (&serving.model, &serving.model.handle);
    let piece = |id: Option<u32>| id.and_then(|id| handle.tokenizer.piece(id));
    let text = |id: Option<u32>| piece(id).unwrap_or_default().to_owned();
    Ok(Json(Props {
        default_generation_settings: DefaultSettings {
            params: GenerationSettings::defaults(
                models
                    .gateway_limits()
                    .sampling_defaults(model.facts.sampling),
            ),
            n_ctx: handle.context_max,
        },
        total_slots: total_slots(&serving),
        model_alias: entry.id().to_string(),
        model_path: entry.id().to_string(),
        modalities: Modalities {
            vision: model.takes_images(),
            audio: false,
        },
        media_marker: model.takes_images().then_some(MEDIA_MARKER),
        chat_template: model.facts.template.clone().unwrap_or_default(),
        bos_token: text(handle.tokenizer.bos()),
        eos_token: text(handle.tokenizer.eos()),
        build_info: concat!("millrace-", env!("CARGO_PKG_VERSION")),
    }))
}

fn total_slots(serving: &ReadyModel) -> usize {
    let admission = serving.admission.snapshot();
    admission.limit.max(admission.running)
}

/// A slot. Only a slot with a choice of the caller has more than the first members.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Slot {
    id: usize,
    n_ctx: usize,
    speculative: bool,
    is_processing: bool,
    /// Id of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<GenerationSettings<'static>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next_token: Vec<NextToken>,
}

/// Progress of a slot's choice.
#[derive(JsonSchema, Serialize)]
struct NextToken {
    has_next_token: bool,
    /// Tokens that may follow; -1: as many as the context has room for.
    n_remain: i64,
    /// Tokens so far.
    n_decoded: u64,
}

/// Slots of the model that the server was started with.
pub(crate) async fn list_slots(
    State(models): State<Arc<ModelRegistry>>,
    State(streams): State<Arc<StreamRegistry>>,
    Authenticated(caller): Authenticated,
    uri: Uri,
) -> Result<Json<Vec<Slot>>, Rejected> {
    let query = Query::of(&uri)?;
    let serving = models.first_entry().expect_ready()?;
    let (admission, total) = (serving.admission.snapshot(), total_slots(&serving));
    let needs_free = query
        .get("fail_on_no_slot")
        .is_some_and(|value| value != "0");
    if needs_free && admission.running >= admission.limit {
        let limit = admission.limit;
        let message = format!("no slot is available: all {limit} are in use");
        return Err(ApiError::capacity("no_slot", message, SLOT_RETRY).into());
    }
    let mut slots = Vec::with_capacity(total);
    let mut after = None;
    loop {
        let page = streams.list_streams(&caller, after, LIST_PAGE_MAX);
        for entry in &page.entries {
            add_choices(&entry.payload, &serving, &mut slots);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    slots.truncate(total);
    for id in slots.len()..total {
        slots.push(empty_slot(id, &serving, id < admission.running));
    }
    Ok(Json(slots))
}

fn empty_slot(id: usize, serving: &ReadyModel, is_processing: bool) -> Slot {
    Slot {
        id,
        n_ctx: serving.model.handle.context_max,
        speculative: false,
        is_processing,
        id_task: None,
        params: None,
        next_token: Vec::new(),
    }
}

/// Appends the slots of a stream's choices that run on this model.
fn add_choices(record: &StreamRecord, serving: &ReadyModel, slots: &mut Vec<Slot>) {
    let is_running = !matches!(record.state(), StreamState::Queued | StreamState::Ended);
    let Some(started) = record.started().filter(|_| is_running) else {
        return;
    };
    if !Arc::ptr_eq(&started.tokenizer, &serving.model.handle.tokenizer) {
        return;
    }
    let meta = record.meta();
    let running = started
        .choices
        .iter()
        .filter(|choice| choice.tokens.end().is_none());
    for choice in running {
        let n_decoded = choice.answered();
        let limit = meta.sampling.max_tokens.map(i64::from);
        let decoded = i64::try_from(n_decoded).unwrap_or(i64::MAX);
        slots.push(Slot {
            id_task: Some(record.id().to_string()),
            params: Some(GenerationSettings::of_stream(meta)),
            next_token: vec![NextToken {
                has_next_token: true,
                n_remain: limit.map_or(-1, |limit| (limit - decoded).max(0)),
                n_decoded,
            }],
            ..empty_slot(slots.len(), serving, true)
        });
    }
}
