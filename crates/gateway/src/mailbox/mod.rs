//! Mailboxes: for each key, the ends of streams that nobody was there to read.
//!
//! ```text
//! settings     bounds
//! cursor       how far a client has read
//! mail         an event in a mailbox; its records in the journal
//! page         events that one read returns, also of several gateways
//! key_mailbox  the mailbox of one key
//! mailboxes    all of them, with the journal
//! ```
//!
//! An event is an object of the journal, as a webhook's delivery is. It is forgotten after an acknowledgement, so a process
//! that dies before leaves it to the next one.

mod cursor;
mod key_mailbox;
mod mail;
mod mailboxes;
mod page;
mod settings;

pub use cursor::{CURSOR_CHARS_MAX, MailboxCursor};
pub use mail::MailboxEntry;
pub use mailboxes::{MailboxMetrics, Mailboxes};
pub use page::MailboxPage;
pub use settings::MailboxSettings;
