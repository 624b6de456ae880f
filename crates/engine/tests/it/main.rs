//! The engine from outside: one module for each subject.

mod alarm;
mod allocation;
mod clocks;
mod drafting;
mod embedding;
mod endings;
mod failures;
mod forced;
mod generation;
mod observers;
mod payoff;
mod places;
mod refusals;
mod sharing;
mod simulation;
mod speculation;
mod steering;
mod support;
mod threads;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
