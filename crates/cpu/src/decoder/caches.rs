//! Keys and values of all layers: a cache and a workspace of attention for each kind of heads.
//!
//! The layers of most models are alike and share one cache. Where heads differ between layers (Gemma 4), a page has a part
//! in each cache. A layer that reads the keys and values of an earlier one has the earlier one's place.

use super::scratch::attention_isa;
use kernels::{AttentionBounds, AttentionScratch, Isa, KvCache, KvError, KvKind};
use model::Dims;
use weights::Config;
use weights::config::shapes::KvPlace;
use weights::parameters::Weights;

/// Keys and values of the layers with one kind of heads.
pub(super) struct HeadCache {
    pub(super) kv: KvCache,
    /// Workspace of attention.
    pub(super) attention: AttentionScratch,
}

/// Keys and values of all layers.
pub(super) struct LayerCaches {
    caches: Vec<HeadCache>,
    /// Of each layer with attention.
    places: Vec<Option<KvPlace>>,
}

impl LayerCaches {
    pub(super) fn new(
        config: &Config,
        weights: &Weights,
        dims: &Dims,
        kind: KvKind,
        isa: Isa,
        threads: usize,
    ) -> Result<Self, KvError> {
        let isa = attention_isa(isa, weights.formats());
        let cache = |shape: kernels::KvShape| {
            let attention = AttentionScratch::new(AttentionBounds {
                threads,
                heads: config.heads,
                kv_heads: shape.kv_heads,
                head_dim: shape.head_dim,
                rows_max: dims.rows_max,
                context_max: dims.context_max,
                kind,
                isa,
            });
            Ok(HeadCache {
                kv: KvCache::new(shape)?,
                attention,
            })
        };
        let shapes = config.kv_shapes(dims.pages, dims.page_tokens, kind);
        Ok(Self {
            caches: shapes.into_iter().map(cache).collect::<Result<_, _>>()?,
            places: config.kv_places(),
        })
    }

    /// The cache with the keys and values that layer `layer` reads, and their layer in this cache.
    ///
    /// # Panics
    /// If the layer has no attention.
    pub(super) fn of(&mut self, layer: usize) -> (&mut HeadCache, usize) {
        let place = self.places[layer].expect("a layer with attention");
        (&mut self.caches[place.cache], place.layer)
    }

    /// Copies a page in all layers.
    pub(super) fn copy_page(&mut self, from: u32, to: u32) {
        for cache in &mut self.caches {
            cache.kv.copy_page(from, to);
        }
    }

    /// Bytes of one page in all layers.
    pub(super) fn page_bytes(&self) -> usize {
        self.caches.iter().map(|cache| cache.kv.page_bytes()).sum()
    }

    /// Copies a page out of all layers, cache by cache.
    pub(super) fn export_page(&self, page: u32, mut bytes: &mut [u8]) {
        for cache in &self.caches {
            let (part, rest) = bytes.split_at_mut(cache.kv.page_bytes());
            cache.kv.export_page(page, part);
            bytes = rest;
        }
    }

    /// Copies a page into all layers, as [`LayerCaches::export_page`] wrote the bytes.
    pub(super) fn import_page(&mut self, page: u32, mut bytes: &[u8]) {
        for cache in &mut self.caches {
            let (part, rest) = bytes.split_at(cache.kv.page_bytes());
            cache.kv.import_page(page, part);
            bytes = rest;
        }
    }

    /// Bytes of the caches when fully used.
    pub(super) fn kv_bytes(&self) -> usize {
        self.caches.iter().map(|cache| cache.kv.bytes()).sum()
    }

    /// Resident bytes of the workspaces.
    pub(super) fn scratch_bytes(&self) -> usize {
        let bytes = self.caches.iter().map(|cache| cache.attention.bytes());
        bytes.sum()
    }
}
