//! The device by wgpu: Vulkan, Metal or DirectX 12.

pub(crate) mod adapters;
mod answers;
mod bandwidth;
pub(crate) mod blocks;
#[cfg(test)]
mod bounds_tests;
pub(crate) mod device;
pub(crate) mod draws;
pub(crate) mod encode;
pub(crate) mod launch;
#[expect(
    unreachable_pub,
    reason = "a program is run by a model alone, which checks batches"
)]
pub(crate) mod loaded;
pub(crate) mod matrix_units;
pub(crate) mod memory;
pub(crate) mod pipelines;
#[cfg(test)]
mod reads_tests;
pub(crate) mod selection;
pub(crate) mod sources;
mod timestamps;
mod work;
