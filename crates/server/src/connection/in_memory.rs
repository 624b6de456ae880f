//! Connections over any byte stream in place of sockets, for fuzz targets (`--cfg fuzzing`).

use super::handover::Upgrade;
use crate::access::cross_origin::RequestOrigin;
use crate::app::App;
use crate::router::build_router;
use crate::serve::Server;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

/// A server that accepts no connections of its own.
pub struct InMemoryServer {
    router: Router,
    app: App,
}

impl InMemoryServer {
    /// Takes over the services of a server; its socket is closed.
    pub fn new(server: Server) -> Self {
        let (app, authentication) = server.into_services();
        Self {
            router: build_router(app.clone(), authentication),
            app,
        }
    }

    /// Answers the requests of one connection, then runs the WebSocket that the last of them opened.
    pub async fn serve(&self, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let upgrade = Upgrade::default();
        let service = service_fn(|mut request: Request<Incoming>| {
            let origin = RequestOrigin::of(request.headers(), &self.app.config.now().origins);
            request.extensions_mut().insert(origin);
            request.extensions_mut().insert(upgrade.clone());
            self.router.clone().oneshot(request.map(Body::new))
        });
        let http = http1::Builder::new();
        let connection = http.serve_connection(TokioIo::new(io), service);
        let ended = connection.with_upgrades().await;
        if let (Ok(()), Some(next)) = (ended, upgrade.take_continuation()) {
            next.await;
        }
    }
}
