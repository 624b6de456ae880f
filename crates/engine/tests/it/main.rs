//! Integration tests of the engine, one module for each subject.

mod ahead;
mod alarm;
mod allocation;
mod clocks;
mod disk_cache;
mod drafting;
mod embedding;
mod encoders;
mod endings;
mod failures;
mod forced;
mod generation;
mod long_steps;
mod media;
mod observers;
mod payoff;
mod permits;
mod recurrent;
mod recurrent_drafts;
mod rejections;
mod resumed;
mod sharing;
mod simulation;
mod speculation;
mod support;
mod threads;
mod updates;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
