//! Keys of MiniCPM-V: the version of its resampler, and the layer after which neighbors become one row of the stream.

use super::config::{NamedTensors, POSITIONS, TABLE_EDGE_MAX};
use super::projector::Projector;
use crate::ConfigError;
use crate::config::keys::Keys;
use crate::config::limits;

/// Elements of a head of the resampler.
pub const RESAMPLER_HEAD: usize = 128;
/// Queries of a resampler, each of which becomes a row.
const QUERIES_MAX: usize = 1024;
/// The tensor that gives rows their width.
pub(super) const RESAMPLER_OUT: &str = "resampler.proj.weight";
/// Versions of the key, the name of each, and its queries where the file does not say.
const VERSIONS: [(usize, &str, usize); 6] = [
    (2, "MiniCPM-V 2.5", 96),
    (3, "2.6", 64),
    (4, "o 2.6", 64),
    (5, "4.0", 64),
    (6, "o 4.0", 64),
    (100_045, "4.5", 64),
];
/// The version of files of the first converter, which does not name it.
const FIRST_VERSION: usize = 2;
/// Patches along an edge that become one row: by the projector alone, or by the merger within the layers and the projector.
const MERGES: [usize; 2] = [2, 4];

/// A resampler: learned queries attend to the patches of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResamplerConfig {
    /// Rows of a slice.
    pub queries: usize,
    /// Whether the model is MiniCPM-V 2.5, which was trained with other marks around slices.
    pub is_first: bool,
}

impl ResamplerConfig {
    /// Reads the version and the number of queries, in a tower with a resampler.
    pub(super) fn read(
        clip: &Keys<'_>,
        projector: Projector,
    ) -> Result<Option<Self>, ConfigError> {
        const NAME: &str = "minicpmv_version";
        if projector != Projector::Resampler {
            return Ok(None);
        }
        let found = match clip.size(NAME, 0, usize::MAX)? {
            None | Some(0) => FIRST_VERSION,
            Some(version) => version,
        };
        let known = VERSIONS.iter().find(|(version, ..)| *version == found);
        let Some((version, _, usual)) = known else {
            let names = VERSIONS.map(|(version, name, _)| format!("{version} ({name})"));
            return Err(clip.range(NAME, found, format!("one of {}", names.join(", "))));
        };
        let queries = match clip.size("minicpmv_query_num", 0, QUERIES_MAX)? {
            None | Some(0) => *usual,
            Some(queries) => queries,
        };
        Ok(Some(Self {
            queries,
            is_first: *version == FIRST_VERSION,
        }))
    }
}

/// Whether an image is cut into slices of about one area, each of any ratio.
pub(super) fn has_slices(projector: Projector) -> bool {
    matches!(projector, Projector::Resampler | Projector::MiniCpm46)
}

/// Patches along an edge that become one row.
pub(super) fn read_merge(keys: &Keys<'_>, merge: usize) -> Result<usize, ConfigError> {
    if MERGES.contains(&merge) {
        return Ok(merge);
    }
    Err(keys.range("projector.scale_factor", merge, "2 or 4"))
}

/// The layer after which two by two neighbors become one row of the stream: in files whose rows are four by four patches.
pub(super) fn read_merge_after(
    keys: &Keys<'_>,
    projector: Projector,
    (merge, layers): (usize, usize),
) -> Result<Option<usize>, ConfigError> {
    const NAME: &str = "wa_layer_indexes";
    if projector != Projector::MiniCpm46 || merge == MERGES[0] {
        return Ok(None);
    }
    match keys.numbers(NAME, limits::LAYERS)?.as_deref() {
        None => Err(keys.missing(NAME)),
        Some([layer]) => usize::try_from(*layer)
            .ok()
            .filter(|layer| *layer < layers)
            .map(Some)
            .ok_or_else(|| keys.range(NAME, layer, format!("0 to {}", layers - 1))),
        Some(layers) => Err(keys.range(NAME, format!("{} layers", layers.len()), "one")),
    }
}

/// Entries of the learned table along one edge, which is not that of a slice.
pub(super) fn table_edge(tensors: &NamedTensors<'_>) -> Result<usize, ConfigError> {
    let entries = tensors(POSITIONS).map_or(0, |table| table.rows());
    let edge = entries.isqrt();
    if (1..=TABLE_EDGE_MAX).contains(&edge) && edge * edge == entries {
        return Ok(edge);
    }
    Err(ConfigError::Range {
        key: format!("{POSITIONS} (second dimension)"),
        found: entries.to_string(),
        bound: format!("a square of 1 to {TABLE_EDGE_MAX}"),
    })
}

/// The width of a row of a resampler, in whole heads. The converter writes 0 for it.
pub(super) fn check_width(width: usize) -> Result<(), ConfigError> {
    if width.is_multiple_of(RESAMPLER_HEAD) {
        return Ok(());
    }
    Err(ConfigError::Range {
        key: format!("{RESAMPLER_OUT} (second dimension)"),
        found: width.to_string(),
        bound: format!("a multiple of {RESAMPLER_HEAD}"),
    })
}
