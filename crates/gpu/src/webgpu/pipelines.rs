//! Kernels compiled for an open device, each once.

use super::adapters::IMMEDIATE_BYTES;
use super::device::{Device, DeviceError};
use super::sources::Kernel;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that compile kernels, at most.
const THREADS_MAX: usize = 8;

/// Compiled kernels, and the layouts of their buffers.
#[derive(Default)]
pub(crate) struct Pipelines {
    compiled: HashMap<Kernel, wgpu::ComputePipeline>,
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
    /// A kernel, which is compiled if it is not yet.
    pub(crate) fn kernel(&self, kernel: Kernel) -> Result<wgpu::ComputePipeline, KernelError> {
        let layout = {
            let mut pipelines = self.pipelines();
            if let Some(compiled) = pipelines.compiled.get(&kernel) {
                return Ok(compiled.clone());
            }
            pipelines.layout(self, kernel)
        };
        let compiled = self.compile(kernel, &layout).map_err(|error| KernelError {
            kernel: kernel.name(),
            error,
        })?;
        self.pipelines().compiled.insert(kernel, compiled.clone());
        Ok(compiled)
    }

    /// Compiles these kernels, by several threads.
    ///
    /// # Errors
    /// One that is not compiled.
    pub(crate) fn compile_all(&self, kernels: &[Kernel]) -> Result<(), KernelError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(THREADS_MAX).min(kernels.len());
        let next = AtomicUsize::new(0);
        let compile = || {
            while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.kernel(*kernel)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(compile)).collect();
            let done = running.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            done.collect()
        })
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
        let module = self.checked(|_| self.shader(kernel.source()))?;
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
