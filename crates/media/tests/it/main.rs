//! Images from outside: one module for each subject.

mod decode;
mod limits;
mod mutations;
mod pattern;
mod plans;
mod resize;
mod seeds;
mod urls;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
