//! Models on a device, compared with the same models on the CPU. Without a driver, tests that need one say so once and pass, unless
//! `MILLRACE_GPU_TESTS` is 1.

mod adapters;
mod ahead;
mod allocation;
mod faults;
mod fields;
mod greedy;
mod kv;
mod models;
mod mtp;
mod pages;
mod serving;
mod states;
mod support;
mod vectors;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
