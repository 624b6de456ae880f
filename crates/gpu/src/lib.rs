//! Forward passes of decoders on a GPU.
//!
//! A model is a [`Program`](operation::Program): a list of operations over buffers, made once from the configuration and
//! the described weights. The device runs the list in one compute pass per batch, or in several for a long one, by kernels in WGSL. Everything on the
//! device is allocated when the program is loaded.

mod draw_record;
pub mod layout;
mod load_error;
mod model;
pub mod operation;
mod options;
mod place;
mod program;
pub mod record;
pub mod selftest;
mod shapes;
mod step;
mod supports;
#[cfg(test)]
mod test_device;
mod timing;
mod webgpu;

pub use load_error::LoadError;
pub use model::{ARITHMETIC, Model};
pub use options::Options;
pub use place::{Place, TooLarge};
pub use supports::{Unsupported, supports};
pub use timing::{KernelTime, StepKernel, kernel_times};
pub use webgpu::adapters::{DeviceFacts, devices};
pub use webgpu::device::{Absent, Counts, Device, DeviceError};
pub use webgpu::matrix_units::MatrixUnits;
pub use webgpu::memory::PrepareError;
pub use webgpu::pipelines::KernelError;
pub use webgpu::selection::{Kind, Selection, UnknownSelection};
