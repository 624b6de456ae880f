//! Operations as dispatches.

mod adapters;
mod experts;
mod recurrent;

pub(super) use experts::order_words;

use super::device::Device;
use super::launch::{BATCH_WORDS, CONSTANT_WORDS, Grid, Launch, Variant, compile};
use super::memory::{DeviceMatrix, MatrixPart, Memory, PrepareError};
use super::sources::{Kernel, PART, PROMPT_HEAD_MAX, heads_at_once, matmul_kernels, prompt_rows};
use super::work::Work;
use crate::operation::{
    Activation, At, CacheShape, HeadsTo, MatrixId, Norm, Operation, Program, RowSet, Step, VectorId,
};
use crate::record::{TILE_ROWS, TILED_ROWS_MIN};
use kernels::KvKind;

/// The kernels' word for "none".
const NONE: u32 = u32::MAX;

/// Makes the dispatches of a program.
pub(crate) struct Planner<'a> {
    pub(crate) device: &'a Device,
    pub(crate) program: &'a Program,
    pub(crate) memory: &'a Memory,
    rows: RowSet,
    /// The choices of experts that were sorted last.
    sorted: Option<At>,
    /// The work of the operation, until it has a dispatch.
    work: Work,
    launches: Vec<Launch<Kernel>>,
}

/// Results of a planned operation.
type Planned = Result<(), PrepareError>;

impl<'a> Planner<'a> {
    /// All dispatches of some steps of a program.
    pub(crate) fn plan(
        device: &'a Device,
        (program, steps): (&'a Program, &[Step]),
        memory: &'a Memory,
    ) -> Result<Vec<Launch>, PrepareError> {
        let mut planner = Self {
            device,
            program,
            memory,
            rows: RowSet::All,
            sorted: None,
            work: Work::default(),
            launches: Vec::new(),
        };
        for step in steps {
            planner.rows = step.rows;
            planner.work = Work::of_operation(program, &step.operation);
            planner.operation(&step.operation)?;
        }
        Ok(compile(device, planner.launches)?)
    }

    /// Whether batches of many rows are computed by the kernels of few.
    fn is_exact(&self) -> bool {
        self.program.exact || self.device.distrusts_tiles()
    }

    fn operation(&mut self, operation: &Operation) -> Planned {
        match *operation {
            Operation::Embed { table, factor, out } => self.embed(table, factor, out),
            Operation::Norm { .. } | Operation::NormParts { .. } => self.norm(operation),
            Operation::Add { .. } => self.add(operation),
            Operation::Vectors { .. } => self.vectors(operation),
            Operation::Matmul {
                matrix,
                input,
                bias,
                add,
                out,
            } => self.matmul(matrix, (input, bias), add, out),
            Operation::AdaptDown { .. } | Operation::AdaptUp { .. } => self.adapt(operation),
            Operation::Heads { .. } => self.heads(operation),
            Operation::Attend { .. } => self.attend(operation),
            Operation::Activate { .. } => self.activate(operation),
            Operation::Finish {
                logits,
                cols,
                bias,
                factor,
                cap,
            } => {
                let mut constants = vec![cols];
                constants.extend(self.place(logits));
                constants.extend([vector(bias), factor.to_bits()]);
                constants.extend([cap.unwrap_or(0.0).to_bits(), f32::NAN.to_bits()]);
                let memory = self.memory;
                let buffers = [&memory.vectors, self.buffer(logits)];
                self.push(
                    Kernel::Finish,
                    &buffers,
                    constants,
                    Grid::Rows(cols.div_ceil(256)),
                )
            }
            Operation::Route { .. } => self.route(operation),
            Operation::ExpertMatmul { .. } => self.expert_matmul(operation),
            Operation::Combine { .. } => self.combine(operation),
            Operation::Convolve { .. } => self.convolve(operation),
            Operation::ScanGates { .. } => self.scan_gates(operation),
            Operation::Scan { .. } => self.scan(operation),
            Operation::Share { .. } => self.share(operation),
            Operation::AddParts { .. } => self.add_parts(operation),
            Operation::CopyParts { .. } => self.copy_parts(operation),
            Operation::Gather { input, cols, out } => {
                let mut constants = vec![cols];
                constants.extend(self.place(input));
                constants.extend(self.place(out));
                let buffers = [&self.memory.record, self.buffer(input), self.buffer(out)];
                self.push(
                    Kernel::Gather,
                    &buffers,
                    constants,
                    Grid::Rows(cols.div_ceil(256)),
                )
            }
        }
    }

    fn embed(&mut self, table: MatrixId, factor: f32, out: At) -> Planned {
        let memory = self.memory;
        let matrix = &memory.matrices[table.0 as usize];
        let shape = self.program.matrices[table.0 as usize];
        let kernel = Kernel::Embed {
            format: shape.format,
        };
        for part in &matrix.parts {
            let mut constants = vec![part.first, part.rows];
            constants.extend(row_words(matrix, shape.format));
            constants.push(shape.cols);
            constants.extend(self.place(out));
            constants.push(factor.to_bits());
            let [low, high, scales] = self.planes(part);
            let [.., tokens] = &memory.draws;
            let buffers = [low, high, scales, &memory.record, tokens, self.buffer(out)];
            self.push(kernel, &buffers, constants, Grid::Rows(1))?;
        }
        Ok(())
    }

    fn matmul(
        &mut self,
        matrix: MatrixId,
        (input, bias): (At, Option<VectorId>),
        add: bool,
        out: At,
    ) -> Planned {
        let format = self.program.matrices[matrix.0 as usize].format;
        let memory = self.memory;
        let rows = self.program.matrices[matrix.0 as usize].rows;
        let matrix = &memory.matrices[matrix.0 as usize];
        let work = self.work;
        for part in &matrix.parts {
            self.work = work.part(part.rows, rows);
            let [x_at, x_row] = self.place(input);
            let [out_at, out_row] = self.place(out);
            let mut constants = vec![part.rows];
            constants.extend(row_words(matrix, format));
            constants.extend([x_at / 4, x_row / 4, out_at + part.first, out_row]);
            let bias = bias.map_or(NONE, |bias| bias.0 + part.first);
            constants.extend([bias, u32::from(add)]);
            let [low, high, scales] = self.planes(part);
            let (x, out) = (self.buffer(input), self.buffer(out));
            let buffers = [low, high, scales, x, &memory.vectors, out];
            let (exact, reorders) = (self.is_exact(), self.device.reorders_sums());
            let units = self.device.matrix_units();
            let units =
                units.filter(|_| self.program.on_matrix_units && format != kernels::Format::F32);
            let kernels = matmul_kernels(format, exact, reorders, units, self.device.blocks());
            let outputs = part.rows;
            self.push_all(&kernels, &buffers, constants, Grid::Matmul { outputs })?;
        }
        Ok(())
    }

    fn norm(&mut self, operation: &Operation) -> Planned {
        let memory = self.memory;
        match *operation {
            Operation::Norm {
                input,
                cols,
                norm,
                out,
            } => {
                let mut constants = vec![cols];
                constants.extend(self.place(input));
                constants.extend(self.place(out));
                constants.extend(norm_words(&norm));
                let buffers = [&memory.vectors, self.buffer(input), self.buffer(out)];
                self.push(Kernel::Norm, &buffers, constants, Grid::Rows(1))
            }
            Operation::NormParts {
                x,
                parts,
                len,
                norm,
                own_weights,
            } => {
                let mut constants = vec![len];
                constants.extend(self.place(x));
                constants.push(u32::from(own_weights));
                constants.extend(norm_words(&norm));
                let buffers = [&memory.vectors, self.buffer(x)];
                self.push(Kernel::NormParts, &buffers, constants, Grid::Rows(parts))
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, operation: &Operation) -> Planned {
        let Operation::Add {
            update,
            post,
            factor,
            stream,
            stream_factor,
            next,
            cols,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let (normed, normed_at) = match next {
            Some((_, out)) => (self.buffer(out), self.place(out)),
            None => (&memory.nothing[1], [0; 2]),
        };
        let mut constants = vec![cols];
        constants.extend(self.place(update));
        constants.extend(self.place(stream));
        constants.extend(normed_at);
        constants.push(u32::from(post.is_some()) + 2 * u32::from(next.is_some()));
        constants.extend([factor.to_bits(), stream_factor.to_bits()]);
        for norm in [post, next.map(|(norm, _)| norm)] {
            constants.extend(norm.map_or([NONE, NONE, 0, 0], |norm| norm_words(&norm)));
        }
        let buffers = [
            &memory.vectors,
            self.buffer(update),
            self.buffer(stream),
            normed,
        ];
        self.push(Kernel::Add, &buffers, constants, Grid::Rows(1))
    }

    fn vectors(&mut self, operation: &Operation) -> Planned {
        let Operation::Vectors {
            vectors,
            add,
            stream,
            next,
            cols,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let (normed, normed_at) = match next {
            Some((_, out)) => (self.buffer(out), self.place(out)),
            None => (&memory.nothing[1], [0; 2]),
        };
        let mut constants = vec![cols];
        constants.extend(self.place(vectors));
        constants.extend(self.place(stream));
        constants.extend(normed_at);
        constants.push(u32::from(add) + 2 * u32::from(next.is_some()));
        constants.extend(next.map_or([NONE, NONE, 0, 0], |(norm, _)| norm_words(&norm)));
        let (record, rows) = (&memory.record, self.buffer(vectors));
        let buffers = [&memory.vectors, record, rows, self.buffer(stream), normed];
        self.push(Kernel::Vectors, &buffers, constants, Grid::Vectors)
    }

    fn heads(&mut self, operation: &Operation) -> Planned {
        let Operation::Heads {
            input,
            heads,
            head_dim,
            norm,
            own_weights,
            norm_is_last,
            turn,
            tempered,
            transformed,
            to,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let layer = |cache: crate::operation::CacheId, layer: u32, part: usize| {
            let shape = &self.program.caches[cache.0 as usize];
            let buffer = &memory.caches[cache.0 as usize][layer as usize][part];
            (buffer, [0, 0, shape.kv_heads, shape.page_tokens])
        };
        let (out, places) = match to {
            HeadsTo::Rows(out) => {
                let [at, row] = self.place(out);
                (self.buffer(out), [at, row, 0, 0])
            }
            HeadsTo::Keys(cache, index) => layer(cache, index, 0),
            HeadsTo::Values(cache, index) => layer(cache, index, 1),
        };
        let flags = [
            norm.is_some(),
            own_weights,
            norm.is_some_and(|norm| norm.centered),
            norm_is_last,
            turn.is_some(),
            turn.is_some_and(|turn| turn.adjacent),
            turn.is_some_and(|turn| turn.table == 1),
            tempered,
            !matches!(to, HeadsTo::Rows(_)),
        ];
        let has = flags
            .iter()
            .rev()
            .fold(0, |has, flag| 2 * has + u32::from(*flag));
        let [weight, bias, _, eps] = norm.map_or([NONE; 4], |norm| norm_words(&norm));
        let mut constants = self.place(input).to_vec();
        constants.extend(places);
        constants.extend([has, weight, bias, eps, turn.map_or(0, |turn| turn.dims)]);
        let scale = 1.0 / (transformed as f32).sqrt();
        constants.extend([transformed, scale.to_bits()]);
        let buffers = [&memory.vectors, &memory.record, self.buffer(input), out];
        let kernel = Kernel::Heads {
            head_dim,
            kind: self.kind_near(to),
        };
        self.push(kernel, &buffers, constants, Grid::Rows(heads))
    }

    /// The format of the pages that heads are written to; of rows, the format of keys, so that both take one kernel.
    fn kind_near(&self, to: HeadsTo) -> KvKind {
        let caches = &self.program.caches;
        let cache = match to {
            HeadsTo::Keys(cache, _) | HeadsTo::Values(cache, _) => caches.get(cache.0 as usize),
            HeadsTo::Rows(_) => caches.first(),
        };
        cache.map_or(KvKind::F16, |cache| cache.kind)
    }

    fn attend(&mut self, operation: &Operation) -> Planned {
        let Operation::Attend {
            query,
            heads,
            cache,
            layer,
            scale,
            cap,
            window,
            blocks: sees_blocks,
            sinks,
            out,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let shape = self.program.caches[cache.0 as usize];
        let group = (heads / shape.kv_heads.max(1)).max(1);
        let at_once = heads_at_once(shape.stride(), group);
        let chunks = group.div_ceil(at_once);
        let (window, sinks) = (window.unwrap_or(0), vector(sinks));
        let mut constants = self.place(query).to_vec();
        constants.extend(self.place(out));
        constants.extend([shape.kv_heads, heads, chunks, scale.to_bits()]);
        constants.extend([cap.unwrap_or(0.0).to_bits(), window, sinks]);
        let fits = shape.head_dim <= PROMPT_HEAD_MAX && self.rows == RowSet::All;
        let tiled = fits && !self.is_exact();
        constants.extend([u32::from(tiled) * TILED_ROWS_MIN, u32::from(sees_blocks)]);
        let by_tiles = constants.clone();
        let [keys, values] = &memory.caches[cache.0 as usize][layer as usize];
        let (vectors, record) = (&memory.vectors, &memory.record);
        let (query, written) = (self.buffer(query), self.buffer(out));
        let buffers = [vectors, record, query, keys, values, written, &memory.parts];
        let (head_dim, kind, page_tokens) = (shape.head_dim, shape.kind, shape.page_tokens);
        let kernel = Kernel::Attend {
            head_dim,
            kind,
            page_tokens,
            heads: at_once,
        };
        let (blocks, work) = (shape.kv_heads * chunks, self.work);
        self.push(kernel, &buffers, constants, Grid::Attend { blocks, tiled })?;
        let mut constants = self.place(out).to_vec();
        constants.extend([heads, window, sinks, u32::from(sees_blocks)]);
        let kernel = Kernel::Merge { head_dim, kind };
        let parts = [vectors, record, &memory.parts, written];
        self.push(kernel, &parts, constants, Grid::Merge { heads })?;
        if tiled {
            self.work = work;
            self.attend_by_tiles(&shape, heads, &buffers, by_tiles)?;
        }
        Ok(())
    }

    /// Attention of long spans.
    fn attend_by_tiles(
        &mut self,
        shape: &CacheShape,
        heads: u32,
        buffers: &[&wgpu::Buffer],
        constants: Vec<u32>,
    ) -> Planned {
        let kernel = Kernel::AttendPrompt {
            head_dim: shape.head_dim,
            kind: shape.kind,
            page_tokens: shape.page_tokens,
        };
        let shared = TILE_ROWS / prompt_rows(shape.stride());
        let grid = Grid::Prompts { heads, shared };
        let kernels = [(u32::MAX, kernel)];
        self.push_from(TILED_ROWS_MIN, &kernels, buffers, constants, grid)
    }

    fn activate(&mut self, operation: &Operation) -> Planned {
        let Operation::Activate {
            activation,
            gate,
            up,
            cols,
            out,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let at_out = |at: At| at.buffer == out.buffer;
        let read = |at: At| {
            if at_out(at) {
                &memory.nothing[0]
            } else {
                self.buffer(at)
            }
        };
        let mut constants = vec![cols];
        constants.extend(self.place(gate));
        constants.extend(up.map_or([0; 2], |up| self.place(up)));
        constants.extend(self.place(out));
        let kind = match activation {
            Activation::Silu => 0,
            Activation::Gelu => 1,
            Activation::SquaredRelu => 2,
            Activation::ClampedSwiglu => 3,
            Activation::Sigmoid => 4,
            Activation::Identity => 5,
        };
        let has = u32::from(up.is_some())
            + 2 * u32::from(at_out(gate))
            + 4 * u32::from(up.is_some_and(at_out));
        constants.extend([kind, has]);
        let buffers = [
            read(gate),
            up.map_or(&memory.nothing[0], read),
            self.buffer(out),
        ];
        self.push(
            Kernel::Activate,
            &buffers,
            constants,
            Grid::Rows(cols.div_ceil(256)),
        )
    }

    fn push(
        &mut self,
        kernel: Kernel,
        buffers: &[&wgpu::Buffer],
        constants: Vec<u32>,
        grid: Grid,
    ) -> Planned {
        self.push_all(&[(u32::MAX, kernel)], buffers, constants, grid)
    }

    /// Adds a dispatch by one of several kernels with the same buffers.
    fn push_all(
        &mut self,
        kernels: &[(u32, Kernel)],
        buffers: &[&wgpu::Buffer],
        constants: Vec<u32>,
        grid: Grid,
    ) -> Planned {
        self.push_from(1, kernels, buffers, constants, grid)
    }

    /// As [`Self::push_all`], for batches of at least `rows_min` rows.
    fn push_from(
        &mut self,
        rows_min: u32,
        kernels: &[(u32, Kernel)],
        buffers: &[&wgpu::Buffer],
        constants: Vec<u32>,
        grid: Grid,
    ) -> Planned {
        debug_assert!(BATCH_WORDS + constants.len() <= CONSTANT_WORDS);
        let mut variants = Vec::new();
        for &(rows_max, kernel) in kernels {
            variants.push(Variant {
                rows_max,
                kernel,
                block: kernel.block(),
            });
        }
        let Some(&(_, kernel)) = kernels.first() else {
            return Ok(());
        };
        for variant in &variants {
            self.check_grid(variant, grid)?;
        }
        let buffers = self.device.bind(kernel, buffers)?;
        self.launches.push(Launch {
            work: std::mem::take(&mut self.work),
            rows: self.rows,
            rows_min,
            variants,
            buffers,
            constants,
            grid,
        });
        Ok(())
    }

    /// Rejects a kernel that the largest batch would start with more workgroups in a dimension than the device allows.
    fn check_grid(&self, variant: &Variant<Kernel>, grid: Grid) -> Planned {
        let rows = self.program.rows_max.min(variant.rows_max);
        let parts = self.program.context_max.div_ceil(PART);
        let workgroups = grid.workgroups(variant.block, rows, parts, self.program.rows_max);
        let most = self.device.facts().workgroups_max;
        match workgroups.into_iter().flatten().max() {
            Some(workgroups) if workgroups > most => Err(PrepareError::Workgroups {
                kernel: variant.kernel.name(),
                workgroups,
                most,
            }),
            _ => Ok(()),
        }
    }

    fn buffer(&self, at: At) -> &'a wgpu::Buffer {
        &self.memory.buffers[at.buffer.0 as usize]
    }

    /// First float, and floats between rows.
    fn place(&self, at: At) -> [u32; 2] {
        [
            at.column,
            self.program.buffers[at.buffer.0 as usize].stride(),
        ]
    }

    fn planes(&self, part: &'a MatrixPart) -> [&'a wgpu::Buffer; 3] {
        let nothing = &self.memory.nothing[0];
        [0, 1, 2].map(|plane| part.planes[plane].as_ref().unwrap_or(nothing))
    }
}

/// Units of a row, and elements of a row in each plane, in the types that the kernels give the planes.
fn row_words(matrix: &DeviceMatrix, format: kernels::Format) -> [u32; 4] {
    let [low, high, scales] = matrix.layout.words.map(|words| words as u32);
    let per_element = match kernels::QuantFormat::of(format) {
        None => 4,
        Some(quant) => quant.low as u32 / 2,
    };
    [
        matrix.layout.units() as u32,
        low / per_element.max(1),
        high,
        scales,
    ]
}

fn vector(vector: Option<VectorId>) -> u32 {
    vector.map_or(NONE, |vector| vector.0)
}

fn norm_words(norm: &Norm) -> [u32; 4] {
    [
        vector(norm.weight),
        vector(norm.bias),
        u32::from(norm.centered),
        norm.eps.to_bits(),
    ]
}
