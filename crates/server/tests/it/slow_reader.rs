//! One client that never reads beside 31 that do.

use crate::support::client::{Client, request};
use crate::support::named::{CHAT, ask, fake};
use crate::support::{Rig, config, wait_until};
use server::ServerConfig;

const READERS: usize = 31;
const TOKENS: usize = 300;
/// More tokens than all buffers between server and client hold.
const TOKENS_UNREAD: usize = 4000;
/// Limit of rounds of the other clients until the kernel takes no more bytes.
const ROUNDS_MAX: usize = 10;

fn read(rig: &Rig, i: usize, max_tokens: usize) -> String {
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask(&format!("client {i}"), true, max_tokens));
    client.reply().chat_text()
}

/// The responses to all readers, which run at the same time.
fn read_all(rig: &Rig) -> Vec<String> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|i| scope.spawn(move || read(rig, i, TOKENS)))
            .collect();
        readers.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

/// Pages and log segments of the unread stream. Waits until no other stream holds any: a stream releases them some time
/// after its client has the response.
fn held_by_the_unread_stream(rig: &Rig) -> (u64, usize) {
    let reserved = TOKENS_UNREAD.div_ceil(stream::SEGMENT_ITEMS);
    let mut held = None;
    wait_until("only the unread stream is left", || {
        let (stats, tokens) = (rig.engine.stats(), rig.tokens.stats());
        let others = stats.queued() + stats.running() + stats.waiting();
        let is_alone = others == 0 && stats.parked() == 1 && tokens.reserved == reserved;
        let now = (stats.pages_used(), tokens.in_use);
        // The engine's gauges are written one after another.
        is_alone && held.replace(now) == Some(now)
    });
    held.unwrap_or_default()
}

#[test]
fn client_that_never_reads_costs_others_no_step_and_loses_nothing() {
    let mut model = fake();
    model.dims.context_max = 1 << 13;
    let rig = Rig::with(
        model,
        ServerConfig {
            send_buffer_bytes: 4096,
            ..config()
        },
    );
    let alone: Vec<_> = (0..READERS).map(|i| read(&rig, i, TOKENS)).collect();
    let unread_alone = read(&rig, READERS, TOKENS_UNREAD);
    rig.wait_until_empty();
    let mut deaf = Client::narrow(rig.addr, 4096);
    let before = rig.engine.stats().tokens_generated();
    deaf.send(&request(
        CHAT,
        &ask(&format!("client {READERS}"), true, TOKENS_UNREAD),
    ));
    let generated = || rig.engine.stats().tokens_generated();
    wait_until("its credit is gone and no buffer takes more", || {
        let (parked, so_far) = (rig.engine.stats().parked() == 1, generated());
        read(&rig, 0, 1);
        parked && rig.engine.stats().parked() == 1 && generated() == so_far + 1
    });
    // The kernel may take a frame or two more after some time.
    let takes_none = || {
        let so_far = generated();
        assert_eq!(read_all(&rig), alone);
        generated() == so_far + (READERS * TOKENS) as u64
    };
    let rounds = (1..=ROUNDS_MAX).find(|_| takes_none());
    assert!(rounds.is_some(), "not one token for who never reads");
    let others = rounds.unwrap_or_default() * READERS * TOKENS;
    let unread = generated() - before - others as u64;
    assert!(unread < TOKENS_UNREAD as u64, "it is not read");
    let held_before = held_by_the_unread_stream(&rig);
    assert!(takes_none(), "and never again");
    assert_eq!(
        held_by_the_unread_stream(&rig),
        held_before,
        "the others gave back what they held"
    );
    assert_eq!(
        deaf.reply().chat_text(),
        unread_alone,
        "when it reads again, it is all there"
    );
    rig.wait_until_empty();
}
