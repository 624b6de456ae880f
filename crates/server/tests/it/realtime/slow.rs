//! A client that takes nothing for long is told so, and goes on where it left off.

use super::{WINDOW, ack, explicit, job, narrow};
use crate::support::Rig;
use crate::support::named::fake;
use crate::support::talk::{Talk, text};
use engine::{EngineConfig, Policy};
use server::Keys;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn stalled_socket_is_reported_slow_and_continues() {
    let mut config = narrow();
    config.clocks.policy = Policy::Keep;
    config.clocks.reader = Some(Duration::from_millis(1));
    let tuning = EngineConfig {
        slow_consumer: Duration::ZERO,
        ..EngineConfig::default()
    };
    let rig = Rig::tuned(fake(), tuning, config, Arc::new(Keys::anonymous()));
    rig.gate.open();
    let mut talk = Talk::with(&rig);
    let id = talk.open("a", &explicit(), &job(3 * WINDOW - 1));
    for window in 1..3 {
        // The window is used up and the reader is slow at once: the last is told.
        talk.of(&id, "slow_consumer");
        assert_eq!(rig.engine.stats().slow_consumers(), window);
        talk.say(&ack(&id, window * WINDOW));
        talk.of(&id, "resumed");
    }
    let whole = talk.whole(&id);
    assert_eq!(whole.last().unwrap()["reason"], "MAX_TOKENS");
    text(&whole, 0);
}
