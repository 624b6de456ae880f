//! Programs on a model that computes the next step while the tokens of the last one are read.
//!
//! Promise (Workflows): on a model that runs ahead, as one on a device may, every sample in windows of 1 to 16, one or two in flight,
//! gives the answer of a plain request; a token that a program writes to a channel reaches the reader while the model computes
//! the next step.

use crate::support::{Bench, EOS, fake, sample};
use engine::SamplingParams;
use engine::fake::{FakeModel, LateLog};
use model::{
    Ahead, Batch, Capabilities, Dims, Drawn, Draws, ExportPages, Forward, ForwardError, PageId,
};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use workflow::Event;

/// The fake model that answers late, with the number of batches in flight.
struct Watched {
    model: FakeModel,
    in_flight: Arc<AtomicUsize>,
}

impl Watched {
    fn late(&mut self) -> &mut dyn Ahead {
        self.model.ahead().expect("a model that runs ahead")
    }
}

impl Forward for Watched {
    fn dims(&self) -> Dims {
        self.model.dims()
    }

    fn capabilities(&self) -> Capabilities {
        self.model.capabilities()
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        self.model.forward(batch)
    }

    fn hidden(&self) -> &[f32] {
        self.model.hidden()
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.model.copy_page(from, to);
    }

    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        Some(self)
    }

    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        self.model.page_export()
    }
}

impl Ahead for Watched {
    fn start(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.late().start(batch)?;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn draw(&mut self, draws: &Draws) -> Result<(), ForwardError> {
        self.late().draw(draws)
    }

    fn drawn(&mut self) -> Result<Drawn<'_>, ForwardError> {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.late().drawn()
    }
}

/// An engine over the late model.
fn bench(eos_probability: f32) -> (Bench, LateLog, Arc<AtomicUsize>) {
    let (log, in_flight) = (LateLog::default(), Arc::new(AtomicUsize::new(0)));
    let model = Watched {
        model: FakeModel::new(fake(eos_probability)).late(log.clone()),
        in_flight: Arc::clone(&in_flight),
    };
    (Bench::over(Box::new(model)), log, in_flight)
}

/// Inputs of a sample that answers one question in windows, and the temperature.
fn given(batch: usize, ahead: bool, temperature: f32) -> Json {
    json!({"prompt": "hello", "max_tokens": 30, "batch_size": batch, "ahead": ahead,
        "temperature": temperature, "seed": 11})
}

#[test]
fn windows_of_every_size_say_the_same() {
    let (mut bench, log, _) = bench(0.04);
    let windows = sample("batched_generation");
    for temperature in [0.0, 0.9] {
        let sampling = SamplingParams {
            temperature,
            seed: 11,
            ..SamplingParams::default()
        };
        let ids = bench.asked("hello");
        let wanted = bench.plain(&ids, &sampling, 30);
        for batch in 1..=16 {
            for ahead in [false, true] {
                let mut run = bench.run(&windows, &given(batch, ahead, temperature));
                let (text, outcome) = bench.finish(&mut run);
                assert_eq!(text, wanted, "batch {batch}, ahead {ahead}: {outcome:?}");
            }
        }
    }
    bench.assert_empty();
    assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    assert!(log.started_ahead() > 0);
}

#[test]
fn second_turn_is_that_of_a_fresh_request() {
    let (mut bench, log, _) = bench(0.05);
    let greedy = SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let chat = sample("multi_turn_chat");
    for batch in 1..=16 {
        for ahead in [false, true] {
            let given = json!({"first": "hi", "second": "and then?", "system": "be kind",
                "max_tokens": 25, "batch_size": batch, "ahead": ahead});
            let mut run = bench.run(&chat, &given);
            let (text, outcome) = bench.finish(&mut run);
            let encode = |text: &str| bench.model.handle.tokenizer.encode(text, true).unwrap();
            let first = encode("<system>be kind</s>\n<user>hi</s>\n<assistant>");
            let turn = encode("</s>\n<user>and then?</s>\n<assistant>");
            let one = bench.plain(&first, &greedy, 25);
            let transcript = [first, one.clone(), turn].concat();
            let two = bench.plain(&transcript, &greedy, 25);
            assert_eq!(text, [one, two].concat(), "batch {batch}: {outcome:?}");
        }
    }
    bench.assert_empty();
    assert!(log.misuse().is_empty(), "{:?}", log.misuse());
}

#[test]
fn token_of_a_channel_is_read_while_the_next_step_is_computed() {
    // No end: the answers are as long as they may be.
    // A plain loop is computed ahead but for its last step; windows are, as far as their credit goes.
    for (name, batch, least) in [
        ("streamed_generation", 1, 28),
        ("batched_generation", 1, 14),
        ("batched_generation", 4, 14),
    ] {
        let (mut bench, log, in_flight) = bench(0.0);
        let mut run = match name {
            "streamed_generation" => {
                bench.run(&sample(name), &json!({"prompt": "hello", "max_tokens": 30}))
            }
            _ => bench.run(&sample(name), &given(batch, true, 0.0)),
        };
        let mut computed_meanwhile = Vec::new();
        loop {
            match bench.next(&mut run) {
                Event::Token { id, .. } => {
                    assert_ne!(id, EOS);
                    computed_meanwhile.push(in_flight.load(Ordering::Relaxed));
                }
                Event::Ended(_) => break,
                _ => {}
            }
        }
        assert_eq!(computed_meanwhile.len(), 30, "{name}");
        let found = computed_meanwhile.iter().filter(|&&batches| batches > 0);
        assert!(
            found.count() >= least,
            "{name}, windows of {batch}: {computed_meanwhile:?}"
        );
        assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    }
}
