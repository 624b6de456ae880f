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
/// MiniCPM-V 2, whose queries have places, on another tower.
const UNREAD_VERSION: usize = 1;
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
    pub(super) fn read(clip: &Keys<'_>, projector: Projector) -> Result<Option<Self>, ConfigError> {
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
            let found = match found {
                UNREAD_VERSION => format!("{found} (MiniCPM-V 2)"),
                _ => found.to_string(),
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan, Value};
    use crate::vision::VisionConfig;
    use kernels::Format;
    use media::{Detail, PatchOrder, Size};

    /// Keys of a file, and the second dimensions of its table and of the last matrix of a resampler.
    struct File {
        projector: &'static str,
        keys: Vec<(&'static str, i32)>,
        merge_after: Option<&'static [i32]>,
        entries: u64,
        out: u64,
    }

    impl File {
        fn resampler(keys: &[(&'static str, i32)]) -> Self {
            Self {
                projector: "resampler",
                keys: keys.to_vec(),
                merge_after: None,
                entries: 4900,
                out: 3584,
            }
        }

        fn merged(keys: &[(&'static str, i32)], merge_after: Option<&'static [i32]>) -> Self {
            Self {
                projector: "minicpmv4_6",
                merge_after,
                ..Self::resampler(keys)
            }
        }

        fn config(&self) -> Result<VisionConfig, ConfigError> {
            let mut out = GgufWriter::new();
            out.str("general.architecture", "clip")
                .str("clip.projector_type", self.projector)
                .bool("clip.use_gelu", true);
            let width = if self.out == 0 { 1024 } else { 0 };
            let usual = [
                ("clip.vision.image_size", 448),
                ("clip.vision.patch_size", 14),
                ("clip.vision.embedding_length", 1152),
                ("clip.vision.feed_forward_length", 4304),
                ("clip.vision.projection_dim", width),
                ("clip.vision.block_count", 27),
                ("clip.vision.attention.head_count", 16),
            ];
            let is_replaced = |key: &str| self.keys.iter().any(|(other, _)| *other == key);
            let usual = usual.into_iter().filter(|(key, _)| !is_replaced(key));
            for (key, value) in usual.chain(self.keys.iter().copied()) {
                out.value(key, Value::I32(value));
            }
            if let Some(layers) = self.merge_after {
                out.i32s("clip.vision.wa_layer_indexes", layers);
            }
            let kind = TensorKind::from(Format::F32);
            for (name, rows) in [(POSITIONS, self.entries), (RESAMPLER_OUT, self.out)] {
                let (name, dims) = (name.to_owned(), vec![1, rows]);
                if rows > 0 {
                    out.tensor(TensorPlan { name, dims, kind });
                }
            }
            let mut bytes = Vec::new();
            out.write(&mut bytes, |plan, sink| {
                sink.write_all(&vec![0; 4 * plan.dims[1] as usize])
            })
            .unwrap();
            VisionConfig::from_gguf(&Gguf::from_bytes(bytes).unwrap())
        }
    }

    #[test]
    fn versions_have_their_queries_marks_and_rows() {
        let rows = [
            (&[][..], 96, "resampler of MiniCPM-V 2.5"),
            (
                &[("clip.minicpmv_version", 0)][..],
                96,
                "resampler of MiniCPM-V 2.5",
            ),
            (&[("clip.minicpmv_version", 3)][..], 64, "resampler"),
            (&[("clip.minicpmv_version", 100_045)][..], 64, "resampler"),
            (
                &[
                    ("clip.minicpmv_version", 5),
                    ("clip.minicpmv_query_num", 32),
                ][..],
                32,
                "resampler",
            ),
        ];
        for (keys, queries, marks) in rows {
            let config = File::resampler(keys).config().unwrap();
            assert_eq!((config.rows_max(), config.marks_name()), (queries, marks));
            assert_eq!((config.projection_dim, config.table_edge), (3584, 70));
            assert_eq!((config.merge, config.patches_max()), (1, 2048));
            assert_eq!(config.recipe.order, PatchOrder::Raster);
            // Two slices and the whole.
            let plan = config.recipe.plan(Size::new(900, 448), Detail::High);
            assert_eq!(plan.unwrap().rows as usize, 3 * queries, "{keys:?}");
        }
    }

    #[test]
    fn a_merger_between_layers_goes_with_rows_of_four_by_four_patches() {
        let scale = "clip.vision.projector.scale_factor";
        let mut file = File::merged(&[], Some(&[6]));
        file.out = 0;
        let config = file.config().unwrap();
        assert_eq!((config.merge, config.merge_after), (4, Some(6)));
        assert_eq!((config.side(), config.rows_max()), (4 * 1152, 128));
        let order = PatchOrder::Windows { merge: 2, edge: 4 };
        assert_eq!(config.recipe.order, order);
        let plan = config.recipe.plan(Size::square(448), Detail::Low);
        assert_eq!(plan.unwrap().rows, 64);
        file.keys = vec![(scale, 2)];
        let config = file.config().unwrap();
        assert_eq!((config.merge, config.merge_after), (2, None));
        assert_eq!((config.side(), config.rows_max()), (4 * 1152, 512));
        assert_eq!(config.recipe.order, PatchOrder::Blocks(2));
    }

    /// Promise (Hostile input and memory): keys of MiniCPM-V that break a bound are refused with their name and the bound.
    #[test]
    fn unknown_versions_and_sizes_beyond_a_bound_are_named() {
        let version = |version| File::resampler(&[("clip.minicpmv_version", version)]);
        let shaped = |entries, out| File {
            entries,
            out,
            ..File::resampler(&[])
        };
        let scaled = |scale| File::merged(&[("clip.vision.projector.scale_factor", scale)], None);
        let rows = [
            (
                "minicpmv_version` is 1 (MiniCPM-V 2), must be one of 2 (MiniCPM-V 2.5), 3 (2.6)",
                version(1),
            ),
            (
                "minicpmv_version` is 100046, must be one of",
                version(100_046),
            ),
            ("minicpmv_version` is -3", version(-3)),
            (
                "minicpmv_query_num` is 1025, must be 0 to 1024",
                File::resampler(&[("clip.minicpmv_query_num", 1025)]),
            ),
            ("is 4901, must be a square of 1 to 1024", shaped(4901, 3584)),
            (
                "v.position_embd.weight (second dimension)` is 0",
                shaped(0, 3584),
            ),
            (
                "resampler.proj.weight (second dimension)` is 3600, must be a multiple of 128",
                shaped(4900, 3600),
            ),
            (
                "image_size` is 13, must be 14 to",
                File::resampler(&[("clip.vision.image_size", 13)]),
            ),
            (
                "preproc_max_tiles` is 65, must be 1 to 64",
                File::resampler(&[("clip.vision.preproc_max_tiles", 65)]),
            ),
            ("scale_factor` is 3, must be 2 or 4", scaled(3)),
            ("`clip.vision.wa_layer_indexes` is missing", scaled(4)),
            (
                "wa_layer_indexes` is 27, must be 0 to 26",
                File::merged(&[], Some(&[27])),
            ),
            ("wa_layer_indexes` is -1", File::merged(&[], Some(&[-1]))),
            (
                "wa_layer_indexes` is 2 layers, must be one",
                File::merged(&[], Some(&[3, 6])),
            ),
        ];
        for (part, file) in rows {
            let said = file.config().unwrap_err().to_string();
            assert!(said.contains(part.trim_matches('`')), "{part}: {said}");
        }
    }
}
