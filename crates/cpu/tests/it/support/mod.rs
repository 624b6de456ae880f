//! Synthetic models for tests.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod adapters;
pub(crate) mod case;
pub(crate) mod recurrent_configs;
pub(crate) mod saved;
pub(crate) mod saved_encoder;
pub(crate) mod saved_gpt_oss;
pub(crate) mod saved_recurrent;

use case::Case;
use cpu::{LoadOptions, Model};
use kernels::{Isa, KvKind, Pool};
use model::{AdapterSet, Batch, Forward, SpanStates, Want};
use weights::LoadError;
use weights::gguf::Gguf;

/// Rows of a batch of test models.
pub(crate) const ROWS: usize = 128;
/// Positions in a page of test models: few, so that short prompts have several pages.
pub(crate) const PAGE: usize = 16;
/// States of sequences of test models.
pub(crate) const STATES: usize = 16;
/// Pages of test models.
pub(crate) const PAGES: usize = 128;

/// The bytes of a case's GGUF.
pub(crate) fn bytes(line: &str) -> Vec<u8> {
    Case::parse(line).unwrap().spec.to_bytes().unwrap()
}

/// Loads a GGUF with small bounds.
pub(crate) fn try_load(bytes: Vec<u8>, threads: usize) -> Result<Model, LoadError> {
    try_load_with(bytes, threads, &options(None))
}

pub(crate) fn try_load_with(
    bytes: Vec<u8>,
    threads: usize,
    options: &LoadOptions,
) -> Result<Model, LoadError> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    Model::load(
        gguf,
        Isa::detect(),
        Pool::new(threads),
        options,
        &mut |_| {},
    )
}

/// Loads a case's model, with its adapters and small bounds.
pub(crate) fn load(line: &str, threads: usize) -> Model {
    let case = Case::parse(line).unwrap();
    let options = LoadOptions {
        kv: case.kv,
        ..options(None)
    };
    let mut model = try_load_with(case.spec.to_bytes().unwrap(), threads, &options).unwrap();
    if !case.adapters.is_empty() {
        let files = Gguf::from_bytes(case.spec.to_bytes().unwrap()).unwrap();
        let (adapters, _) = adapters::adapters_of(&case, &files.into());
        model.adapt(&adapters).unwrap();
    }
    model
}

/// Small bounds.
pub(crate) fn options(context_max: Option<usize>) -> LoadOptions {
    LoadOptions {
        context_max,
        page_tokens: PAGE,
        pages: PAGES,
        kv: KvKind::F16,
        states: STATES,
        rows_max: ROWS,
        logit_rows_max: ROWS,
        mtp: false,
    }
}

/// Pages for `positions`, counted from `first`.
pub(crate) fn pages(first: usize, positions: usize) -> Vec<u32> {
    (first..first + positions.div_ceil(PAGE))
        .map(|page| page as u32)
        .collect()
}

/// Pseudorandom ids below `vocab`.
pub(crate) fn ids(seed: u64, count: usize, vocab: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab as u64) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Logits of every position, run in chunks of at most `ROWS`, on pages from `first_page`.
pub(crate) fn logits(model: &mut Model, ids: &[u32], first_page: usize) -> Vec<Vec<f32>> {
    adapted_logits(model, ids, first_page, AdapterSet::NONE)
}

/// As [`logits`], with adapters.
pub(crate) fn adapted_logits(
    model: &mut Model,
    ids: &[u32],
    first_page: usize,
    adapters: AdapterSet,
) -> Vec<Vec<f32>> {
    let (vocab, table) = (model.dims().vocab, pages(first_page, ids.len()));
    let mut all = Vec::new();
    let mut batch = Batch::default();
    for (chunk, ids) in ids.chunks(ROWS).enumerate() {
        batch.clear();
        batch.push_adapted(ids, chunk * ROWS, &table, Want::All, adapters);
        batch.set_states(Some(SpanStates::alternating(0, chunk, chunk * ROWS)));
        all.extend(
            model
                .forward(&batch)
                .unwrap()
                .chunks(vocab)
                .map(<[f32]>::to_vec),
        );
    }
    all
}

/// The index of the largest element.
pub(crate) fn best(row: &[f32]) -> usize {
    (0..row.len())
        .max_by(|&a, &b| row[a].total_cmp(&row[b]))
        .unwrap()
}
