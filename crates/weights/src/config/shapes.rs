//! Sizes of single layers, and which layers share keys and values.

use super::altup::{ACTIVE, STATES};
use super::keys::Keys;
use super::recurrent_rule::RecurrentRule;
use super::traits::{KvSharing, Traits};
use super::{Config, ConfigError, HeadSizes, LatentConfig};
use kernels::{KvKind, KvShape};

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Key and value heads; 0 in a layer without attention.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward part, 0 in a layer without one; beside experts, of the shared expert, or 0.
    pub hidden: usize,
    /// The layer whose keys and values are read: this layer, or an earlier one, and then this layer stores none.
    pub kv_layer: usize,
}

/// Where the keys and values of a layer are: a cache, and a layer of this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPlace {
    /// Number of the store.
    pub cache: usize,
    /// Layer of that store.
    pub layer: usize,
}

impl LayerShape {
    /// The heads, and the sizes of each layer, whose widths are `hidden`.
    pub(super) fn read_all(
        keys: &Keys<'_>,
        (traits, latent): (&Traits, Option<&LatentConfig>),
        dim: usize,
        windows: &[Option<usize>],
        hidden: &[usize],
    ) -> Result<(HeadSizes, Vec<Self>), ConfigError> {
        if traits.altup {
            check_states(keys)?;
        }
        let layers = windows.len();
        let recurrent = traits.recurrent;
        let (heads, each) = if traits.layers_differ {
            HeadSizes::read_each(keys, dim, windows, 1)?
        } else if recurrent.is_some_and(RecurrentRule::lists_attention) {
            HeadSizes::read_each(keys, dim, windows, 0)?
        } else if recurrent.is_some_and(RecurrentRule::replaces_all_attention) {
            (HeadSizes::NONE, vec![0; layers])
        } else {
            let heads = match latent {
                Some(latent) => latent.heads(keys)?,
                None => HeadSizes::read(keys, dim)?,
            };
            let each = vec![heads.keys; layers];
            (heads, each)
        };
        let shared = read_shared(keys, traits.kv_sharing, layers)?;
        let mut shapes = Vec::with_capacity(layers);
        for layer in 0..layers {
            let shape = Self {
                kv_heads: each[layer],
                head_dim: match windows[layer] {
                    Some(_) => heads.local_dim,
                    None => heads.dim,
                },
                hidden: hidden[layer],
                kv_layer: if layer < layers - shared {
                    layer
                } else {
                    source_of(keys, windows, layers - shared, layer)?
                },
            };
            shapes.push(shape);
            check_source(keys, &shapes, layer)?;
        }
        Ok((heads, shapes))
    }

    /// Leaves no attention in these layers.
    pub(super) fn take_attention(shapes: &mut [Self], from: &[bool]) {
        for (shape, _) in shapes.iter_mut().zip(from).filter(|(_, taken)| **taken) {
            shape.kv_heads = 0;
        }
    }

    /// Whether the layer has attention.
    pub fn attends(&self) -> bool {
        self.kv_heads > 0
    }

    /// Columns of a row of keys, and of values.
    pub fn kv_cols(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Whether two layers can be in one cache.
    fn has_heads_of(&self, other: &Self) -> bool {
        (self.kv_heads, self.head_dim) == (other.kv_heads, other.head_dim)
    }
}

impl Config {
    /// Shapes of the KV caches with `pages` pages, one for each kind of heads. Layers that read the keys and values of
    /// another layer are in none.
    pub fn kv_shapes(&self, pages: usize, page_tokens: usize, kind: KvKind) -> Vec<KvShape> {
        let mut shapes: Vec<KvShape> = Vec::new();
        for (layer, place) in self.kv_places().into_iter().enumerate() {
            let shape = &self.shapes[layer];
            let Some(place) = place.filter(|_| shape.kv_layer == layer) else {
                continue;
            };
            match shapes.get_mut(place.cache) {
                Some(cache) => cache.layers = cache.layers.max(place.layer + 1),
                None => shapes.push(KvShape {
                    layers: 1,
                    pages,
                    page_tokens,
                    kv_heads: shape.kv_heads,
                    head_dim: shape.head_dim,
                    kind,
                }),
            }
        }
        shapes
    }

    /// Bytes of the KV caches with `pages` pages when fully used; `None` if they overflow the address space.
    pub fn kv_bytes(&self, pages: usize, page_tokens: usize, kind: KvKind) -> Option<usize> {
        let shapes = self.kv_shapes(pages, page_tokens, kind);
        let mut bytes = shapes.iter().map(KvShape::bytes);
        bytes.try_fold(0_usize, |sum, bytes| sum.checked_add(bytes?))
    }

    /// Where each layer with attention finds its keys and values. Layers of a model that keeps nothing of a text take
    /// turns with one place.
    pub fn kv_places(&self) -> Vec<Option<KvPlace>> {
        // A layer of each kind of heads, and the number of its layers so far.
        let mut kinds: Vec<(usize, usize)> = Vec::new();
        let mut places: Vec<Option<KvPlace>> = Vec::with_capacity(self.layers);
        for (layer, shape) in self.shapes.iter().enumerate() {
            if !shape.attends() {
                places.push(None);
                continue;
            }
            if shape.kv_layer != layer {
                places.push(places[shape.kv_layer]);
                continue;
            }
            let known = kinds
                .iter()
                .position(|(first, _)| self.shapes[*first].has_heads_of(shape));
            let cache = known.unwrap_or(kinds.len());
            if known.is_none() {
                kinds.push((layer, 0));
            }
            let layers = &mut kinds[cache].1;
            places.push(Some(KvPlace {
                cache,
                layer: *layers,
            }));
            *layers += usize::from(self.is_causal());
        }
        places
    }

    /// The last layer that stores something for later tokens: keys and values, or a state.
    pub fn last_stored_layer(&self) -> usize {
        let recurrent = self.recurrent.as_ref();
        let keeps_state = |layer: usize| recurrent.is_some_and(|kept| kept.layers[layer]);
        let layers = self.shapes.iter().enumerate();
        layers
            .rev()
            .find(|(layer, shape)| {
                shape.attends() && shape.kv_layer == *layer || keeps_state(*layer)
            })
            .map_or(0, |(layer, _)| layer)
    }
}

/// Rejects a file with other states.
fn check_states(keys: &Keys<'_>) -> Result<(), ConfigError> {
    for (name, wanted) in [("altup.num_inputs", STATES), ("altup.active_idx", ACTIVE)] {
        let found = keys.size(name, 0, usize::MAX)?.unwrap_or(wanted);
        if found != wanted {
            return Err(keys.range(name, found, wanted.to_string()));
        }
    }
    Ok(())
}

const SHARED: &str = "attention.shared_kv_layers";

/// The number of layers at the end that read keys and values of earlier layers.
fn read_shared(keys: &Keys<'_>, rule: KvSharing, layers: usize) -> Result<usize, ConfigError> {
    let default = match rule {
        KvSharing::Never => return Ok(0),
        KvSharing::ByKey => 0,
        KvSharing::From(first) => layers.saturating_sub(first),
    };
    Ok(keys.size(SHARED, 0, layers - 1)?.unwrap_or(default))
}

/// The last layer before `first` that has a window if `layer` has one, and none else.
fn source_of(
    keys: &Keys<'_>,
    windows: &[Option<usize>],
    first: usize,
    layer: usize,
) -> Result<usize, ConfigError> {
    let is_windowed = windows[layer].is_some();
    let earlier = windows[..first].iter();
    let source = earlier
        .rev()
        .position(|window| window.is_some() == is_windowed);
    source.map(|back| first - 1 - back).ok_or_else(|| {
        let kind = if is_windowed { "with" } else { "without" };
        let shared = windows.len() - first;
        let bound =
            format!("so few that a layer {kind} a window remains, which layer {layer} can read");
        keys.range(SHARED, shared, bound)
    })
}

fn check_source(keys: &Keys<'_>, shapes: &[LayerShape], layer: usize) -> Result<(), ConfigError> {
    let (shape, source) = (&shapes[layer], shapes[layer].kv_layer);
    if shapes[source].has_heads_of(shape) {
        return Ok(());
    }
    let bound = format!(
        "{} in layer {layer}, which reads the keys of layer {source}",
        shapes[source].kv_heads
    );
    Err(keys.range("attention.head_count_kv", shape.kv_heads, bound))
}
