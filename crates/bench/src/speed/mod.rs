//! Speed of a model: prefill and decode at several batch sizes and context lengths, beside the machine's
//! limits.

mod cost;
mod measure;
mod model_runner;
mod options;
mod report;
mod speed_test;
mod test_plan;

pub use measure::measure;
pub use options::{BATCH_MAX, ROUNDS_MAX, SpeedError, SpeedOptions, TOKENS_MAX};
pub use report::{SpeedReport, SpeedRow};
pub use speed_test::SpeedTest;
pub use test_plan::TestPlan;
