//! The server over a model without weights, to run other people's clients against, and to measure
//! the server alone: `cargo run -p server --example fake -- 127.0.0.1:8080`.

use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig};
use model::Dims;
use server::{
    ModelFacts, ModelHandle, ModelIdentity, ServedModel, Server, ServerConfig, StepMetrics,
    io_runtime,
};
use std::error::Error;
use std::sync::Arc;
use stream::PoolLimits;
use testing::small_vocabulary as vocab;
use text::ChatTemplate;

/// Segments of 256 tokens: 1024 streams of a whole context.
const SEGMENTS_MAX: usize = 1 << 14;

fn main() -> Result<(), Box<dyn Error>> {
    let bind = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned())
        .parse()?;
    let served = Arc::new(served()?);
    io_runtime(2)?.block_on(async {
        Server::bind(
            ServerConfig {
                bind,
                ..ServerConfig::default()
            },
            served,
        )?
        .serve(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await;
        Ok(())
    })
}

#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
fn served() -> Result<ServedModel, Box<dyn Error>> {
    let dims = Dims {
        vocab: 258 + vocab::WORDS.len(),
        context_max: 4096,
        page_tokens: 16,
        pages: 1 << 16,
        rows_max: 2048,
        logit_rows_max: 1024,
    };
    let fake = FakeConfig {
        dims,
        eos: vocab::EOS,
        tokens: 97..123,
        ..FakeConfig::default()
    };
    let model = Box::new(FakeModel::new(fake));
    let mut engine = Engine::new(model, EngineConfig::default(), std::time::Instant::now())?;
    let steps = Arc::new(StepMetrics::default());
    engine.observe(steps.observer());
    let (engine, _joiner) = engine::spawn(engine)?;
    let limits = PoolLimits {
        segments_max: SEGMENTS_MAX,
    };
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    Ok(ServedModel {
        id: "fake".to_owned(),
        created_unix_s: 0,
        facts: ModelFacts::default(),
        identity: ModelIdentity::default(),
        steps,
        vision_proxy: None,
        engine_absence: None,
        engine_arithmetic: None,
        engine_sight: None,
        device: None,
        handle: ModelHandle::new(
            engine,
            vocab::tokenizer(),
            ChatTemplate::new(template, "", "").map_err(|e| e.to_string())?,
            &[vocab::EOS],
            limits,
        ),
    })
}
