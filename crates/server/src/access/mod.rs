//! Access control: API keys, host names, and the origins of web pages.

pub(crate) mod authentication;
pub(crate) mod cross_origin;
pub(crate) mod host_allow_list;
pub(crate) mod origins;
pub(crate) mod presented_key;
