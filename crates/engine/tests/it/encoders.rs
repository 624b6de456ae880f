//! Models whose tokens attend to all others: each prompt is one span of one step.
//!
//! Promise (Engine): a text of an encoder is one span of one step, however long, and whatever shares the step;
//! requests for text are a 400.
//! Also held by `millrace/tests/it/encoders.rs`.

use crate::support::{Asked, Bench, model};
use engine::fake::{FakeModel, HIDDEN_DIM};
use engine::{Embedding, Engine, EngineConfig, Pooling};
use model::{Batch, Capabilities, Dims, Forward, ForwardError, PageId, Want};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use stream::{End, Stop};

type Vector = Arc<OnceLock<Box<[f32]>>>;

/// Tokens of the longest text, and of a batch.
const CONTEXT: usize = 32;
const ROWS: usize = 48;

/// A fake model that rejects parts of texts.
struct WholeTexts(FakeModel);

impl Forward for WholeTexts {
    fn dims(&self) -> Dims {
        self.0.dims()
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        // The last token of each text below is 0, and no other.
        let is_whole = |span: model::SpanView<'_>| {
            span.position == 0 && span.tokens.last() == Some(&0) && span.want.logit_rows(1) == 0
        };
        if batch.spans().all(is_whole) {
            self.0.forward(batch)
        } else {
            Err(ForwardError::BadBatch("a part of a text"))
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_causal: false,
            hidden_dim: self.0.capabilities().hidden_dim,
            ..Capabilities::LOGITS
        }
    }

    fn hidden(&self) -> &[f32] {
        self.0.hidden()
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.0.copy_page(from, to);
    }
}

fn dims() -> Dims {
    Dims {
        context_max: CONTEXT,
        rows_max: ROWS,
        ..model().dims
    }
}

fn fake(dims: Dims) -> FakeModel {
    FakeModel::new(engine::fake::FakeConfig { dims, ..model() })
}

fn bench(dims: Dims, config: EngineConfig) -> Bench {
    Bench::with(Box::new(WholeTexts(fake(dims))), config)
}

fn text(seed: u32, len: usize) -> Vec<u32> {
    let letters = (1..len as u32).map(|i| 1 + (seed * 31 + i * 7) % 59);
    letters.chain([0]).collect()
}

fn ask(bench: &Bench, text: &[u32], pooling: Pooling) -> (Asked, Vector) {
    let vector = Vector::default();
    let mut request = bench.request(text, 1);
    request.embedding = Some(Embedding {
        pooling,
        vector: Arc::clone(&vector),
    });
    (bench.ask(request, 1), vector)
}

/// The expected vector, of a text alone in its batch.
fn plain(text: &[u32], pooling: Pooling) -> Vec<f32> {
    let mut model = fake(dims());
    let pages: Vec<u32> = (0..text.len() as u32).collect();
    let mut batch = Batch::default();
    batch.push(text, 0, &pages, Want::AllHidden);
    model.forward(&batch).expect("a batch");
    let rows: Vec<&[f32]> = model.hidden().chunks(HIDDEN_DIM).collect();
    let mean = |at: usize| {
        let sum: f64 = rows.iter().map(|row| f64::from(row[at])).sum();
        (sum / rows.len() as f64) as f32
    };
    match pooling {
        Pooling::First => rows[0].to_vec(),
        Pooling::Last => rows[rows.len() - 1].to_vec(),
        Pooling::Mean => (0..HIDDEN_DIM).map(mean).collect(),
    }
}

#[test]
fn texts_of_all_lengths_are_each_one_span() {
    let few_steps = EngineConfig {
        step_tokens: 4,
        ..EngineConfig::default()
    };
    let few_pages = Dims { pages: 9, ..dims() };
    for (dims, config) in [
        (dims(), EngineConfig::default()),
        (dims(), few_steps),
        (few_pages, EngineConfig::default()),
    ] {
        for pooling in [Pooling::First, Pooling::Mean, Pooling::Last] {
            let mut bench = bench(dims, config);
            let lengths = [1, CONTEXT, 2, 17, 31, 5, CONTEXT, 9, 1, 25];
            let texts: Vec<_> = (0..).zip(lengths).map(|(i, len)| text(i, len)).collect();
            let mut all: Vec<_> = texts
                .iter()
                .map(|text| ask(&bench, text, pooling))
                .collect();
            bench.run();
            for ((asked, vector), text) in all.iter_mut().zip(&texts) {
                let end = asked.answers[0].seen();
                assert_eq!(end, (0, Some(End::Stop(Stop::Eos))), "{}", text.len());
                let vector = vector.get().expect("before the end");
                assert_eq!(vector[..], plain(text, pooling), "{}", text.len());
            }
            bench.assert_empty();
        }
    }
}

#[test]
fn short_texts_share_a_step() {
    let mut bench = bench(dims(), EngineConfig::default());
    let asked: Vec<_> = (0..4)
        .map(|i| ask(&bench, &text(i, 12), Pooling::First))
        .collect();
    assert_eq!(bench.step().rows, ROWS, "four texts of twelve tokens");
    assert!(asked.iter().all(|(_, vector)| vector.get().is_some()));
}

#[test]
fn encoder_rejects_generations_and_long_texts() {
    let encoder = bench(dims(), EngineConfig::default());
    let refused = |bench: &Bench, request| format!("{:?}", bench.handle.submit(request).err());
    let why = refused(&encoder, encoder.request(&text(1, 5), 1));
    assert!(why.contains("the model is an encoder"), "{why}");
    assert!(!encoder.handle.generates());
    assert_eq!(encoder.handle.prompt_tokens_max(), CONTEXT);

    let mut long = encoder.request(&text(1, CONTEXT + 1), 1);
    long.embedding = Some(Embedding {
        pooling: Pooling::First,
        vector: Vector::default(),
    });
    let why = refused(&encoder, long);
    let bound = "prompt has 33 tokens; at most the context length, 32";
    assert!(why.contains(bound), "{why}");

    let decoder = crate::support::bench();
    let mut first = decoder.request(&text(1, 5), 1);
    first.embedding = Some(Embedding {
        pooling: Pooling::First,
        vector: Vector::default(),
    });
    let why = refused(&decoder, first);
    assert!(why.contains("pooling is that of the first token"), "{why}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
fn encoder_needs_room_for_its_longest_text() {
    let build = |dims| {
        Engine::new(
            Box::new(WholeTexts(fake(dims))),
            EngineConfig::default(),
            Instant::now(),
        )
    };
    for (dims, expected) in [
        (
            Dims {
                rows_max: CONTEXT - 1,
                ..dims()
            },
            "rows_max of an encoder",
        ),
        (Dims { pages: 7, ..dims() }, "pages of an encoder"),
    ] {
        let why = build(dims).err().expect("too small").to_string();
        assert!(why.contains(expected), "{why}");
    }
}
