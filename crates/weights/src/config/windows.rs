//! Sliding windows of the layers, and which layers have a rope.

use super::keys::Keys;
use super::traits::{RopeLayers, WindowRule};
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
    let WindowRule::Periodic {
        window,
        period,
        layers: only,
    } = rule
    else {
        return Ok(vec![None; layers]);
    };
    if only > 0 && only != layers {
        return Ok(vec![None; layers]);
    }
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

/// Whether each layer rotates queries and keys.
pub(super) fn read_roped(
    keys: &Keys<'_>,
    rule: RopeLayers,
    windows: &[Option<usize>],
) -> Result<Vec<bool>, ConfigError> {
    let some_windowed = windows.iter().any(Option::is_some);
    let finetuned = match rule {
        RopeLayers::IfFinetuned => keys.flag("rope.scaling.finetuned")?.unwrap_or(true),
        _ => true,
    };
    let roped = |(layer, window): (usize, &Option<usize>)| match rule {
        RopeLayers::All | RopeLayers::IfFinetuned => finetuned,
        RopeLayers::AllBut { period } => (layer + 1) % period != 0,
        RopeLayers::Windowed => window.is_some() || !some_windowed,
        RopeLayers::Never => false,
    };
    Ok(windows.iter().enumerate().map(roped).collect())
}
