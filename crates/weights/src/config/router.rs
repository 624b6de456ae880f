//! How a row chooses its experts.

use super::keys::Keys;
use super::{ConfigError, limits};

/// How a row chooses its experts, and their shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterConfig {
    /// Whether an expert's part is the sigmoid of its score; else a part of the softmax over all scores.
    pub sigmoid: bool,
    /// Whether the shares of the chosen experts add up to `scale`; else they are the experts' parts times `scale`.
    pub normalized: bool,
    /// Groups of experts, and how many of them a row uses: those with the largest sum of their best two parts.
    pub groups: Option<(usize, usize)>,
    /// Factor of the shares.
    pub scale: f32,
}

const GATING: &str = "expert_gating_func";
const GROUPS: &str = "expert_group_count";
const GROUPS_USED: &str = "expert_group_used_count";

/// The only number of layers and of ids of a model with sigmoids whose first files do not say so (GLM 4.7 Flash).
const SIGMOID_LAYERS: std::ops::RangeInclusive<usize> = 47..=48;
const SIGMOID_VOCAB: usize = 154_880;

impl RouterConfig {
    /// A softmax over all scores or, if `normalized`, over the chosen.
    pub const fn softmax(normalized: bool) -> Self {
        Self {
            sigmoid: false,
            normalized,
            groups: None,
            scale: 1.0,
        }
    }

    /// The router of a family whose keys describe it, in a model of `layers` layers whose rows use `used` of `count` experts.
    pub(super) fn read(
        keys: &Keys<'_>,
        layers: usize,
        (count, used): (usize, usize),
    ) -> Result<Self, ConfigError> {
        let scale = keys.float("expert_weights_scale", limits::MULTIPLIER)?;
        Ok(Self {
            sigmoid: read_gating(keys, layers)?,
            normalized: keys.flag("expert_weights_norm")?.unwrap_or(false),
            groups: read_groups(keys, count, used)?,
            scale: scale.filter(|&scale| scale > 0.0).unwrap_or(1.0),
        })
    }
}

fn read_gating(keys: &Keys<'_>, layers: usize) -> Result<bool, ConfigError> {
    match keys.size(GATING, 0, usize::MAX)?.unwrap_or(0) {
        0 => {
            let vocab = keys.size("vocab_size", 1, limits::VOCAB)?;
            Ok(SIGMOID_LAYERS.contains(&layers) && vocab == Some(SIGMOID_VOCAB))
        }
        1 => Ok(false),
        2 => Ok(true),
        other => Err(keys.range(GATING, other, "0, 1 (softmax) or 2 (sigmoid)")),
    }
}

fn read_groups(
    keys: &Keys<'_>,
    count: usize,
    used: usize,
) -> Result<Option<(usize, usize)>, ConfigError> {
    let groups = keys.size(GROUPS, 0, count)?.unwrap_or(0);
    if groups <= 1 {
        return Ok(None);
    }
    if !count.is_multiple_of(groups) || count / groups < 2 {
        let bound =
            format!("a divisor of {count}, the experts, with two experts at least in a group");
        return Err(keys.range(GROUPS, groups, bound));
    }
    let groups_used = keys.required(GROUPS_USED, 1, groups)?;
    if groups_used * (count / groups) < used {
        Err(keys.range(
            GROUPS_USED,
            groups_used,
            format!("groups with at least {used} experts, as many as a row uses"),
        ))
    } else {
        Ok(Some((groups, groups_used)))
    }
}
