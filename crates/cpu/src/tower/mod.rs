//! Towers: encoders of images, in units that a step can compute together with running sequences.
//!
//! A picture's patches see each other, so a layer needs the keys of all before the attention of any: a pass is a list of
//! stages, each computed block by block ([`stages`]). Between two units nothing is kept but the stream, the keys and values of
//! one layer, and the rows that are finished. What becomes one row is together in the order of the patches, so that a
//! projector reads consecutive rows.

mod head;
mod neighbors;
mod pass;
mod positions;
mod resampler;
mod scratch;
mod stages;

use kernels::{Format, Isa, Matrix, Pool};
use media::{Grid, View};
use model::{Encode, EncodeError, EncoderDims, EncoderInput};
use pass::Seen;
use positions::{Places, TowerRope};
use scratch::TowerScratch;
use stages::{Cursor, PictureSize, Stage, StageCost, Unit, stages};
use std::sync::Arc;
use weights::parameters::{TowerHead, TowerWeights};
use weights::vision::{Positions, VisionConfig, Windows};
use weights::{LoadError, ModelFiles, Packed, PackedSections};

/// Patches of the largest picture. The workspace has two or three floats of the stream's width for each.
pub const PATCHES_MAX: usize = 1 << 16;

/// A tower that is ready to run on the threads of a model, or on its own as a [`TowerAlone`].
pub struct Tower {
    config: VisionConfig,
    weights: TowerWeights,
    /// The kernel of the patches, packed; `None` where the weights have a matrix in its place.
    kernel: Option<Matrix>,
    /// The matrix of a head that has one in f32, packed.
    pooled: Option<Matrix>,
    stages: Vec<StageCost>,
    pass: TowerPass,
    /// The encoding under way.
    picture: Option<Picture>,
}

/// Mutable state of a pass.
struct TowerPass {
    isa: Isa,
    rope: Option<TowerRope>,
    places: Places,
    scratch: TowerScratch,
}

/// An encoding that is under way.
struct Picture {
    /// Rows of the output.
    rows: usize,
    cursor: Cursor,
    /// The numbers of the patches, until they are in the stream.
    numbers: Vec<f32>,
}

impl Tower {
    /// Loads and packs a tower's weights. `config` is that of the files; its recipe's bounds of rows may be smaller. The files
    /// are closed. `progress` is called at the beginning and after each tensor. `pool` packs; as many threads must compute.
    ///
    /// # Errors
    /// The first tensor that is missing or invalid; see [`LoadError`].
    pub fn load(
        files: impl Into<ModelFiles>,
        config: VisionConfig,
        (isa, pool): (Isa, &mut Pool),
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        let files = files.into();
        check_patches(&config)?;
        let sections = &mut PackedSections::none();
        let mut weights = TowerWeights::load(&files, &config, isa, pool, sections, progress)?;
        drop(files); // the mapping must not outlive the load
        let scratch = TowerScratch::new(&config, &weights, (isa, pool.threads()));
        let gated = weights.layers.iter().any(|layer| layer.gate.is_some());
        let floats = std::mem::take(&mut weights.patches);
        let kernel = if weights.patch_matrix.is_some() {
            None
        } else {
            let (name, cols) = ("v.patch_embd.weight", config.patch_cols());
            Some(pack((isa, pool), name, cols, &floats)?)
        };
        let pooled = match &mut weights.head {
            TowerHead::Pooled { matrix, .. } => {
                let floats = std::mem::take(matrix);
                let name = "mm.input_projection.weight";
                Some(pack((isa, pool), name, config.dim, &floats)?)
            }
            TowerHead::Joined { .. }
            | TowerHead::Merged(_)
            | TowerHead::Standardized { .. }
            | TowerHead::Resampled(_) => None,
        };
        let neighbors = weights.neighbors.as_ref();
        let neighbors = neighbors.map_or(0, |layer| layer.up.weight.rows());
        Ok(Self {
            stages: stages(&config, gated, neighbors),
            pass: TowerPass {
                isa,
                rope: TowerRope::of(&config),
                places: Places::new(&config),
                scratch,
            },
            picture: None,
            config,
            weights,
            kernel,
            pooled,
        })
    }

    /// The tower's configuration.
    pub fn config(&self) -> &VisionConfig {
        &self.config
    }

    /// Bytes of the weights, and of the workspace when the largest picture was computed.
    pub fn bytes(&self) -> (usize, usize) {
        let pooled = self.pooled.as_ref().map_or(0, Matrix::bytes);
        let kernel = self.kernel.as_ref().map_or(0, Matrix::bytes);
        let weights = self.weights.bytes() + kernel + pooled;
        (weights, self.pass.scratch.bytes())
    }

    /// Sizes as an encoder.
    pub fn dims(&self) -> EncoderDims {
        EncoderDims {
            row_width: self.config.row_width(),
            rows_max: self.config.rows_max(),
        }
    }

    /// As [`Encode::begin`].
    ///
    /// # Errors
    /// The input is no [`View`], or one that the recipe does not make.
    pub fn begin(&mut self, input: &EncoderInput) -> Result<usize, EncodeError> {
        self.picture = None;
        let view = Arc::clone(input).downcast::<View>();
        let view = view.map_err(|_| EncodeError::BadInput("no view of an image"))?;
        let blocks = self.blocks_of(&view)?;
        let stream = self.pass.places.read(&view);
        if let Some(resampler) = &mut self.pass.scratch.resampler {
            let Grid { rows, columns } = view.patches;
            resampler.place(rows.max(columns) as usize);
        }
        let size = PictureSize { stream, blocks };
        self.picture = Some(Picture {
            rows: view.rows as usize,
            cursor: Cursor::new(size),
            numbers: self.config.recipe.patches(&view),
        });
        Ok(Cursor::units(size, &self.stages))
    }

    /// As [`Encode::next_cost`].
    pub fn next_cost(&self) -> u64 {
        let picture = self.picture.as_ref();
        picture.map_or(1, |picture| picture.cursor.next_cost(&self.stages))
    }

    /// As [`Encode::advance`], on the threads of `pool`.
    ///
    /// # Errors
    /// Nothing is under way, or a row is not finite.
    pub fn advance(&mut self, pool: &mut Pool) -> Result<Option<&[f32]>, EncodeError> {
        const IDLE: EncodeError = EncodeError::BadInput("no encoding is under way");
        let mut picture = self.picture.take().ok_or(IDLE)?;
        let unit = picture.cursor.advance(&self.stages).ok_or(IDLE)?;
        self.compute(pool, &mut picture, unit);
        let rows = picture.rows;
        if !picture.cursor.is_done(&self.stages) {
            self.picture = Some(picture);
            return Ok(None);
        }
        let rows = self.pass.scratch.rows.head(rows);
        if rows.iter().all(|entry| entry.is_finite()) {
            Ok(Some(rows))
        } else {
            Err(EncodeError::NotFinite)
        }
    }

    fn compute(&mut self, pool: &mut Pool, picture: &mut Picture, unit: Unit) {
        let (config, weights, pass) = (&self.config, &self.weights, &mut self.pass);
        let Unit {
            stage,
            stream,
            rows,
        } = unit;
        match stage {
            Stage::Patches => {
                let is_last = rows.end == stream;
                let numbers = (&picture.numbers[..], rows.clone());
                pass.embed(pool, config, (weights, self.kernel.as_ref()), numbers);
                pass.keep_features(pool, config, (0, rows));
                if is_last {
                    picture.numbers = Vec::new();
                }
            }
            Stage::KeysValues(layer) => {
                let layer = &weights.layers[layer];
                pass.store(pool, config, layer, (stream, rows));
            }
            Stage::Attention(layer) => {
                let is_bound = config.windows.bound(layer);
                let seen = if is_bound { Seen::Window } else { Seen::All };
                let layer = (seen, &weights.layers[layer]);
                pass.attend(pool, config, layer, (stream, rows));
            }
            Stage::FeedForward(layer) => {
                pass.feed_forward(pool, config, &weights.layers[layer], rows.clone());
                pass.keep_features(pool, config, (1 + layer, rows));
            }
            Stage::NeighborKeysValues | Stage::NeighborAttention | Stage::Neighbors => {
                let Some(layer) = &weights.neighbors else {
                    return;
                };
                let block = (stream, rows.clone());
                match stage {
                    Stage::NeighborKeysValues => pass.store(pool, config, layer, block),
                    Stage::NeighborAttention => {
                        pass.attend(pool, config, (Seen::Neighbors, layer), block);
                    }
                    _ => pass.merge_neighbors(pool, config, layer, rows),
                }
            }
            Stage::SeenKeysValues => {
                if let TowerHead::Resampled(resampler) = &weights.head {
                    pass.store_seen(pool, config, (weights, resampler), (stream, rows));
                }
            }
            Stage::Deepstack(number) => {
                let merger = (number, &weights.deepstack[number]);
                pass.deepstack(pool, config, merger, rows);
            }
            Stage::Head => pass.head(pool, config, (weights, self.pooled.as_ref()), rows),
        }
    }

    /// The number of blocks of patches of a view, which must be one that the recipe makes.
    fn blocks_of(&self, view: &View) -> Result<usize, EncodeError> {
        const OTHER: EncodeError = EncodeError::BadInput("a view of another recipe");
        const TOO_MANY: EncodeError =
            EncodeError::BadInput("a view of more rows than rows_max, or of none");
        let (patch, merge) = (self.config.patch as u32, self.config.merge as u32);
        let cut = Grid::of_cells(view.pixels.size(), patch);
        if !(1..=self.config.patches_max()).contains(&(cut.count() as usize)) {
            return Err(TOO_MANY);
        }
        if let Some(resampler) = self.config.resampler {
            let queries = resampler.queries as u32;
            let fits = view.merged == Grid::new(1, queries) && view.rows == queries;
            let fits = fits && view.patches == cut;
            return fits.then_some(resampler.queries).ok_or(OTHER);
        }
        let (blocks, merged) = (cut.merged(merge), view.merged);
        let edge = self.config.table_edge as u32;
        let fits = match self.config.windows {
            // Whole pictures, of whose blocks those at the edges may be left out.
            Windows::Pictures => {
                let is_whole = cut.rows.is_multiple_of(edge) && cut.columns.is_multiple_of(edge);
                is_whole && merged.rows <= blocks.rows && merged.columns <= blocks.columns
            }
            Windows::Whole | Windows::Layers { .. } => merged == blocks,
        };
        let is_whole = blocks.rows * merge == cut.rows && blocks.columns * merge == cut.columns;
        if view.patches != cut || !fits || !is_whole {
            return Err(OTHER);
        }
        if self.config.traits.positions == Some(Positions::Axes) && cut.rows.max(cut.columns) > edge
        {
            return Err(EncodeError::BadInput(
                "a view of more patches than the table of an axis",
            ));
        }
        let (rows, lines) = (view.rows as usize, merged.rows as usize);
        let most = self.config.rows_max();
        if rows == 0 || rows > most || blocks.count() as usize > most {
            return Err(TOO_MANY);
        }
        let marks = rows.checked_sub(merged.count() as usize).ok_or(OTHER)?;
        let has_marks = self.weights.line_end.is_some();
        if marks == 0 || (has_marks && (marks == lines || marks + 1 == lines)) {
            return Ok(blocks.count() as usize);
        }
        Err(OTHER)
    }
}

/// Bounds the workspace, which is as large as the largest picture.
fn check_patches(config: &VisionConfig) -> Result<(), LoadError> {
    let given = config.patches_max();
    if (1..=PATCHES_MAX).contains(&given) {
        return Ok(());
    }
    Err(LoadError::Option {
        name: "the number of patches of the largest picture",
        given,
        least: 1,
        most: PATCHES_MAX,
    })
}

/// A matrix of floats with rows of `cols`.
fn pack(
    (isa, pool): (Isa, &mut Pool),
    name: &str,
    cols: usize,
    floats: &[f32],
) -> Result<Matrix, LoadError> {
    let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    let packed = Matrix::pack(isa, pool, Format::F32, floats.len() / cols, cols, &bytes);
    packed.map_err(|error| LoadError::Pack {
        tensor: name.to_owned(),
        error,
    })
}

/// A tower with threads of its own: for a model that computes elsewhere, and for tests.
pub struct TowerAlone {
    tower: Tower,
    pool: Pool,
}

impl TowerAlone {
    /// A tower that was loaded with these threads.
    pub fn new(tower: Tower, pool: Pool) -> Self {
        Self { tower, pool }
    }

    /// The tower.
    pub fn tower(&self) -> &Tower {
        &self.tower
    }
}

impl Encode for TowerAlone {
    fn dims(&self) -> EncoderDims {
        self.tower.dims()
    }

    fn begin(&mut self, input: &EncoderInput) -> Result<usize, EncodeError> {
        self.tower.begin(input)
    }

    fn next_cost(&self) -> u64 {
        self.tower.next_cost()
    }

    fn advance(&mut self) -> Result<Option<&[f32]>, EncodeError> {
        self.tower.advance(&mut self.pool)
    }
}
