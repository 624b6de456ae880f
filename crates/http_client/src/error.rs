//! Why a request has no response.

use std::error::Error;
use std::time::Duration;

/// Why a request has no response, or a response no end. The texts contain no header fields and no bodies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The address has no scheme `http` or `https`, or no host.
    #[error("{0:?} is no http or https URL")]
    Url(String),
    /// Only public addresses may be reached, and one of the host's is not.
    #[error("the host has an address that is not public")]
    NotPublic,
    /// The name cannot be resolved, or no address accepts connections.
    #[error("{0}")]
    Unreachable(String),
    /// No address accepted the connection in time.
    #[error("no connection within {} s", .0.as_secs_f32())]
    ConnectTime(Duration),
    /// The server sent nothing for this time.
    #[error("no byte for {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The certificate is not trusted, or the server speaks no TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// The proxy of the environment makes no connection.
    #[error("the proxy {0}")]
    Proxy(String),
    /// The body has more bytes than are read.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    /// The server redirects too often.
    #[error("more than {0} redirects")]
    Redirects(u32),
    /// What came is no response, or breaks off.
    #[error("{0}")]
    Broken(String),
}

impl HttpError {
    /// The error of the client's own that is the reason of `error`, or its text with that of its last source.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let sources = std::iter::successors(Some(error), |&error| error.source());
        let sources: Vec<_> = sources.collect();
        let own = sources
            .iter()
            .find_map(|error| error.downcast_ref::<Self>());
        if let Some(own) = own {
            return own.clone();
        }
        // The first is only that of the pool: "client error (SendRequest)".
        let texts = sources.iter().skip(usize::from(sources.len() > 1));
        let texts: Vec<_> = texts.map(ToString::to_string).collect();
        Self::Broken(texts.join(": "))
    }

    pub(crate) fn of_body(error: &hyper::Error) -> Self {
        match error.source() {
            Some(source) => Self::Broken(format!("{error}: {source}")),
            None => Self::Broken(error.to_string()),
        }
    }
}
