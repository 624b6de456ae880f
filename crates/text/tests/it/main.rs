//! Text from outside: one module for each subject.

mod answers;
mod conversations;
mod fuzz_inputs;
mod grammars;
mod pretokenizers;
mod stop;
mod strict_calls;
mod support;
mod templates;
mod vocabularies;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
