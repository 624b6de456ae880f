//! States of sequences in recurrent layers: kept within a span, read again, refused.

use crate::support::{device, ids, on_device, pages, spec};
use model::{Batch, Forward, ForwardError, KeptState, SpanStates, Want};

/// Rows of the prompt, and where a state is kept.
const ROWS: usize = 12;
const KEPT: usize = 5;

/// Logits of the rows from position `first` on, after the state `before`.
fn rest(model: &mut gpu::Model, prompt: &[u32], first: usize, before: u32) -> Vec<f32> {
    let mut batch = Batch::default();
    batch.push(&prompt[first..], first, &pages(0, ROWS), Want::All);
    batch.set_states(Some(SpanStates::new(Some(before), 7)));
    model.forward(&batch).expect("a batch").to_vec()
}

#[test]
fn kept_states_continue_as_the_whole_span_does() {
    let Some(device) = device() else { return };
    for preset in [
        "tiny-qwen35",
        "tiny-qwen3next",
        "tiny-lfm2",
        "tiny-falcon-h1",
    ] {
        let mut model = on_device(&spec(preset, "F32"), &device);
        let vocab = model.dims().vocab;
        assert_eq!(model.capabilities().states, 8, "{preset}");
        let prompt = ids(8, ROWS, vocab);
        let mut batch = Batch::default();
        batch.push(&prompt, 0, &pages(0, ROWS), Want::All);
        let mut states = SpanStates::new(None, 1);
        let kept = |tokens, state| Some(KeptState { tokens, state });
        states.kept = [kept(2, 4), kept(KEPT, 5), kept(ROWS - 1, 6)];
        batch.set_states(Some(states));
        let whole = model.forward(&batch).expect("a batch").to_vec();
        for (first, state) in [(2, 4), (KEPT, 5), (ROWS - 1, 6)] {
            let wanted = &whole[first * vocab..];
            assert!(
                rest(&mut model, &prompt, first, state) == wanted,
                "{preset} {first}"
            );
            // Read, not changed.
            assert!(
                rest(&mut model, &prompt, first, state) == wanted,
                "{preset} {first}"
            );
        }
    }
}

#[test]
fn states_that_violate_a_rule_are_refused() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-qwen35", "F32"), &device);
    let rows = [
        ("no states", 0, None),
        ("precedes all tokens", 0, Some(SpanStates::new(Some(1), 2))),
        ("precedes all tokens", 3, Some(SpanStates::new(None, 2))),
        ("does not exist", 0, Some(SpanStates::new(None, 8))),
        ("read and written", 3, Some(SpanStates::new(Some(2), 2))),
    ];
    for (part, position, states) in rows {
        let mut batch = Batch::default();
        batch.push(&[1, 2], position, &pages(0, position + 2), Want::Last);
        batch.set_states(states);
        let error = model.forward(&batch).expect_err(part);
        let named = matches!(error, ForwardError::BadBatch(why) if why.contains(part));
        assert!(named, "{part}: {error}");
    }
}
