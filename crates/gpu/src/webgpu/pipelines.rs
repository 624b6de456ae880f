//! Kernels compiled for an open device, each once.

use super::adapters::IMMEDIATE_BYTES;
use super::device::{Device, DeviceError};
use super::sources::Kernel;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Threads that compile and check kernels, at most.
const THREADS_MAX: usize = 8;

/// A kernel that is compiled, or that a thread compiles.
type Compiled = OnceLock<Result<wgpu::ComputePipeline, KernelError>>;

/// Kernels, each compiled once, and the layouts of their buffers.
#[derive(Default)]
pub(crate) struct Pipelines {
    compiled: HashMap<Kernel, Arc<Compiled>>,
    layouts: HashMap<&'static [bool], wgpu::BindGroupLayout>,
}

/// A kernel that the driver does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}`: {error}")]
pub struct KernelError {
    /// The kernel.
    pub kernel: String,
    /// What the driver says.
    pub error: DeviceError,
}

impl Device {
    /// A kernel, which is compiled if it is not yet; one that another thread compiles is awaited.
    pub(crate) fn kernel(&self, kernel: Kernel) -> Result<wgpu::ComputePipeline, KernelError> {
        let (layout, compiled) = {
            let mut pipelines = self.pipelines();
            let layout = pipelines.layout(self, kernel);
            (
                layout,
                Arc::clone(pipelines.compiled.entry(kernel).or_default()),
            )
        };
        let compile = || {
            let compiled = self.compile(kernel, &layout);
            compiled.map_err(|error| KernelError {
                kernel: kernel.name(),
                error,
            })
        };
        compiled.get_or_init(compile).clone()
    }

    /// The name of a compiled kernel.
    pub(super) fn kernel_name(&self, pipeline: &wgpu::ComputePipeline) -> String {
        let pipelines = self.pipelines();
        let mut compiled = pipelines.compiled.iter();
        let is_same =
            |compiled: &Compiled| matches!(compiled.get(), Some(Ok(found)) if found == pipeline);
        let found = compiled.find(|(_, compiled)| is_same(compiled));
        found.map_or_else(String::new, |(kernel, _)| kernel.name())
    }

    /// Names of the variants of [`Kernel`] of which one was compiled.
    #[cfg(test)]
    pub(crate) fn compiled_kernels(&self) -> std::collections::BTreeSet<String> {
        let pipelines = self.pipelines();
        let names = pipelines
            .compiled
            .keys()
            .map(|kernel| format!("{kernel:?}"));
        let words = names.map(|name| name.split(' ').next().unwrap_or_default().to_owned());
        words.collect()
    }

    /// Compiles these kernels, by several threads.
    ///
    /// # Errors
    /// One that is not compiled.
    pub(crate) fn compile_all(&self, kernels: &[Kernel]) -> Result<(), KernelError> {
        let compiled = in_parallel(kernels, |kernel| self.kernel(*kernel).map(drop));
        compiled.into_iter().collect()
    }

    /// The buffers of a kernel, bound once for all its dispatches.
    pub(crate) fn bind(
        &self,
        kernel: Kernel,
        buffers: &[&wgpu::Buffer],
    ) -> Result<wgpu::BindGroup, DeviceError> {
        let layout = self.pipelines().layout(self, kernel);
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        self.checked(|device| {
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &entries,
            })
        })
    }

    fn compile(
        &self,
        kernel: Kernel,
        layout: &wgpu::BindGroupLayout,
    ) -> Result<wgpu::ComputePipeline, DeviceError> {
        let module = self.checked(|_| self.shader(kernel.source(self.blocks())))?;
        self.checked(|device| {
            let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(layout)],
                immediate_size: IMMEDIATE_BYTES,
            });
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            })
        })
    }
}

/// Results of work for each of the items, in their order, by several threads.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(THREADS_MAX).min(items.len());
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((item, result)) = items.get(at).zip(results.get(at)) else {
                        return;
                    };
                    let done = work(item);
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                }
            });
        }
    });
    let results = results.into_iter();
    let results = results.map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    results.flatten().collect()
}

impl Pipelines {
    /// The layout of a kernel's buffers.
    fn layout(&mut self, device: &Device, kernel: Kernel) -> wgpu::BindGroupLayout {
        let bindings = kernel.bindings();
        let made = self.layouts.entry(bindings);
        let made = made.or_insert_with(|| {
            let entries: Vec<_> = (0..)
                .zip(bindings)
                .map(|(binding, &read_only)| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: wgpu::BufferBindingType::Storage { read_only },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let descriptor = wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            };
            device.raw().create_bind_group_layout(&descriptor)
        });
        made.clone()
    }
}
