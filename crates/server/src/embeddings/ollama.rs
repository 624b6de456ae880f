//! Ollama's `POST /api/embed`, and `POST /api/embeddings` before it, whose one vector is as the model has it:
//! not normed.

use super::Answer;
use super::run::{Embedded, Wanted, expect_pooling, run};
use crate::app::App;
use crate::arrival;
use crate::door;
use crate::gateway::served::Held;
use crate::intake;
use crate::wire::clock;
use crate::wire::embeddings_input;
use crate::wire::embeddings_vector::{shaped, write_floats};
use crate::wire::field_table::{OLLAMA_EMBED, OLLAMA_EMBEDDINGS};
use crate::wire::fields::Fields;
use crate::wire::format::Format;
use crate::wire::json;
use crate::wire::ollama::{self, Residence};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use std::time::{Duration, Instant};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Embed,
    Embeddings,
}

/// The whole answer.
pub(super) async fn answer(app: &App, route: Route, request: Request) -> Result<Answer, ApiError> {
    let arrived = clock::now();
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(arrived)?;
    intake::expect_json(&head.headers)?;
    let (deadline, class) = (
        intake::deadline(&head.headers)?,
        intake::class(&head.headers)?,
    );
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let held = arrival::find_held(app, Format::OllamaGenerate, &bytes).await?;
    let mut fields = Fields::parse(&bytes)?;
    let Held { serving, name, .. } = arrival::expect_held(held, &mut fields, app)?;
    let (_, dim) = expect_pooling(&serving.model)?;
    let vocab = serving.model.handle.tokenizer.vocab_size();
    let field = match route {
        Route::Embed => "input",
        Route::Embeddings => "prompt",
    };
    let texts = embeddings_input::read(&mut fields, field, vocab);
    if route == Route::Embeddings && texts.len() > 1 {
        fields.wrong(field, "must be one text");
    }
    let truncate = fields.boolean("truncate").unwrap_or(true);
    let dimensions = fields.integer("dimensions", 1..=dim as i128);
    ollama::keep_alive(&mut fields);
    fields.string("model");
    let table = match route {
        Route::Embed => &OLLAMA_EMBED,
        Route::Embeddings => &OLLAMA_EMBEDDINGS,
    };
    let ignored = fields.finish_request(table)?;
    let residence = Residence::of(Format::OllamaGenerate, &bytes)?;
    residence.noted(app).await;
    let wanted = Wanted {
        field,
        texts,
        truncate,
        body_bytes: bytes.len(),
        class: class.unwrap_or_default(),
        deadline,
        serving,
    };
    let embedded = run(app, caller, wanted).await?;
    let dimensions = dimensions.and_then(|n| usize::try_from(n).ok());
    let body = match route {
        Route::Embed => whole(&name, &embedded, dimensions, arrived),
        Route::Embeddings => one(&embedded, dimensions),
    };
    Ok(Answer { body, ignored })
}

/// The answer of `/api/embeddings`.
fn one(embedded: &Embedded, dimensions: Option<usize>) -> Bytes {
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"embedding\":");
    let vector = embedded.vectors.first();
    let vector = vector.map(|vector| shaped(vector, dimensions, false));
    write_floats(&vector.unwrap_or_default(), &mut out);
    json::raw(&mut out, "}");
    out.freeze()
}

/// The answer of `/api/embed`.
fn whole(model: &str, embedded: &Embedded, dimensions: Option<usize>, arrived: Instant) -> Bytes {
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"model\":");
    json::string(&mut out, model);
    json::raw(&mut out, ",\"embeddings\":[");
    for (i, vector) in embedded.vectors.iter().enumerate() {
        json::raw(&mut out, if i == 0 { "" } else { "," });
        write_floats(&shaped(vector, dimensions, true), &mut out);
    }
    let loading = embedded.admitted.saturating_duration_since(arrived);
    for (name, count) in [
        ("],\"total_duration\":", nanoseconds(clock::now() - arrived)),
        (",\"load_duration\":", nanoseconds(loading)),
        (",\"prompt_eval_count\":", embedded.prompt_tokens),
    ] {
        json::raw(&mut out, name);
        json::integer(&mut out, count);
    }
    json::raw(&mut out, "}");
    out.freeze()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
