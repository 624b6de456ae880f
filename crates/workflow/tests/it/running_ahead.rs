//! Programs on a model that computes the next step while the tokens of the last one are read.
//!
//! Promise (Workflows): on a model that runs ahead, as one on a device may, every sample in windows of 1 to 16, one or two in flight,
//! gives the answer of a plain request; a token that a program writes to a channel reaches the reader while the model computes
//! the next step.

use crate::samples;
use crate::support::{Bench, EOS, fake, sample};
use engine::fake::{FakeModel, LateLog};
use model::{
    Ahead, Batch, Capabilities, Dims, Drawn, Draws, ExportPages, Forward, ForwardError, PageId,
};
use serde_json::json;
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

#[test]
fn every_sample_gives_the_answer_of_a_plain_request() {
    type Check = fn(&mut Bench);
    // Checks of the samples, how likely an end is, and whether tokens are computed ahead.
    let checks: [(Check, f32, bool); 7] = [
        (samples::check_text, 0.03, true),
        (samples::check_windows, 0.04, true),
        (samples::check_turns, 0.05, true),
        (samples::check_ends, 0.0, true),
        (samples::check_best, 0.05, true),
        (samples::check_suggestions, 0.05, false),
        (samples::check_embeddings, 0.0, false),
    ];
    for (number, (check, eos_probability, runs_ahead)) in checks.into_iter().enumerate() {
        let (mut bench, log, _) = bench(eos_probability);
        check(&mut bench);
        assert!(log.misuse().is_empty(), "{number}: {:?}", log.misuse());
        assert!(log.started_ahead() > 0 || !runs_ahead, "{number}");
    }
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
            _ => {
                let given = json!({"prompt": "hello", "max_tokens": 30, "batch_size": batch, "ahead": true});
                bench.run(&sample(name), &given)
            }
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
