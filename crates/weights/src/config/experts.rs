//! Experts of the feed-forward part: how many there are, how many a row uses, how a row chooses.

use super::keys::Keys;
use super::traits::{ExpertRule, FeedRule, Traits};
use super::{COLUMN_GROUP, ConfigError, grouped, limits};

/// The feed-forward part of a model with experts. A router gives each row a score for each expert; the row uses the
/// experts with the best scores and adds their outputs by their shares of the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsConfig {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a row uses; at most `count`.
    pub used: usize,
    /// Width of an expert.
    pub hidden: usize,
    /// How a row chooses.
    pub router: RouterConfig,
    /// The first layer with experts.
    pub first_layer: usize,
}

/// Widths of the feed-forward part.
pub(super) struct FeedForward {
    /// The part that every row uses, of each layer: all of it, or the shared expert, or 0.
    pub(super) hidden: Vec<usize>,
    pub(super) experts: Option<ExpertsConfig>,
}

const COUNT: &str = "expert_count";
const USED: &str = "expert_used_count";
const WIDTH: &str = "expert_feed_forward_length";
const SHARED: &str = "expert_shared_feed_forward_length";
const SHARED_COUNT: &str = "expert_shared_count";
const FIRST: &str = "leading_dense_block_count";
const DENSE: &str = "feed_forward_length";

pub(super) fn read(
    keys: &Keys<'_>,
    traits: &Traits,
    layers: usize,
) -> Result<FeedForward, ConfigError> {
    if traits.experts == ExpertRule::ByKeys {
        return read_by_keys(keys, layers);
    }
    let ExpertRule::Allowed {
        required,
        normalized,
        shared,
    } = traits.experts
    else {
        refuse(keys)?;
        return Ok(FeedForward {
            hidden: dense_widths(keys, traits, layers)?,
            experts: None,
        });
    };
    let least = usize::from(required);
    let count = if required {
        keys.required(COUNT, least, limits::EXPERTS)?
    } else {
        keys.size(COUNT, least, limits::EXPERTS)?.unwrap_or(0)
    };
    if count == 0 {
        return Ok(FeedForward {
            hidden: dense_widths(keys, traits, layers)?,
            experts: None,
        });
    }
    let used = keys.required(USED, 1, count)?;
    check_router(keys, normalized)?;
    let hidden = match keys.get(WIDTH) {
        Some(_) => grouped(keys, WIDTH, limits::HIDDEN)?,
        None if traits.dense_beside_experts => return Err(keys.missing(WIDTH)),
        None => grouped(keys, DENSE, limits::HIDDEN)?,
    };
    let shared_hidden = match keys.size(SHARED, 0, limits::HIDDEN)? {
        None | Some(0) if traits.shared_gate => grouped(keys, DENSE, limits::HIDDEN)?,
        None | Some(0) => 0,
        Some(_) if !shared => return Err(keys.unsupported(SHARED, "a shared expert")),
        Some(_) => grouped(keys, SHARED, limits::HIDDEN)?,
    };
    Ok(FeedForward {
        hidden: if traits.dense_beside_experts {
            dense_widths(keys, traits, layers)?
        } else {
            vec![shared_hidden; layers]
        },
        experts: Some(ExpertsConfig {
            count,
            used,
            hidden,
            router: RouterConfig::softmax(normalized),
            first_layer: 0,
        }),
    })
}

/// The feed-forward part of a family whose keys describe it: the first layers have none, and each row uses some experts beside
/// those that it chooses, which are one wider part.
fn read_by_keys(keys: &Keys<'_>, layers: usize) -> Result<FeedForward, ConfigError> {
    let count = keys.required(COUNT, 1, limits::EXPERTS)?;
    let used = keys.required(USED, 1, count)?;
    let hidden = grouped(keys, WIDTH, limits::HIDDEN)?;
    let shared = keys.size(SHARED_COUNT, 0, limits::HIDDEN / hidden)?;
    let first_layer = keys.size(FIRST, 0, layers)?.unwrap_or(0);
    let dense = match first_layer {
        0 => 0,
        _ => grouped(keys, DENSE, limits::HIDDEN)?,
    };
    let width = |layer| {
        if layer < first_layer {
            dense
        } else {
            shared.unwrap_or(0) * hidden
        }
    };
    Ok(FeedForward {
        hidden: (0..layers).map(width).collect(),
        experts: Some(ExpertsConfig {
            count,
            used,
            hidden,
            router: RouterConfig::read(keys, layers, (count, used))?,
            first_layer,
        }),
    })
}

/// The experts of an encoder, whose shares do not add up to 1: as wide as the feed-forward part of the other layers.
pub(crate) fn read_of_encoder(keys: &Keys<'_>) -> Result<ExpertsConfig, ConfigError> {
    let count = keys.required(COUNT, 1, limits::EXPERTS)?;
    let used = keys.required(USED, 1, count)?;
    check_router(keys, false)?;
    Ok(ExpertsConfig {
        count,
        used,
        hidden: grouped(keys, DENSE, limits::HIDDEN)?,
        router: RouterConfig::softmax(false),
        first_layer: 0,
    })
}

/// The width of each layer's feed-forward part.
fn dense_widths(
    keys: &Keys<'_>,
    traits: &Traits,
    layers: usize,
) -> Result<Vec<usize>, ConfigError> {
    let least = match traits.feed {
        FeedRule::Never => return Ok(vec![0; layers]),
        FeedRule::Alone => 0,
        _ if traits.layers_differ => COLUMN_GROUP,
        _ => return Ok(vec![grouped(keys, DENSE, limits::HIDDEN)?; layers]),
    };
    let widths = keys.sizes(DENSE, layers, least, limits::HIDDEN)?;
    let widths = widths.ok_or_else(|| keys.missing(DENSE))?;
    match widths
        .iter()
        .find(|width| !width.is_multiple_of(COLUMN_GROUP))
    {
        Some(width) => Err(keys.range(DENSE, width, format!("a multiple of {COLUMN_GROUP}"))),
        None => Ok(widths),
    }
}

/// Rejects experts in a family that has none.
pub(crate) fn refuse(keys: &Keys<'_>) -> Result<(), ConfigError> {
    match keys.size(COUNT, 0, usize::MAX)? {
        None | Some(0) => Ok(()),
        Some(_) => Err(keys.unsupported(COUNT, "a mixture of experts")),
    }
}

/// Rejects keys that ask for another router than the family's.
fn check_router(keys: &Keys<'_>, normalized: bool) -> Result<(), ConfigError> {
    const SOFTMAX: usize = 1;
    // Over the chosen experts, which is what shares with the sum 1 are.
    const SOFTMAX_OF_CHOSEN: usize = 3;
    let other = |name: &str, same: &[usize]| -> Result<bool, ConfigError> {
        let found = keys.size(name, 0, usize::MAX)?;
        Ok(found.is_some_and(|found| !same.contains(&found)))
    };
    let softmax: &[usize] = if normalized {
        &[0, SOFTMAX, SOFTMAX_OF_CHOSEN]
    } else {
        &[0, SOFTMAX]
    };
    if other("expert_gating_func", softmax)? {
        return Err(keys.unsupported("expert_gating_func", "a router without softmax"));
    }
    if other("expert_group_count", &[0, 1])? {
        return Err(keys.unsupported("expert_group_count", "groups of experts"));
    }
    if keys
        .flag("expert_weights_norm")?
        .is_some_and(|asked| asked != normalized)
    {
        return Err(keys.unsupported(
            "expert_weights_norm",
            "shares with another sum than the family's",
        ));
    }
    let scale = keys.float("expert_weights_scale", limits::MULTIPLIER)?;
    if scale.is_some_and(|scale| scale != 0.0 && scale != 1.0) {
        return Err(keys.unsupported("expert_weights_scale", "scaled shares"));
    }
    Ok(())
}

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
