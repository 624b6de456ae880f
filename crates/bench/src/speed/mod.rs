//! Speed of a model: prefill and decode at several batch sizes and context lengths, beside the machine's
//! limits.

mod cost;
mod measure;
mod report;
mod test_plan;

pub use measure::{SpeedDevice, measure, measure_on_device};
pub use report::{KernelUse, SpeedReport, SpeedRow};
pub use test_plan::{
    BATCH_MAX, ROUNDS_MAX, SpeedError, SpeedOptions, SpeedTest, TOKENS_MAX, TestPlan,
};
