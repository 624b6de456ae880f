//! A device that is open.

use super::adapters::{DeviceFacts, IMMEDIATE_BYTES, adapters, facts, ready};
use super::blocks::Blocks;
use super::matrix_units::{FEATURES as MATRIX_FEATURES, MatrixUnits};
use super::pipelines::Pipelines;
use super::selection::{Kind, Selection};
use super::work::SUBMIT_WORK_MAX;
use crate::selftest::Check;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::DeviceFault;
use wgpu::{Adapter, ErrorFilter, Features, Limits};

/// Why a device is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// There is no such device.
    #[error("no device {wanted}: {}", found_list(.found))]
    None {
        /// What was asked for.
        wanted: String,
        /// Names of the devices of this kind that there are.
        found: Vec<String>,
    },
    /// The device or its driver lacks something.
    #[error("{device} cannot run models: {what}")]
    Missing {
        /// Name and driver.
        device: String,
        /// The feature or limit that the device lacks.
        what: String,
    },
    /// The driver refuses.
    #[error("the driver of {device} refuses: {why}")]
    Refused {
        /// Name and driver.
        device: String,
        /// The driver's words.
        why: String,
    },
}

fn found_list(found: &[String]) -> String {
    match found {
        [] => "no driver reports one".into(),
        found => format!("there are {}", found.join(", ")),
    }
}

/// Why the device does not do what it was asked for while a program is loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no memory left.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// The device or its driver reported an error.
    #[error("the device failed: {0}")]
    Failed(String),
    /// The device is gone.
    #[error("the device is lost")]
    Lost,
}

impl From<DeviceError> for DeviceFault {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory => Self::OutOfMemory,
            DeviceError::Failed(_) => Self::Failed,
            DeviceError::Lost => Self::Lost,
        }
    }
}

/// Numbers of calls since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Submits of commands.
    pub submits: u64,
    /// Waits for the device.
    pub waits: u64,
    /// Buffers mapped for reading.
    pub maps: u64,
    /// Buffers created.
    pub buffers: u64,
    /// Kernels started.
    pub dispatches: u64,
}

/// Calls since the device was opened.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) submits: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) maps: AtomicU64,
    buffers: AtomicU64,
    dispatches: AtomicU64,
    /// Multiply-adds of all submits, and of those that have been waited for.
    pub(super) work: AtomicU64,
    pub(super) work_done: AtomicU64,
}

/// What the driver reported outside of calls.
#[derive(Default)]
pub(super) struct Reports {
    pub(super) lost: AtomicBool,
    failed: Mutex<Option<DeviceError>>,
    /// Whether the driver had no memory, ever.
    out_of_memory: AtomicBool,
}

impl Reports {
    fn failed(&self, error: wgpu::Error) {
        let error = self.noted(error);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
    }

    /// An error, which is remembered if there was no memory.
    fn noted(&self, error: wgpu::Error) -> DeviceError {
        let error = DeviceError::from(error);
        if error == DeviceError::OutOfMemory {
            self.out_of_memory.store(true, Ordering::Release);
        }
        error
    }

    /// Why the device is lost: wgpu gives one up that has no memory for what it needs itself.
    pub(super) fn loss(&self) -> DeviceError {
        if self.out_of_memory.load(Ordering::Acquire) {
            DeviceError::OutOfMemory
        } else {
            DeviceError::Lost
        }
    }
}

impl From<wgpu::Error> for DeviceError {
    fn from(error: wgpu::Error) -> Self {
        match error {
            wgpu::Error::OutOfMemory { .. } => Self::OutOfMemory,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// An open device.
pub struct Device {
    selection: Selection,
    facts: DeviceFacts,
    device: wgpu::Device,
    queue: wgpu::Queue,
    pub(super) reports: Arc<Reports>,
    pub(super) counters: Counters,
    pipelines: Mutex<Pipelines>,
    /// Checks of kernels that the device has passed.
    passed: Mutex<HashSet<Check>>,
    /// Whether the compiler changes the order of sums from kernel to kernel.
    reorders_sums: AtomicBool,
    /// Whether matrix units have computed something else than they should.
    distrusts_matrix_units: AtomicBool,
    /// Whether a kernel for many rows has.
    distrusts_tiles: AtomicBool,
    /// Why kernels are not used.
    replaced: Mutex<Vec<String>>,
    submit_work_max: u64,
    /// Form of blocks in kernels for this device.
    blocks: Blocks,
    /// Whether a program is loaded.
    pub(super) is_loaded: AtomicBool,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// There is none, or it lacks what kernels need.
    pub fn open(selection: &Selection) -> Result<Self, Absent> {
        let adapters = adapters(selection.kind);
        let allowed = |adapter: &&Adapter| {
            selection.kind == Kind::Vulkan
                || selection.index.is_some()
                || !facts(adapter).is_processor
        };
        let mut usable = adapters.iter().filter(allowed);
        let Some(adapter) = usable.nth(selection.index.unwrap_or(0)) else {
            let wanted = Selection {
                kind: match selection.kind {
                    Kind::Auto => Kind::Gpu,
                    kind => kind,
                },
                ..*selection
            };
            return Err(Absent::None {
                wanted: wanted.to_string(),
                found: adapters.iter().map(|found| facts(found).name).collect(),
            });
        };
        let mut facts = facts(adapter);
        let device = format!("{} ({})", facts.name, facts.driver);
        if let Some(what) = facts.missing.clone() {
            return Err(Absent::Missing { device, what });
        }
        let mut opened = ready(adapter.request_device(&descriptor(adapter, &facts)));
        if !matches!(opened, Some(Ok(_))) && facts.matrix_units.take().is_some() {
            opened = ready(adapter.request_device(&descriptor(adapter, &facts)));
        }
        let refused = |why: String| Absent::Refused { device, why };
        let (device, queue) = match opened {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => return Err(refused(error.to_string())),
            None => return Err(refused("no answer".into())),
        };
        Ok(Self {
            selection: *selection,
            blocks: if facts.is_processor {
                Blocks::Loops
            } else {
                Blocks::Repeated
            },
            facts,
            reports: listen(&device),
            device,
            queue,
            counters: Counters::default(),
            pipelines: Mutex::default(),
            passed: Mutex::default(),
            reorders_sums: AtomicBool::new(false),
            distrusts_matrix_units: AtomicBool::new(false),
            distrusts_tiles: AtomicBool::new(false),
            replaced: Mutex::default(),
            is_loaded: AtomicBool::new(false),
            submit_work_max: SUBMIT_WORK_MAX,
        })
    }

    /// The device without a clock for kernels.
    #[cfg(test)]
    pub(crate) fn without_clock(mut self) -> Self {
        self.facts.has_timestamps = false;
        self
    }

    /// The device with the kernels of a card.
    #[cfg(test)]
    pub(crate) fn with_kernels_of_cards(mut self) -> Self {
        self.blocks = Blocks::Repeated;
        self
    }

    /// The device with smaller buffers.
    #[cfg(test)]
    pub(crate) fn with_binding_bytes_max(mut self, bytes: u64) -> Self {
        self.facts.binding_bytes_max = bytes;
        self
    }

    /// The device with fewer workgroups in a dimension.
    #[cfg(test)]
    pub(crate) fn with_workgroups_max(mut self, workgroups: u32) -> Self {
        self.facts.workgroups_max = workgroups;
        self
    }

    /// The device with shorter submits.
    #[cfg(test)]
    pub(crate) fn with_submit_work_max(mut self, work: u64) -> Self {
        self.submit_work_max = work;
        self
    }

    /// Opens the device that was selected once more, as after a loss.
    ///
    /// # Errors
    /// As for [`Device::open`].
    pub fn reopen(&self) -> Result<Self, Absent> {
        Self::open(&self.selection)
    }

    /// Properties of the device that the driver reports.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Numbers of calls since the device was opened.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            submits: of(&self.counters.submits),
            waits: of(&self.counters.waits),
            maps: of(&self.counters.maps),
            buffers: of(&self.counters.buffers),
            dispatches: of(&self.counters.dispatches),
        }
    }

    pub(crate) fn pipelines(&self) -> MutexGuard<'_, Pipelines> {
        let pipelines = self.pipelines.lock();
        pipelines.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether kernels have been checked.
    pub(crate) fn has_passed(&self, check: Check) -> bool {
        let passed = self.passed.lock();
        let passed = passed.unwrap_or_else(PoisonError::into_inner);
        passed.contains(&check)
    }

    /// Whether products of the same row have had other bits in kernels for other numbers of rows. Known after the check of
    /// products.
    pub fn reorders_sums(&self) -> bool {
        self.reorders_sums.load(Ordering::Relaxed)
    }

    /// Remembers that sums are reordered.
    pub(crate) fn reorder_sums(&self) {
        self.reorders_sums.store(true, Ordering::Relaxed);
    }

    /// The matrix units that kernels use.
    pub(crate) fn matrix_units(&self) -> Option<MatrixUnits> {
        let is_trusted = !self.distrusts_matrix_units.load(Ordering::Relaxed);
        self.facts.matrix_units.filter(|_| is_trusted)
    }

    /// Uses matrix units no more.
    pub(crate) fn distrust_matrix_units(&self) {
        self.distrusts_matrix_units.store(true, Ordering::Relaxed);
    }

    /// Whether batches of many rows are computed by the kernels of few, since a kernel for many rows failed its check.
    pub fn distrusts_tiles(&self) -> bool {
        self.distrusts_tiles.load(Ordering::Relaxed)
    }

    /// Uses no kernel for many rows any more.
    pub(crate) fn distrust_tiles(&self) {
        self.distrusts_tiles.store(true, Ordering::Relaxed);
    }

    /// Kernels that failed their check, each with the reason; simpler ones compute instead.
    pub fn replaced_kernels(&self) -> Vec<String> {
        let replaced = self.replaced.lock();
        replaced.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a kernel that is not used, and why.
    pub(crate) fn note_replaced(&self, kernel: String) {
        let replaced = self.replaced.lock();
        let mut replaced = replaced.unwrap_or_else(PoisonError::into_inner);
        replaced.push(kernel);
    }

    /// Remembers that kernels are right.
    pub(crate) fn pass(&self, check: Check) {
        let passed = self.passed.lock();
        let mut passed = passed.unwrap_or_else(PoisonError::into_inner);
        passed.insert(check);
    }

    pub(crate) fn raw(&self) -> &wgpu::Device {
        &self.device
    }

    pub(crate) fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Form of blocks in kernels for this device.
    pub(crate) fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Multiply-adds of a submit, at most.
    pub(super) fn submit_work_max(&self) -> u64 {
        self.submit_work_max
    }

    pub(crate) fn count_dispatches(&self, dispatches: u64) {
        let counter = &self.counters.dispatches;
        counter.fetch_add(dispatches, Ordering::Relaxed);
    }

    pub(crate) fn count_buffer(&self) {
        self.counters.buffers.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `work`, and returns the first error that it made.
    pub(crate) fn checked<T>(
        &self,
        work: impl FnOnce(&wgpu::Device) -> T,
    ) -> Result<T, DeviceError> {
        let filters = [
            ErrorFilter::OutOfMemory,
            ErrorFilter::Validation,
            ErrorFilter::Internal,
        ];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let done = work(&self.device);
        let mut first = None;
        for scope in scopes.into_iter().rev() {
            first = first.or(ready(scope.pop()).flatten());
        }
        match first {
            None => self.check().map(|()| done),
            Some(error) => Err(self.reports.noted(error)),
        }
    }

    /// Whether the driver has had no memory for something since the device was opened. What was made before may lack parts.
    pub fn is_out_of_memory(&self) -> bool {
        self.reports.out_of_memory.load(Ordering::Acquire)
    }

    /// Bytes that the driver has given, with what is not in use; 0 where that is not counted.
    pub(crate) fn held_bytes(&self) -> u64 {
        let report = self.device.generate_allocator_report();
        report.map_or(0, |report| report.total_reserved_bytes)
    }

    /// A shader of ours, without checks of indices and of the length of loops.
    #[expect(unsafe_code, reason = "the only way to a shader without checks")]
    pub(crate) fn shader(&self, source: String) -> wgpu::ShaderModule {
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(source.into()),
        };
        let checks = wgpu::ShaderRuntimeChecks::unchecked();
        // SAFETY: the kernels end their loops and index within their buffers: sizes are those of the program that the buffers
        // were made for, and rows, pages and tokens of a batch are checked before a record is made of them.
        unsafe { self.device.create_shader_module_trusted(descriptor, checks) }
    }

    /// What the driver reported since the last call.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if self.reports.lost.load(Ordering::Acquire) {
            return Err(self.reports.loss());
        }
        let failed = &self.reports.failed;
        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), Err)
    }

    /// Gives the device up, as a driver does that resets it: every later call fails.
    pub fn lose(&self) {
        self.device.destroy();
        self.reports.lost.store(true, Ordering::Release);
    }
}

/// Options of an opened device.
#[expect(unsafe_code, reason = "the only way to matrix units")]
fn descriptor(adapter: &Adapter, facts: &DeviceFacts) -> wgpu::DeviceDescriptor<'static> {
    let required_limits = Limits {
        max_immediate_size: IMMEDIATE_BYTES,
        ..adapter.limits()
    };
    let mut features = Features::IMMEDIATES;
    features.set(Features::TIMESTAMP_QUERY, facts.has_timestamps);
    let plain = wgpu::DeviceDescriptor {
        required_features: features,
        required_limits,
        ..Default::default()
    };
    match facts.matrix_units {
        None => plain,
        Some(_) => wgpu::DeviceDescriptor {
            required_features: features | MATRIX_FEATURES,
            // SAFETY: shaders are the only users of the feature: they load and store squares within their workgroup memory, and
            // all subgroups of a workgroup multiply together. Whether a driver computes what they say is checked at load.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..plain
        },
    }
}

/// Collects what the driver reports outside of calls.
fn listen(device: &wgpu::Device) -> Arc<Reports> {
    let reports = Arc::new(Reports::default());
    let to = Arc::clone(&reports);
    device.on_uncaptured_error(Arc::new(move |error| to.failed(error)));
    let to = Arc::clone(&reports);
    device.set_device_lost_callback(move |_, _| to.lost.store(true, Ordering::Release));
    reports
}
