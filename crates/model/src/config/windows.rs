//! Sliding windows of the layers.

use super::architecture::WindowRule;
use super::keys::Keys;
use super::{ConfigError, limits};

const WINDOW: &str = "attention.sliding_window";
const PATTERN: &str = "attention.sliding_window_pattern";

/// The window of each layer. The pattern is one flag per layer, or a period: all layers except each
/// `period`-th have the window.
pub(super) fn read(
    keys: &Keys<'_>,
    rule: WindowRule,
    layers: usize,
) -> Result<Vec<Option<usize>>, ConfigError> {
    let WindowRule::Periodic { window, period } = rule else {
        return Ok(vec![None; layers]);
    };
    let window = keys.size(WINDOW, 0, limits::CONTEXT)?.unwrap_or(window);
    if window == 0 {
        return Ok(vec![None; layers]);
    }
    let of = |windowed: bool| windowed.then_some(window);
    if let Some(flags) = keys.flags(PATTERN, layers)? {
        return Ok(flags.into_iter().map(of).collect());
    }
    let period = keys.size(PATTERN, 0, limits::LAYERS)?.unwrap_or(period);
    Ok((0..layers)
        .map(|layer| of(period == 0 || layer % period < period - 1))
        .collect())
}
