//! The connection to NATS.
//!
//! ```text
//! connection      opened once, connected again for ever; its events become a status
//! status          connected, and if not, why; what the servers deny
//! credentials     files of secrets, read at the start
//! server_version  the oldest server that is used
//! denials         subjects that the rights of this process do not include
//! hearing         whether own heartbeats come back
//! publishing      messages of loops, which wait for no connection
//! unreadable      messages that nobody of ours sent, counted by kind of subject
//! ```

mod connection;
mod credentials;
mod denials;
mod hearing;
mod publishing;
mod server_version;
mod status;
mod unreadable;

pub use connection::{Connection, NatsCounts};
pub use credentials::CredentialError;
pub(crate) use credentials::read_secret;
pub use hearing::Hearing;
pub(crate) use publishing::publish_in_time;
pub use server_version::{RECOMMENDED, ServerVersion, VERSION_FLOOR};
pub use status::{ConnectionState, ConnectionStatus, NatsServer};
pub use unreadable::{SubjectKind, UnreadableMessages};
