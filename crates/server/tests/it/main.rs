//! The server over sockets: one module for each subject, one binary for all of them.
//!
//! Tests that measure their whole process (heap, threads, log) are in `tests/alone`.

mod acknowledgements;
mod admission;
mod completions;
mod control;
mod crowds;
mod dashboard;
mod doors;
mod embeddings;
mod endings;
mod feed;
mod golden;
mod handover;
mod hostile;
mod jobs;
mod lifecycle;
mod limits;
mod loading;
mod messages;
mod metrics;
mod models;
mod ollama;
#[cfg(feature = "otlp")]
mod otlp;
mod realtime;
mod refusals;
mod responses;
mod resume;
mod scored;
mod sharing;
mod silent_readers;
mod slow_reader;
mod speech;
mod streams;
mod structured;
#[path = "../support/mod.rs"]
mod support;
mod transcripts;
mod unread;
mod vocabulary;
mod workflows;
