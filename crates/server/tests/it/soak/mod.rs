//! Clients that do everything a client may do, in every dialect and over WebSockets, with keys and their limits, all
//! at once, from a seed; afterwards the server holds nothing for any of them. `cargo xtask soak` runs longer ones.

pub(crate) mod deeds;
pub(crate) mod hostile;
pub(crate) mod scene;
