//! Parts of an encoded message of tokens.

use super::bytes::{push_f32, push_varint};
use super::{RunKey, TokenRun};
use engine::Phase;

/// Appends a run.
pub(super) fn push_run(out: &mut Vec<u8>, run: &TokenRun<'_>) {
    let RunKey {
        handle,
        attempt,
        choice,
        first,
    } = run.key;
    push_varint(out, handle);
    let rest = [attempt, choice, first];
    rest.iter()
        .for_each(|&value| push_varint(out, value.into()));
    let top_n = run.top.len() / run.tokens.len();
    // A NaN that the engine did not compute has these bits.
    let has_logprobs = run
        .tokens
        .iter()
        .any(|token| token.logprob.to_bits() != f32::NAN.to_bits());
    out.extend([u8::from(has_logprobs), top_n as u8]);
    push_varint(out, run.tokens.len() as u64);
    for (i, token) in run.tokens.iter().enumerate() {
        push_varint(out, token.id.into());
        if has_logprobs {
            push_f32(out, token.logprob);
        }
        for alternative in &run.top[i * top_n..][..top_n] {
            push_varint(out, alternative.id.into());
            push_f32(out, alternative.logprob);
        }
    }
}

/// The phase with this number.
pub(super) fn phase_from(number: u8) -> Option<Phase> {
    let phases = [
        Phase::Queued,
        Phase::Prefilling,
        Phase::Running,
        Phase::Parked,
        Phase::Ended,
        Phase::Paused,
    ];
    phases.into_iter().find(|&phase| phase as u8 == number)
}
