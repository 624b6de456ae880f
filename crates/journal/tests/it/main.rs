//! The journal from outside: one module for each subject.

mod allocation;
mod any_bytes;
mod arbitrary_segments;
mod bit_flips;
mod blobs;
mod directory;
mod disk_faults;
mod driver;
mod model_disk;
mod random_operations;
mod records;
mod space_bound;
mod threads;
mod torn_tails;
mod truth;
mod versions;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
