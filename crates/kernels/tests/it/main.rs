//! The kernels from outside: one module for each subject.

mod matmul_allocates_nothing;
mod no_allocation;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
