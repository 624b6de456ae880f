//! A model's speed: prompts and decoding at several batches and depths, beside the machine's limits.

mod cost;
mod desk;
mod measure;
mod options;
mod report;
mod rows;
mod test;

pub use measure::measure;
pub use options::{BATCH_MAX, ROUNDS_MAX, SpeedError, TOKENS_MAX, Wish};
pub use report::{Report, Row};
pub use rows::Rows;
pub use test::Test;
