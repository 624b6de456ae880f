//! The connection to NATS.
//!
//! ```text
//! connection      opened once, connected again without end; its events become a status
//! status          connected, and if not, why; what the servers deny; whether own heartbeats come back
//! credentials     files of secrets, read at the start
//! unreadable      messages that this cluster did not send, counted by kind of subject
//! ```

mod connection;
mod credentials;
mod status;
mod unreadable;

pub(crate) use connection::publish_in_time;
pub use connection::{Connection, NatsCounts, RECOMMENDED, ServerVersion, VERSION_FLOOR};
pub use credentials::CredentialError;
pub(crate) use credentials::read_secret;
pub use status::{ConnectionState, ConnectionStatus, Hearing, NatsServer};
pub use unreadable::{SubjectKind, UnreadableMessages};
