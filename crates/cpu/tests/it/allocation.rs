//! Law 3: after warm-up a forward pass allocates nothing.

use crate::support::{ids, load, pages};
use model::{AdapterSet, Batch, Forward, SpanStates, Want};
use testing::child::run_in_child;
use testing::heap::{count_process, process_allocations};

/// One round without an allocation suffices: an allocating pass allocates in every round.
const ROUNDS: usize = 4;

/// After the first block of its size.
#[test]
fn pass_over_a_block_does_not_allocate() {
    if run_in_child(pass_over_a_block_does_not_allocate) {
        return;
    }
    count_process();
    for case in [
        "x preset=tiny-gemma3 mix=F32",
        "x preset=tiny-gemma4-26b mix=F32",
    ] {
        let mut model = load(case, 2);
        let (dim, rows, table) = (model.config().dim, 150, pages(0, 160));
        let mut batch = Batch::default();
        batch.push(&vec![0; rows], 0, &table, Want::None);
        batch.set_vectors(0..rows, &vec![0.25; rows * dim]);
        let blocks = model.blocks().unwrap();
        let mut round = || {
            let before = process_allocations();
            let mut left = blocks.begin_block(&batch).unwrap();
            while left > 0 {
                left = blocks.advance_block(2).unwrap();
            }
            process_allocations() - before
        };
        let fewest = (0..ROUNDS).map(|_| round()).min();
        assert_eq!(fewest, Some(0), "{case}");
    }
}

#[test]
fn forward_pass_does_not_allocate() {
    if run_in_child(forward_pass_does_not_allocate) {
        return;
    }
    count_process();
    for case in [
        "x preset=small-gemma3 mix=Q4_K_M",
        "x preset=tiny-qwen2 mix=F32",
        "x preset=tiny-llama mix=F32 lora=1:4:4:1+2:4:4:1",
        "x preset=tiny-granitemoe mix=F32",
        "x preset=tiny-deepseek2 mix=Q8_0",
        "x preset=tiny-qwen35 mix=Q8_0",
        "x preset=tiny-gemma4 mix=Q8_0",
        "x preset=tiny-gemma4-26b mix=F32",
        "x preset=tiny-gemma3n mix=Q4_0 layers=4 shared_kv=2 period=2",
    ] {
        let mut model = load(case, 2);
        let vocab = model.dims().vocab;
        let (prompt, tables) = (ids(1, 48, vocab), [pages(0, 64), pages(8, 64)]);
        let adapters = (0..model.capabilities().adapters).map(|adapter| (adapter, 0.5));
        let adapters = AdapterSet::new(adapters).unwrap();
        let mut batch = Batch::default();
        let mut turn = 0;
        let mut step = |position: usize, rows: usize, want| {
            batch.clear();
            batch.push_adapted(&prompt[..rows], position, &tables[0], want, adapters);
            batch.set_states(Some(SpanStates::alternating(0, turn, position)));
            batch.push(&prompt[..1], position, &tables[1], Want::Last);
            batch.set_states(Some(SpanStates::alternating(1, turn, position)));
            turn += 1;
            model.forward(&batch).map(|logits| logits.len())
        };
        step(0, 48, Want::All).unwrap();
        // The test harness's thread may allocate once when it begins to wait.
        let mut round = || {
            let before = process_allocations();
            for position in 0..16 {
                step(position, 1, Want::Last).unwrap();
                step(position, 48, Want::None).unwrap();
                step(position, 48, Want::All).unwrap();
            }
            process_allocations() - before
        };
        let fewest = (0..ROUNDS).map(|_| round()).min();
        assert_eq!(fewest, Some(0), "{case}");
    }
}
