//! Requests: path, header fields, body, and the model that a request names.

pub(crate) mod extract;
pub(crate) mod foreign_id;
pub(crate) mod foreign_stream;
pub(crate) mod model_lookup;
pub(crate) mod paths;
pub(crate) mod request_body;
pub(crate) mod request_headers;
