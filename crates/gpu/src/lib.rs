//! Forward passes of decoders on a GPU.
//!
//! A model is a [`Program`](operation::Program): a list of operations over buffers, made once from the configuration and
//! the described weights. The device runs the list in one compute pass per batch, by kernels in WGSL. Everything on the
//! device is allocated when the program is loaded.

pub mod operation;
pub mod record;
mod options;
mod program;
mod step;
mod supports;
