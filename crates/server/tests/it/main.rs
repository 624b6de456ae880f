//! The server over sockets: one module for each subject, one binary for all of them.
//!
//! Tests that measure their whole process (heap, threads, log) run in a child process of this binary each.

mod acknowledgements;
mod admission;
mod allocations;
mod api_prefix;
mod billing_line;
mod caching;
mod completions;
mod control;
mod crowds;
mod custom_tools;
mod dashboard;
mod doors;
mod durability;
mod durable_streams;
mod embeddings;
mod endings;
mod expansions;
mod feed;
mod gateways;
mod golden;
mod handover;
mod hostile;
mod infill;
mod jobs;
mod lifecycle;
mod limits;
mod llama_cpp;
mod loading;
mod malformed;
mod messages;
mod metrics;
mod models;
mod nats;
mod never_read;
mod ollama;
mod page;
mod peers;
mod realtime;
mod refusals;
mod request_log;
mod responses;
mod restarts;
mod resume;
mod scored;
mod sharing;
mod short_soak;
mod shutdown;
mod silence;
mod silent_memory;
mod silent_readers;
mod slow_reader;
mod soak;
mod speech;
mod stored_answers;
mod stored_completions;
mod streams;
mod structured;
mod support;
mod thousand;
mod threads;
mod transcripts;
mod truncation;
mod unread;
mod unread_list;
mod vocabulary;
mod webhooks;
mod workflows;

use testing::heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
