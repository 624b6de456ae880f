//! Tests that measure their whole process: its heap, its threads, its log. Each runs in a child process, and no two of
//! them at the same time.

mod allocations;
mod child;
mod expansions;
mod heap;
mod logged;
mod malformed;
mod short_soak;
mod silence;
mod silent_memory;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod thousand;
mod threads;
