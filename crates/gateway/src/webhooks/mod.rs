//! Webhooks: events about streams that have ended, delivered at least once to hosts that the operator allowed.
//!
//! ```text
//! settings        what the operator allows, and bounds     webhook_url  a client's URL in normal form; secrets and signatures
//! delivery        an event for one URL, and its attempts     attempt  one request
//! delivery_table  all deliveries and their bounds: which is due, what an attempt changes
//! outbox          the table with the journal, for clients and the operator
//! ```
//!
//! A delivery is recorded before the first attempt and forgotten after a success, so a process that dies in between
//! leaves the delivery to the next one, which repeats the event under the same id.

mod attempt;
mod delivery;
mod delivery_table;
mod outbox;
mod settings;
mod webhook_url;

use attempt::{AttemptOutcome, WebhookRequest};
pub use delivery::{DeliveryDescription, DeliveryStatus, run_deliveries};
pub use outbox::{Outbox, WebhookMetrics, WebhookPlace};
pub use settings::{HostPattern, WebhookSettings};
pub use webhook_url::{SECRET_PREFIX, SECRETS_MAX, WebhookSecret, WebhookSecrets};
