//! Webhooks: events about streams that have ended, delivered at least once to hosts that the operator allowed.
//!
//! ```text
//! settings, host_pattern   what the operator allows, and bounds
//! webhook_url              a client's URL -> a URL in normal form
//! public_address           addresses of the public internet
//! secret                   secrets of keys, and signatures
//! delivery                 an event for one URL; its records in the journal
//! delivery_table           all deliveries and their bounds: which is due, what an attempt changes
//! outbox                   the table with the journal, for clients and the operator
//! dispatcher               the task that attempts what is due
//! send_webhook             the interface of the HTTP client, which is in crate `server`
//! ```
//!
//! A delivery is recorded before the first attempt and forgotten after a success, so a process that dies in between
//! leaves the delivery to the next one, which repeats the event under the same id.

mod delivery;
mod delivery_table;
mod dispatcher;
mod host_pattern;
mod outbox;
mod public_address;
mod secret;
mod send_webhook;
mod settings;
mod webhook_url;

pub use delivery::{DeliveryDescription, DeliveryStatus};
pub use dispatcher::run_deliveries;
pub use host_pattern::HostPattern;
pub use outbox::{Outbox, WebhookMetrics, WebhookPlace};
pub use public_address::is_public;
pub use secret::{SECRET_PREFIX, SECRETS_MAX, WebhookSecret, WebhookSecrets};
pub use send_webhook::{AttemptOutcome, SendWebhook, WebhookRequest};
pub use settings::WebhookSettings;
