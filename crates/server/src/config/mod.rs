//! Limits and timeouts of the server, and their changes at run time.

pub(crate) mod live_config;
pub(crate) mod reconfigure;
pub(crate) mod server_config;
