//! Kernels compiled for an open device, each once.

use super::device::{Device, DeviceError, IMMEDIATE_BYTES};
use super::sources::Kernel;
use std::collections::HashMap;

/// Compiled kernels.
#[derive(Default)]
pub(crate) struct Pipelines {
    by_kernel: HashMap<Kernel, usize>,
    compiled: Vec<wgpu::ComputePipeline>,
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

impl Pipelines {
    /// The number of a kernel, which is compiled if it is not yet.
    pub(crate) fn add(&mut self, device: &Device, kernel: Kernel) -> Result<usize, KernelError> {
        if let Some(index) = self.by_kernel.get(&kernel) {
            return Ok(*index);
        }
        let layout = self.layout(device, kernel);
        let named = |error| KernelError {
            kernel: kernel.name(),
            error,
        };
        let module = device.checked(|_| device.shader(kernel.source()));
        let module = module.map_err(named)?;
        let compiled = device.checked(|device| {
            let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
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
        });
        self.compiled.push(compiled.map_err(named)?);
        let index = self.compiled.len() - 1;
        self.by_kernel.insert(kernel, index);
        Ok(index)
    }

    /// A compiled kernel.
    pub(crate) fn get(&self, index: usize) -> &wgpu::ComputePipeline {
        &self.compiled[index]
    }

    /// The buffers of a kernel, bound once for all its dispatches.
    pub(crate) fn bind(
        &mut self,
        device: &Device,
        kernel: Kernel,
        buffers: &[&wgpu::Buffer],
    ) -> Result<wgpu::BindGroup, DeviceError> {
        let layout = self.layout(device, kernel);
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        device.checked(|device| {
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &entries,
            })
        })
    }

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
