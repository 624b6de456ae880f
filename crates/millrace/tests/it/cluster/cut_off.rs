//! A client that reads a stream at another gateway than the owner, which is stopped.
//!
//! Promise (Cluster): a reader at another gateway continues there when the owner is stopped, before and within the
//! response.

use super::moved::{EVENTS, assert_equal, is_owned_again, open, start, undisturbed};
use super::processes::address;
use crate::kill::crashing::Client;

#[test]
fn reader_at_another_gateway_goes_on_there_when_the_owner_is_stopped() {
    let Some(pair) = start("cut-off") else {
        return;
    };
    let whole = undisturbed("cut-off-single");
    let [first, second] = pair.gateways;
    let id = open(&first);
    let mut client = Client::new("forwarded", &id, "openai.chat");
    let mut is_stopped = false;
    client.read_until(&address(&second), EVENTS, &mut || {
        if !std::mem::replace(&mut is_stopped, true) {
            first.signal("STOP");
            // A request whose response has not begun waits until the stream has another owner.
            assert!(is_owned_again(&second, &id));
        }
    });
    assert!(
        !client.is_over,
        "the response has broken off without an end"
    );
    client.read_to_end(&address(&second));
    assert_equal(client, whole);
    drop(pair.cluster);
}
