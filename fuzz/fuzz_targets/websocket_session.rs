//! A WebSocket session over an in-memory connection: the server, its engine and a fake model.
//!
//! The input is a script of lines (see `script`). Whatever a client sends, the server answers with valid frames, each
//! message is one of the documented messages, each attachment of a stream has at most one end, a stream that is
//! cancelled has exactly one, and once the session and its server are gone no page and no log is held.
#![no_main]

#[path = "websocket_session/client.rs"]
mod client;
#[path = "websocket_session/fake_server.rs"]
mod fake_server;
#[path = "websocket_session/script.rs"]
mod script;
#[path = "websocket_session/stream_states.rs"]
mod stream_states;

use client::Client;
use fake_server::FakeEngine;
use libfuzzer_sys::fuzz_target;
use server::InMemoryServer;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::duplex;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// Bytes on their way in each direction.
const DUPLEX_BYTES: usize = 256 << 10;
/// The longest time for one script.
const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

/// One engine for all sessions; each session has a server of its own.
static ENGINE: LazyLock<FakeEngine> = LazyLock::new(FakeEngine::start);

fuzz_target!(|input: &[u8]| {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let server = InMemoryServer::new(ENGINE.server());
        let (ours, theirs) = duplex(DUPLEX_BYTES);
        let client = async {
            let mut client = Client::connect(ours).await;
            client.run(input).await;
        };
        let session = async { tokio::join!(server.serve(theirs), client) };
        timeout(SESSION_TIMEOUT, session)
            .await
            .expect("the session ends");
    });
    drop(runtime);
    ENGINE.wait_until_empty();
});
