//! Options of a generation under the names of llama.cpp and of Ollama.

use super::generation_fields;
use crate::fields::{self, Fields};
use generate::generation_options::{GenerationOptions, PenaltyWindow, Seed, TokenLimit};

/// Limit of `repeat_last_n`.
const WINDOW_MAX: i128 = u32::MAX as i128;

/// Parses the options that a request sets in `options`. Those about loading a model (`num_ctx`, `num_gpu` ...) are
/// settings of the operator here and are ignored, as are unknown options.
pub(crate) fn ollama_options(options: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    let mut given = llama_options(options, vocab);
    // -1 (unlimited) and -2 (until the context is full) both mean the limit of the context.
    if let Some(predict) = options.integer("num_predict", -2..=i128::from(u32::MAX)) {
        let tokens = usize::try_from(predict).ok().filter(|&predict| predict > 0);
        given.max_tokens = Some(tokens.map_or(TokenLimit::Context, TokenLimit::Tokens));
    }
    given
}

/// Parses the options that Ollama has from llama.cpp: those of OpenAI, `repeat_last_n`, and a negative `seed`.
pub(crate) fn llama_options(options: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    let mut given = generation_fields::generation_options(options, vocab, 1);
    given.penalty_window = options
        .integer("repeat_last_n", -1..=WINDOW_MAX)
        .map(|window| match window {
            -1 => PenaltyWindow::All,
            0 => PenaltyWindow::Off,
            window => PenaltyWindow::Last(u32::try_from(window).unwrap_or(u32::MAX)),
        });
    let seed = options.raw("seed").and_then(fields::whole_number);
    if seed.is_some_and(|seed| seed < 0) {
        given.seed = Some(Seed::Random);
    }
    given
}

/// Validates options that are stored in a derived model; errors are recorded in `options`.
pub(crate) fn check_options(options: &mut Fields<'_>) {
    let params = ollama_options(options, u32::MAX as usize).resolve();
    generation_fields::check_min_tokens(options, &params);
}
