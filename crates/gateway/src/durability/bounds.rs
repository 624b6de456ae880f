//! Bounds of decoded values: a file that was changed by hand gives the engine no value that a request cannot have.

use super::control_state::ControlState;
use super::description::{DescriptionKind, RecordedPrompts, StreamDescription};
use super::json_record::DescriptionError;
use generate::prompt_record::PromptRecord;
use generate::request::CHOICES_MAX;

/// Whether a value is within bounds; the message begins with the field.
fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), DescriptionError> {
    match holds {
        true => Ok(()),
        false => Err(DescriptionError::Invalid(message())),
    }
}

/// Checks a description.
pub(super) fn check_description(description: &StreamDescription) -> Result<(), DescriptionError> {
    let (n, prompts) = (description.n, description.prompts.len());
    let choices = n.saturating_mul(prompts);
    let is_generation = description.kind == DescriptionKind::Generation;
    require(
        choices <= CHOICES_MAX && (choices > 0 || !is_generation),
        || format!("n: {n} for each of {prompts} prompts; from 1 to {CHOICES_MAX} in all"),
    )?;
    if let RecordedPrompts::Prepared(prompts) = &description.prompts {
        check_prepared(prompts, description)?;
    }
    Ok(())
}

/// Checks prepared prompts of a stream.
pub(super) fn check_prepared(
    prompts: &[PromptRecord],
    description: &StreamDescription,
) -> Result<(), DescriptionError> {
    let expected = description.prompts.len();
    require(prompts.len() == expected, || {
        format!("prompts: are {}; the request has {expected}", prompts.len())
    })?;
    for (i, prompt) in prompts.iter().enumerate() {
        let (ids, context_max) = (prompt.ids.len(), description.context_max);
        require((1..context_max).contains(&ids), || {
            format!("prompts[{i}].ids: has {ids}; at least 1, and fewer than {context_max}")
        })?;
    }
    Ok(())
}

/// Checks the control updates of a stream.
pub(super) fn check_control_state(state: &ControlState) -> Result<(), DescriptionError> {
    require(state.applied <= state.count, || {
        format!("applied: is {}; at most {}", state.applied, state.count)
    })
}
