//! The model's files, shapes and numbers, from outside: one module for each subject.

mod adapter_files;
mod adapters;
mod allocation;
mod architectures;
mod differing;
mod embedding_files;
mod embedding_models;
mod embedding_safetensors;
mod encoder_safetensors;
mod encoders;
mod experts;
mod four_bits;
mod gguf_hostile;
mod gguf_mutations;
#[cfg(target_os = "linux")]
mod gguf_pages;
mod gguf_round_trip;
mod gguf_tokenizer;
mod goldens;
mod gpt_oss;
mod hidden;
mod hostile;
mod invariance;
mod latent;
mod mtp;
mod packed_file;
mod packed_file_hostile;
mod real_vocabularies;
mod recurrent;
mod recurrent_classes;
mod recurrent_refusals;
mod recurrent_safetensors;
mod refusals;
mod safetensors;
mod safetensors_hostile;
mod support;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
