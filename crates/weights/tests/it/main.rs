//! Files of models, from outside: one module for each subject.

mod gguf_hostile;
mod gguf_mutations;
#[cfg(target_os = "linux")]
mod gguf_pages;
mod gguf_round_trip;
mod gguf_tokenizer;
mod hostile;
mod real_vocabularies;
mod seeds;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
