//! The client for a thread that may block: of the command line, or of a download.

use super::client::{ClientOptions, HttpClient, next_bytes, read_body};
use super::error::HttpError;
use bytes::{Buf, Bytes};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A client whose connections are served by the calling thread. Must not be used inside of an asynchronous runtime.
pub struct BlockingClient {
    runtime: Arc<Runtime>,
    client: HttpClient,
}

impl BlockingClient {
    /// A client without connections. No connection is kept after its response: between two calls nothing would notice that
    /// the server closed it.
    ///
    /// # Errors
    /// The system gives no means to wait for sockets.
    pub fn new(options: ClientOptions) -> io::Result<Self> {
        let options = ClientOptions {
            idle_max: 0,
            ..options
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = HttpClient::new(options);
        Ok(Self {
            runtime: Arc::new(runtime),
            client,
        })
    }

    /// As [`HttpClient::send`]; the body may be silent for `silence_max`.
    ///
    /// # Errors
    /// There is no response; why.
    pub fn send(
        &self,
        request: Request<Bytes>,
        head_max: Duration,
        silence_max: Duration,
    ) -> Result<Response<BlockingBody>, HttpError> {
        let response = self.runtime.block_on(self.client.send(request, head_max))?;
        Ok(response.map(|body| BlockingBody {
            runtime: Arc::clone(&self.runtime),
            body,
            silence_max,
            rest: Bytes::new(),
        }))
    }

    /// As [`HttpClient::proxy_of`].
    pub fn proxy_of(&self, uri: &Uri) -> Option<String> {
        self.client.proxy_of(uri)
    }
}

/// The body of a response, read by the calling thread.
pub struct BlockingBody {
    runtime: Arc<Runtime>,
    body: Incoming,
    silence_max: Duration,
    /// Bytes that arrived and are not read.
    rest: Bytes,
}

impl BlockingBody {
    /// The whole body.
    ///
    /// # Errors
    /// The body breaks off, is larger, or is not complete in time.
    pub fn read_whole(self, bytes_max: usize, time: Duration) -> Result<Bytes, HttpError> {
        self.runtime.block_on(read_body(self.body, bytes_max, time))
    }
}

impl Read for BlockingBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let next = next_bytes(&mut self.body, self.silence_max);
            match self.runtime.block_on(next).map_err(io::Error::other)? {
                Some(bytes) => self.rest = bytes,
                None => return Ok(0),
            }
        }
        let read = buffer.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buffer[..read]);
        Ok(read)
    }
}
