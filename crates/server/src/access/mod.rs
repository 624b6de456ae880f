//! Access control: API keys, host names, and the origins of web pages.

pub(crate) mod authentication;
pub(crate) mod cross_origin;
pub(crate) mod origins;
