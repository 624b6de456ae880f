//! The output pipeline: token logs to events.

pub mod choice_reader;
pub mod collected;
pub mod custom_input;
pub mod event;
pub mod generation_reader;
pub mod parser_config;
pub mod pipeline;
pub mod position;
