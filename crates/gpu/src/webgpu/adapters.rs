//! Adapters: which devices there are, and what their drivers report.

use super::matrix_units::MatrixUnits;
use super::selection::Kind;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use wgpu::{
    Adapter, Backend, DeviceType, Features, Instance, InstanceDescriptor, InstanceFlags, Limits,
    MemoryBudgetThresholds,
};

/// Bytes of the constants of one dispatch.
pub(super) const IMMEDIATE_BYTES: u32 = 128;

/// Bytes of the largest buffer that kernels read: they count words in 32 bits, and drivers bytes.
const BINDING_BYTES_MAX: u64 = (1 << 32) - 16;

/// The class of a processor.
pub(super) const PROCESSOR: &str = "processor";

/// Buffers of the largest kernel.
const BINDINGS_MIN: u32 = 8;

/// Bytes of workgroup memory of the largest kernel.
const WORKGROUP_BYTES_MIN: u32 = 20 << 10;

/// Threads of the largest workgroup.
const WORKGROUP_THREADS_MIN: u32 = 256;

/// Percent of the memory that a driver reports as free, above which it refuses buffers instead of losing the device.
const MEMORY_PERCENT_MAX: u8 = 90;

/// The devices that there are, of all interfaces, those that run models fastest first; a processor is last.
pub fn devices() -> Vec<DeviceFacts> {
    adapters(Kind::Gpu).iter().map(facts).collect()
}

/// Properties of a device that the driver reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Name of the device.
    pub name: String,
    /// Interface: vulkan, metal or dx12.
    pub interface: &'static str,
    /// Driver and its version.
    pub driver: String,
    /// Kind of device: discrete, integrated, virtual, other or processor.
    pub class: &'static str,
    /// Whether the device is a processor.
    pub is_processor: bool,
    /// Bytes of the largest buffer that a kernel may read, less than 4 GiB.
    pub binding_bytes_max: u64,
    /// Bytes of the largest buffer.
    pub buffer_bytes_max: u64,
    /// Bytes of the device's memory, where its driver reports them.
    pub memory_bytes: Option<u64>,
    /// Workgroups of a kernel in each dimension.
    pub workgroups_max: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes_max: u32,
    /// Threads of the smallest and of the largest subgroup.
    pub subgroup: [u32; 2],
    /// Whether kernels may compute with f16.
    pub has_f16: bool,
    /// Whether the device has a clock that a pass of kernels may read.
    pub has_timestamps: bool,
    /// Matrix units that products of many rows run on; `None`: there are none that the kernels use.
    pub matrix_units: Option<MatrixUnits>,
    /// The feature or limit that models need and the device lacks.
    pub missing: Option<String>,
}

/// The adapters of a kind; processors last.
pub(super) fn adapters(kind: Kind) -> Vec<Adapter> {
    let instance = Instance::new(InstanceDescriptor {
        backends: kind.backends(),
        flags: InstanceFlags::empty(),
        memory_budget_thresholds: MemoryBudgetThresholds {
            for_resource_creation: Some(MEMORY_PERCENT_MAX),
            for_device_loss: None,
        },
        ..InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = ready(instance.enumerate_adapters(kind.backends())).unwrap_or_default();
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    adapters
}

/// The properties of an adapter.
pub(super) fn facts(adapter: &Adapter) -> DeviceFacts {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    DeviceFacts {
        name: info.name,
        interface: match info.backend {
            Backend::Metal => "metal",
            Backend::Dx12 => "dx12",
            _ => "vulkan",
        },
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        class: match info.device_type {
            DeviceType::DiscreteGpu => "discrete",
            DeviceType::IntegratedGpu => "integrated",
            DeviceType::VirtualGpu => "virtual",
            DeviceType::Other => "other",
            DeviceType::Cpu => PROCESSOR,
        },
        is_processor: info.device_type == DeviceType::Cpu,
        binding_bytes_max: limits
            .max_storage_buffer_binding_size
            .min(BINDING_BYTES_MAX),
        buffer_bytes_max: limits.max_buffer_size,
        memory_bytes: memory_bytes(adapter),
        workgroups_max: limits.max_compute_workgroups_per_dimension,
        workgroup_bytes_max: limits.max_compute_workgroup_storage_size,
        subgroup: [info.subgroup_min_size, info.subgroup_max_size],
        has_f16: adapter.features().contains(Features::SHADER_F16),
        has_timestamps: adapter.features().contains(Features::TIMESTAMP_QUERY),
        matrix_units: MatrixUnits::of(adapter),
        missing: missing(adapter.features(), &limits),
    }
}

/// Bytes of the largest memory that is the device's own, by Vulkan.
#[cfg(any(target_os = "linux", target_os = "windows"))]
#[expect(unsafe_code, reason = "the only way to the sizes of memories")]
fn memory_bytes(adapter: &Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: nothing of the adapter is destroyed, and it outlives what is read of it.
    let vulkan = unsafe { adapter.as_hal::<wgpu::hal::vulkan::Api>() }?;
    let instance = vulkan.shared_instance().raw_instance();
    // SAFETY: the handle is that of a device of this instance.
    let memory =
        unsafe { instance.get_physical_device_memory_properties(vulkan.raw_physical_device()) };
    let heaps = memory.memory_heaps_as_slice().iter();
    let own = heaps.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0);
    own.map(|heap| heap.size).max()
}

/// Bytes of the largest memory that is the device's own: unknown here.
#[cfg(not(any(target_os = "linux", target_os = "windows")))]
fn memory_bytes(_: &Adapter) -> Option<u64> {
    None
}

/// The first thing that kernels need and the device lacks.
fn missing(features: Features, limits: &Limits) -> Option<String> {
    if !features.contains(Features::IMMEDIATES) {
        return Some("kernels get their constants as immediates, which the driver lacks".into());
    }
    let needed = [
        (
            "bytes of immediates",
            limits.max_immediate_size,
            IMMEDIATE_BYTES,
        ),
        (
            "storage buffers of a kernel",
            limits.max_storage_buffers_per_shader_stage,
            BINDINGS_MIN,
        ),
        (
            "bytes of workgroup memory",
            limits.max_compute_workgroup_storage_size,
            WORKGROUP_BYTES_MIN,
        ),
        (
            "threads of a workgroup",
            limits.max_compute_invocations_per_workgroup,
            WORKGROUP_THREADS_MIN,
        ),
    ];
    let missing = needed.iter().find(|(_, given, needed)| given < needed);
    missing.map(|(what, given, needed)| format!("{given} {what}, {needed} are needed"))
}

/// The result of a future that wgpu has ready at once on each system but the web.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}
