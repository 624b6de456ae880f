//! Models from files, shapes and numbers, from outside: one module for each subject.

mod adapter_files;
mod adapters;
mod allocation;
mod architectures;
mod described;
mod differing;
mod embedding_files;
mod embedding_models;
mod embedding_safetensors;
mod encoder_safetensors;
mod encoders;
mod experts;
mod four_bits;
mod goldens;
mod gpt_oss;
mod hidden;
mod invariance;
mod latent;
mod mini_vision;
mod mtp;
mod nested_texts;
mod packed_file;
mod packed_file_hostile;
mod recurrent;
mod recurrent_classes;
mod recurrent_refusals;
mod recurrent_safetensors;
mod refusals;
mod safetensors;
mod safetensors_hostile;
mod support;
mod tower_goldens;
mod tower_hostile;
mod tower_sources;
mod towers;
mod vectors;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
