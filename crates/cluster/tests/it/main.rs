//! Tests with a real NATS server: `TEST_NATS_SERVER`, else `nats-server` in `PATH`.

mod arithmetic;
mod connection;
mod executor;
mod fair_shares;
mod forged_heartbeats;
mod held_tokens;
mod membership;
mod nats_server;
mod records;
mod rights;
