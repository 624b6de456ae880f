//! A model on a device.

mod ahead;
mod block;
mod guess;

use crate::draw_record::draw_bounds;
use crate::load_error::LoadError;
use crate::operation::{BufferId, MatrixId, Program, RowSet};
use crate::options::Options;
use crate::place::Place;
use crate::program::{Outputs, Plan};
use crate::selftest::check_program;
use crate::step::StepRows;
use crate::supports::supports;
use crate::timing::{StepKernel, by_kernel};
use crate::webgpu::loaded::{Loaded, Output};
use crate::{Device, DeviceError, PrepareError};
use ahead::Flights;
use kernels::logits::all_finite;
use kernels::{Isa, Pool, ScanPlan};
use model::{
    AdvanceBlock, Ahead, Batch, Capabilities, DeviceFault, Dims, ExportPages, Forward,
    ForwardError, PageId, Predict, RowAdditions,
};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use weights::adapters::check_adapters;
use weights::config::StateHead;
use weights::parameters::{DescribedMatrix, DescribedReader, Stored, Weights};
use weights::{Adapter, Config, ModelFiles, Packed};

/// Identity of the arithmetic: equal inputs give equal tokens on one device as long as it is equal.
pub const ARITHMETIC: &str = "wgsl 2";

/// A model that is ready to run. Everything on the device is allocated.
pub struct Model {
    files: Arc<ModelFiles>,
    config: Config,
    dims: Dims,
    matrices: Vec<DescribedMatrix>,
    outputs: Outputs,
    /// Buffers that nothing writes, with what is in each of their rows.
    constants: Vec<(BufferId, Vec<f32>)>,
    isa: Isa,
    device: Arc<Device>,
    program: Program,
    page_bytes: usize,
    spans_max: usize,
    /// Number of adapters.
    adapters: usize,
    /// In a cell since pages are exported from a shared model; `None` after the device could not be opened again.
    loaded: RefCell<Option<Loaded>>,
    /// The failure since which the model does nothing.
    fault: Cell<Option<DeviceFault>>,
    step: StepRows,
    /// The rules of states, and their number, in a model with recurrent layers.
    states: Option<(ScanPlan, usize)>,
    place: Place,
    flights: Flights,
    /// The block that was begun.
    block: Option<Batch>,
    /// `(logit rows, vocab)` of the last batch.
    logits: Vec<f32>,
    /// Columns read from the hidden rows: `(hidden rows, columns)`.
    read: Vec<f32>,
    /// `(hidden rows, hidden_dim)` of the last batch.
    hidden: Vec<f32>,
}

impl Model {
    /// As [`Model::load_adapted`], without adapters.
    ///
    /// # Errors
    /// As for [`Model::load_adapted`].
    pub fn load(
        files: Arc<ModelFiles>,
        device: Arc<Device>,
        options: &Options,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        Self::load_adapted((files, &[]), device, options, progress)
    }

    /// Loads a model and the adapters that batches may name, the adapter of number `i` is `adapters[i]`: describes it, checks the kernels on small shapes, allocates everything on the device, and uploads the
    /// weights. The files stay open for [`Forward::recover`]; none of their memory remains. `progress` is called at the beginning and after each matrix.
    ///
    /// # Errors
    /// The files are refused, the device does not run such models, the model does not fit, or the device fails.
    pub fn load_adapted(
        (files, adapters): (Arc<ModelFiles>, &[Adapter]),
        device: Arc<Device>,
        options: &Options,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        options.check()?;
        let mut config = files.config(options.context_max)?;
        if options.mtp {
            config = config.with_mtp()?;
        }
        supports(&config)?;
        options.check_states(&config)?;
        let mut pool = load_pool();
        check_adapters(adapters)?;
        let mut weights = Weights::describe(&files, &config, &mut pool)?;
        weights.describe_adapters(&config, adapters);
        let dims = options.dims(&config, weights.vocab());
        let room = Dims {
            rows_max: options.rows_max.max(options.block_rows),
            ..dims
        };
        let plan = Plan::new(&config, &weights, &room, options, adapters.len());
        let (place, states) = (Place::of(&plan.program), plan.program.states);
        let source = (&*files, &plan.matrices[..], &plan.constants[..]);
        let loaded = prepare(&device, (&plan.program, place), source, &mut pool, progress)?;
        Ok(Self {
            step: StepRows::new(&config, &room, plan.ropes),
            files,
            config,
            dims,
            matrices: plan.matrices,
            outputs: plan.outputs,
            constants: plan.constants,
            isa: Isa::detect(),
            page_bytes: loaded.page_bytes() as usize,
            spans_max: options.spans_max,
            adapters: adapters.len(),
            block: None,
            device,
            flights: Flights::new(draw_bounds(&plan.program)),
            program: plan.program,
            loaded: RefCell::new(Some(loaded)),
            fault: Cell::new(None),
            states: states.map(|states| {
                let states = states.states as usize;
                (ScanPlan::new(states, options.rows_max), states)
            }),
            place,
            logits: Vec::new(),
            read: Vec::new(),
            hidden: Vec::new(),
        })
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Memory on the device by purpose.
    pub fn bytes(&self) -> Place {
        self.place
    }

    #[cfg(test)]
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The device.
    pub fn device(&self) -> Arc<Device> {
        Arc::clone(&self.device)
    }

    /// Computes a batch, whose results are not read, and returns the time of each kernel by the clock of the device, the longest
    /// first. `None` where the device has no clock.
    ///
    /// # Errors
    /// As for [`Forward::forward`], but for numbers that are not finite.
    pub fn time_step(&mut self, batch: &Batch) -> Result<Option<Vec<StepKernel>>, ForwardError> {
        self.check(batch, 0)?;
        self.step.read(batch);
        let times = self.on_device(|loaded| {
            loaded
                .run_timed(self.step.record())
                .map_err(|why| match why {
                    PrepareError::Device(error) => error,
                    other => DeviceError::Failed(other.to_string()),
                })
        })?;
        Ok(times.map(by_kernel))
    }

    /// Checks the kernels of the device, allocates everything, and uploads the weights from the files.
    fn load_again(&self) -> Result<Loaded, LoadError> {
        let source = (&*self.files, &self.matrices[..], &self.constants[..]);
        let (program, pool) = ((&self.program, self.place), &mut load_pool());
        prepare(&self.device, program, source, pool, &mut |_| {})
    }

    /// Does something on the device, unless it has failed; a failure is kept.
    fn on_device<T>(
        &self,
        work: impl FnOnce(&mut Loaded) -> Result<T, DeviceError>,
    ) -> Result<T, ForwardError> {
        if let Some(fault) = self.fault.get() {
            return Err(ForwardError::Device(fault));
        }
        let done = match self.loaded.try_borrow_mut() {
            Ok(mut loaded) => loaded.as_mut().map_or(Err(DeviceError::Lost), work),
            Err(_) => Err(DeviceError::Failed("the device is in use".into())),
        };
        done.map_err(|error| {
            let fault = DeviceFault::from(error);
            self.fault.set(Some(fault));
            ForwardError::Device(fault)
        })
    }

    /// Rejects a batch that violates a bound or a rule; its tokens may be those of the `draws` draws before it.
    fn check(&mut self, batch: &Batch, draws: usize) -> Result<(), ForwardError> {
        batch.check_row_inputs(self.vector_width())?;
        self.check_additions(batch)?;
        batch.check_drawn(&self.dims, draws)?;
        if batch.spans().len() > self.spans_max {
            return Err(ForwardError::BadBatch(
                "there are more than spans_max spans",
            ));
        }
        self.check_states(batch).map_err(ForwardError::BadBatch)
    }

    /// Elements of a vector in place of a token.
    fn vector_width(&self) -> usize {
        self.config.dim * (1 + self.config.deepstack)
    }

    /// Rejects rows that the model does not compute.
    fn check_additions(&self, batch: &Batch) -> Result<(), ForwardError> {
        batch.check_additions(RowAdditions {
            vectors: self.program.vector_rows.is_some(),
            axes: self.config.has_axes(),
        })?;
        let unknown = |last: usize| last >= self.adapters;
        let mut spans = batch.ranges().iter();
        if spans.any(|span| span.adapters.last().is_some_and(unknown)) {
            return Err(ForwardError::BadBatch("an adapter is not loaded"));
        }
        Ok(())
    }

    /// Rejects a batch whose states violate a rule.
    fn check_states(&mut self, batch: &Batch) -> Result<(), &'static str> {
        let Some((plan, _)) = &mut self.states else {
            return Ok(());
        };
        plan.clear();
        for span in batch.spans() {
            let states = span.states.ok_or("a span has no states")?;
            if states.before.is_some() != (span.position > 0) {
                return Err("a state precedes all tokens but the first");
            }
            let rows = span.tokens.len();
            let written = states.written(rows).map(|kept| (kept.tokens, kept.state));
            plan.push(rows, states.before, written)?;
        }
        Ok(())
    }

    /// The hidden states, or what their head gives, from what was read.
    fn read_hidden(&mut self) {
        self.hidden.clear();
        match self.config.state_head {
            Some(StateHead::YesNo) => {
                let answers = self.read.as_chunks::<2>().0.iter();
                self.hidden.extend(answers.map(|[yes, no]| yes - no));
            }
            _ => self.hidden.extend_from_slice(&self.read),
        }
    }
}

/// Longest time in which the memory of a lost device is awaited.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Drops what a failed device has on a thread of its own: a driver that gives no answer would block without end.
fn release(old: impl Send + 'static) {
    let (done, released) = mpsc::sync_channel(1);
    let dropping = move || {
        drop(old);
        // No one waits after that time.
        _ = done.send(());
    };
    if thread::Builder::new()
        .name("gpu-release".into())
        .spawn(dropping)
        .is_ok()
    {
        _ = released.recv_timeout(RELEASE_MAX);
    }
}

/// Threads that convert tensors while a model is loaded.
fn load_pool() -> Pool {
    Pool::new(std::thread::available_parallelism().map_or(1, usize::from))
}

/// Inputs that are written to a program: matrices of files, and rows of buffers that nothing writes.
type ProgramSource<'a> = (
    &'a ModelFiles,
    &'a [DescribedMatrix],
    &'a [(BufferId, Vec<f32>)],
);

/// Checks the kernels of a program, allocates it, and uploads its matrices and constants.
fn prepare(
    device: &Arc<Device>,
    (program, place): (&Program, Place),
    (files, matrices, constants): ProgramSource<'_>,
    pool: &mut Pool,
    progress: &mut dyn FnMut(Packed),
) -> Result<Loaded, LoadError> {
    check_kernels(device, (program, place))?;
    let loaded = Loaded::new(Arc::clone(device), program.clone());
    let mut loaded = loaded.map_err(|error| LoadError::of_program(error, place))?;
    let written = upload(&mut loaded, files, matrices, pool, progress);
    let written = written.and_then(|()| write_constants(&loaded, constants));
    written.map_err(|error| error.in_place(place))?;
    device.end_load();
    Ok(loaded)
}

/// Runs the kernels of a program on small shapes, compared with their definitions.
fn check_kernels(
    device: &Arc<Device>,
    (program, place): (&Program, Place),
) -> Result<(), LoadError> {
    let checked = check_program(device, program);
    // A device that failed meanwhile says nothing about its kernels.
    let state = device.check();
    if device.is_out_of_memory() {
        let why = checked.err().and_then(|failed| failed.error);
        let why = why.unwrap_or_else(|| DeviceError::OutOfMemory.to_string());
        return Err(LoadError::too_large(&why, place));
    }
    state?;
    checked.map_err(|failed| LoadError::SelfTest {
        kernel: failed.name,
        why: failed.error.unwrap_or_default(),
    })
}

/// Fills the buffers that nothing writes.
fn write_constants(loaded: &Loaded, constants: &[(BufferId, Vec<f32>)]) -> Result<(), LoadError> {
    for (buffer, row) in constants {
        let rows = loaded.program().buffers[buffer.0 as usize].rows as usize;
        loaded.write_buffer(*buffer, &row.repeat(rows));
    }
    Ok(loaded.device().check()?)
}

/// Uploads all matrices in the order of the program.
fn upload(
    loaded: &mut Loaded,
    files: &ModelFiles,
    matrices: &[DescribedMatrix],
    pool: &mut Pool,
    progress: &mut dyn FnMut(Packed),
) -> Result<(), LoadError> {
    let mut done = Packed {
        bytes_total: matrices.iter().map(|matrix| matrix.bytes() as u64).sum(),
        tensors_total: matrices.len() as u64,
        ..Packed::default()
    };
    progress(done);
    let mut reader = DescribedReader::new(files, pool);
    for (id, matrix) in (0..).map(MatrixId).zip(matrices) {
        let (mut row, row_bytes) = (0, matrix.row_bytes());
        reader.read(matrix, |rows| {
            loaded.upload(id, row, rows)?;
            row += (rows.len() / row_bytes) as u32;
            Ok::<_, LoadError>(())
        })?;
        done.bytes_done += matrix.bytes() as u64;
        done.tensors_done += 1;
        progress(done);
    }
    Ok(())
}

impl Options {
    pub(crate) fn dims(&self, config: &Config, vocab: usize) -> Dims {
        Dims {
            vocab,
            context_max: config.context_max,
            page_tokens: self.page_tokens,
            pages: self.pages,
            rows_max: self.rows_max,
            logit_rows_max: self.logit_rows_max,
        }
    }
}

impl Forward for Model {
    fn dims(&self) -> Dims {
        self.dims
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        if self.flights.are_in_flight() {
            return Err(ForwardError::BadBatch("a batch is in flight"));
        }
        self.check(batch, 0)?;
        self.hidden.clear();
        if batch.is_empty() {
            return Ok(&mut []);
        }
        self.step.read(batch);
        let vocab = self.dims.vocab;
        let hidden_cols = match self.config.state_head {
            Some(StateHead::YesNo) => 2,
            _ => self.config.dim,
        };
        let mut logits = std::mem::take(&mut self.logits);
        let mut states = std::mem::take(&mut self.read);
        logits.resize(self.step.rows(RowSet::Logits) * vocab, 0.0);
        states.resize(self.step.rows(RowSet::Hidden) * hidden_cols, 0.0);
        let outputs = &mut [
            Output {
                buffer: self.outputs.logits,
                rows: &mut logits,
            },
            Output {
                buffer: self.outputs.hidden,
                rows: &mut states,
            },
        ];
        let ran = self.on_device(|loaded| {
            loaded.write_vectors(batch.vectors());
            loaded.run(self.step.record(), outputs)
        });
        (self.logits, self.read) = (logits, states);
        ran?;
        self.read_hidden();
        let mut rows = self.logits.chunks_exact(vocab);
        match rows.position(|row| !all_finite(self.isa, row)) {
            None => Ok(&mut self.logits),
            Some(row) => Err(ForwardError::NotFinite { row }),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_causal: self.config.is_causal(),
            states: self.states.as_ref().map_or(0, |(_, states)| *states),
            adapters: self.adapters,
            hidden_dim: self.config.hidden_dim(),
            axes: self.config.has_axes(),
        }
    }

    fn hidden(&self) -> &[f32] {
        &self.hidden
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        // A failure is reported by the next batch.
        _ = self.on_device(|loaded| loaded.copy_page(from, to));
    }

    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        Some(self)
    }

    fn blocks(&mut self) -> Option<&mut dyn AdvanceBlock> {
        if self.config.has_blocks() && self.program.vector_rows.is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn mtp_head(&mut self) -> Option<&mut dyn Predict> {
        if self.config.mtp { Some(self) } else { None }
    }

    fn recover(&mut self) -> Result<(), ForwardError> {
        self.flights.lose();
        self.block = None;
        // The memory of the device is given back first: it may not hold the model twice.
        if let Some(old) = self.loaded.take() {
            release(old);
        }
        self.fault.set(Some(DeviceFault::Lost));
        if !self.files.are_unchanged() {
            // The streams began with other weights.
            return Err(ForwardError::Device(DeviceFault::Failed));
        }
        let lost = ForwardError::Device(DeviceFault::Lost);
        let device = self.device.reopen().map_err(|_| lost.clone())?;
        let (then, now) = (self.device.facts(), device.facts());
        if (&then.name, &then.driver) != (&now.name, &now.driver) {
            return Err(lost);
        }
        release(std::mem::replace(&mut self.device, Arc::new(device)));
        let loaded = self.load_again().map_err(|why| {
            let fault = why.fault();
            self.fault.set(Some(fault));
            ForwardError::Device(fault)
        })?;
        self.loaded = RefCell::new(Some(loaded));
        self.fault.set(None);
        Ok(())
    }

    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        Some(self)
    }
}

impl ExportPages for Model {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn export_page(&self, page: PageId, bytes: &mut [u8]) -> Result<(), ForwardError> {
        self.on_device(|loaded| loaded.export_page(page, bytes))
    }

    fn import_page(&mut self, page: PageId, bytes: &[u8]) {
        _ = self.on_device(|loaded| loaded.import_page(page, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::device;
    use kernels::KvKind;
    use synth::{Mix, SynthSpec};
    use weights::gguf::Gguf;

    #[test]
    fn memory_is_known_before_it_is_allocated() {
        let Some(device) = device() else { return };
        let options = Options {
            context_max: None,
            page_tokens: 16,
            pages: 9,
            rows_max: 20,
            logit_rows_max: 3,
            spans_max: 20,
            draws_max: 8,
            kv: KvKind::F16,
            states: 5,
            block_rows: 0,
            mtp: false,
            vectors: true,
            exact: false,
        };
        for (preset, mix) in [
            ("small-llama", "Q4_K_M"),
            ("tiny-gemma4", "Q8_0"),
            ("tiny-gpt-oss", "MXFP4_MOE"),
            ("tiny-qwen35", "BF16"),
        ] {
            let spec = SynthSpec::preset(preset).expect("a preset");
            let mix = Mix::from_name(mix).expect("a mix");
            let bytes = SynthSpec { mix, ..spec }.to_bytes().expect("a model");
            let files = Gguf::from_bytes(bytes).expect("a file");
            let mut seen = Vec::new();
            let mut progress = |packed: Packed| seen.push(packed);
            let files = Arc::new(ModelFiles::from(files));
            let model = Model::load(files, Arc::clone(&device), &options, &mut progress);
            let model = model.unwrap_or_else(|why| panic!("{preset}: {why}"));
            let allocated = model
                .loaded
                .borrow()
                .as_ref()
                .map_or(0, Loaded::device_bytes);
            assert_eq!(model.bytes().bytes(), allocated, "{preset}");
            let last = seen.last().expect("progress");
            assert_eq!(last.bytes_done, last.bytes_total, "{preset}");
            assert_eq!(last.tensors_done, last.tensors_total, "{preset}");
            assert!(
                seen.is_sorted_by_key(|packed| packed.bytes_done),
                "{preset}"
            );
        }
    }
}
