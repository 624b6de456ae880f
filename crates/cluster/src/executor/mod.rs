//! The engine side of remote requests: requests of gateways are submitted to this process's engines, and their tokens sent.
//!
//! ```text
//! attempts   all attempts, by gateway and request: admission, orders, reads, silence, load; no I/O, `now` is an argument
//! running    one attempt: what was sent of it, and the orders that were applied
//! outgoing   messages to one gateway        submission   from a message to a submitted request
//! received_files   files of gateways, whole and in parts      given_images  images of a request, decoded
//! service    the tasks on NATS
//! ```
//!
//! An attempt is one try of a gateway's request on this engine. All tokens of one step for one gateway are in one message,
//! and no message is repeated: a gateway that misses tokens reads them. An attempt that has ended is kept for such reads.

mod attempts;
mod given_images;
mod outgoing;
mod received_files;
mod running;
mod service;
mod submission;
#[cfg(test)]
mod tests;

pub use attempts::{
    Admission, Attempts, ENDED_KEPT_MAX, ENDED_WAIT, GATEWAY_SILENCE, OPEN_ATTEMPTS_MAX,
    REPORT_AFTER, Settled, reported_load,
};
pub use given_images::{DecodeImages, GivenImages, ImageShare};
pub use received_files::{FILE_WAIT, FILES_BYTES_MAX, IDLE_FILES_BYTES_MAX, ReceivedFiles};
pub use running::RunningAttempt;
pub use service::ExecutorService;
pub use submission::{ArithmeticNow, ExecutorModel, STARTING_BYTES_MAX, STARTING_MAX, start};
