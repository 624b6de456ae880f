//! Streams from outside: one module for each subject.

mod allocation;
mod gates;
mod laws;
mod model;
mod registry;
mod rings;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
