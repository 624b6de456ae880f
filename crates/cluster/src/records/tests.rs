//! The replicator, one answer at a time.

use super::{
    FilesOutcome, LastMessage, PublishOutcome, RecordsConfig, ReplicaState, Replicator,
    StoreRequest, SubjectMessage,
};
use crate::messages::RecordsHead;
use crate::names::InstanceId;
use crate::records::ClaimPlan;
use journal::{Record, StreamKey, Tokens};
use std::time::{Duration, Instant};

const ID: u128 = 7;
const KEY: StreamKey = StreamKey::NONE;

#[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
fn epoch() -> Instant {
    Instant::now()
}

fn tokens(first: u32, ids: &[u32]) -> Record<'_> {
    Record::Tokens(Tokens {
        first,
        ids,
        ..Tokens::default()
    })
}

/// A connected replicator with one open stream.
fn opened(behind_bytes: usize) -> (Replicator, Instant) {
    let now = epoch();
    let config = RecordsConfig {
        behind_bytes,
        ..RecordsConfig::default()
    };
    let mut replicator = Replicator::new(InstanceId(1), config, |_| 7);
    replicator.set_connected(true, now);
    replicator.note_store(1, 0, now);
    replicator.open_stream(KEY, ID, b"{}", now);
    (replicator, now + Duration::from_secs(1))
}

/// The message that is due: serial number, expected sequence, head, and bytes.
fn published(replicator: &mut Replicator, now: Instant) -> (u64, u64, RecordsHead, Vec<u8>) {
    match replicator.poll(now) {
        Some(StoreRequest::Publish {
            serial,
            expected,
            payload,
            ..
        }) => {
            let (head, _) = RecordsHead::decode(&payload).unwrap();
            (serial, expected, head, payload.to_vec())
        }
        other => panic!("{other:?}"),
    }
}

fn store_next(replicator: &mut Replicator, sequence: u64, now: Instant) {
    let (serial, ..) = published(replicator, now);
    replicator.on_published(ID, serial, PublishOutcome::Stored(sequence), now);
}

/// Promise (Records of streams in JetStream): a gateway that was stopped or cut off for 2 s sends nothing of its
/// streams when it is back, before JetStream has said whose they are (at most 10 s).
/// Also held by `cluster/src/nats/status/tests.rs`, `cargo xtask cluster --short`.
#[test]
fn interruption_leaves_doubts_until_the_owner_is_read_or_a_record_is_stored() {
    let (mut replicator, now) = opened(1 << 20);
    replicator.set_connected(false, now);
    replicator.set_connected(true, now);
    assert!(!replicator.has_doubts(), "never stored: nobody can own it");
    let (serial, .., head, _) = published(&mut replicator, now);
    replicator.set_connected(false, now);
    replicator.set_connected(true, now);
    assert!(replicator.has_doubts(), "the answer is missing");
    replicator.on_published(ID, serial, PublishOutcome::Stored(1), now);
    assert!(!replicator.has_doubts());
    replicator.set_connected(false, now);
    replicator.set_connected(true, now);
    assert_eq!(replicator.poll(now), Some(StoreRequest::Check { id: ID }));
    replicator.on_checked(ID, Err(()), now);
    assert!(replicator.has_doubts());
    let later = now + Duration::from_secs(60);
    assert_eq!(replicator.poll(later), Some(StoreRequest::Check { id: ID }));
    let instance = InstanceId(2);
    let head = RecordsHead {
        generation: 2,
        instance,
        ..head
    };
    let last = LastMessage { sequence: 5, head };
    replicator.on_checked(ID, Ok(Some(last)), later);
    assert!(!replicator.has_doubts());
    assert_eq!(replicator.take_fenced().len(), 1);
}

#[test]
fn answer_that_is_missing_is_made_up_for_by_the_last_message() {
    let (mut replicator, now) = opened(1 << 20);
    let (serial, expected, head, payload) = published(&mut replicator, now);
    assert_eq!((expected, head.generation, head.number), (0, 1, 1));
    assert_eq!(replicator.poll(now), None, "one message at a time");
    replicator.on_published(ID, serial, PublishOutcome::Unknown, now);
    assert_eq!(replicator.poll(now), Some(StoreRequest::Check { id: ID }));
    // Not stored: the same message once more.
    replicator.on_checked(ID, Ok(None), now);
    let again = published(&mut replicator, now);
    assert_eq!((again.1, &again.3), (0, &payload));
    // The late first one came first.
    replicator.on_published(ID, again.0, PublishOutcome::WrongSequence, now);
    assert_eq!(replicator.poll(now), Some(StoreRequest::Check { id: ID }));
    let last = LastMessage { sequence: 5, head };
    replicator.on_checked(ID, Ok(Some(last)), now);
    replicator.append(ID, &tokens(0, &[1]), now);
    let (_, expected, head, _) = published(&mut replicator, now + Duration::from_secs(1));
    assert_eq!((expected, head.number), (5, 2));
    assert_eq!(replicator.counters().stored_messages, 1);
}

#[test]
fn message_of_another_owner_fences_the_stream() {
    let (mut replicator, now) = opened(1 << 20);
    store_next(&mut replicator, 1, now);
    replicator.note_claimed(ID, 2, now);
    assert_eq!(replicator.poll(now), Some(StoreRequest::Check { id: ID }));
    let head = RecordsHead {
        generation: 2,
        instance: InstanceId(2),
        number: 1,
        handle: 1 << 20,
        key: 0,
    };
    let last = LastMessage { sequence: 2, head };
    replicator.on_checked(ID, Ok(Some(last)), now);
    assert_eq!(replicator.take_fenced()[0].by, InstanceId(2));
    assert_eq!(replicator.state_of(ID), Some(ReplicaState::Fenced));
    replicator.append(ID, &tokens(0, &[1]), now);
    let later = now + Duration::from_secs(9);
    assert_eq!(replicator.poll(later), None, "nothing more is sent");
    replicator.forget_stream(ID, now);
    assert_eq!(replicator.poll(later), None, "the records are another's");
    assert_eq!(replicator.state_of(ID), None);
    replicator.check();
}

#[test]
fn full_buffer_drops_records_until_the_stream_is_copied() {
    let (mut replicator, now) = opened(200);
    store_next(&mut replicator, 1, now);
    let ids: Vec<u32> = (0..300).collect();
    replicator.append(ID, &tokens(0, &ids[..100]), now);
    assert_eq!(replicator.state_of(ID), Some(ReplicaState::Followed));
    replicator.append(ID, &tokens(100, &ids[100..200]), now);
    assert_eq!(replicator.state_of(ID), Some(ReplicaState::Missing));
    assert_eq!(replicator.behind_bytes(), 0);
    replicator.append(ID, &tokens(200, &ids[200..]), now);
    assert_eq!(replicator.next_copy(), Some((KEY, ID)));
    assert_eq!(replicator.next_copy(), None);
    let all = tokens(0, &ids);
    replicator.copy_stream(ID, b"{}", &mut |append| append(&all), now);
    let now = now + Duration::from_secs(1);
    let (serial, expected, _, payload) = published(&mut replicator, now);
    assert_eq!(expected, 1);
    replicator.on_published(ID, serial, PublishOutcome::Stored(2), now);
    let purge = StoreRequest::Purge {
        id: ID,
        below: 2,
        epoch: 0,
    };
    assert_eq!(replicator.poll(now), Some(purge));
    let message = SubjectMessage {
        sequence: 2,
        payload: payload.into(),
    };
    let plan = ClaimPlan::new(ID, &[message], InstanceId(2), 1 << 20);
    let plan = plan.unwrap().unwrap();
    assert_eq!(plan.stream.choices[0].ids, ids);
    assert!(plan.stream.integrity.is_intact());
}

#[test]
fn purges_of_an_earlier_store_are_dropped() {
    let (mut replicator, now) = opened(1 << 20);
    store_next(&mut replicator, 30, now);
    replicator.forget_stream(ID, now);
    let purge = StoreRequest::Purge {
        id: ID,
        below: 31,
        epoch: 0,
    };
    assert_eq!(replicator.poll(now), Some(purge.clone()));
    replicator.on_purge_failed(ID, 31, 0);
    assert_eq!(replicator.poll(now), Some(purge));
    // The store is made again: its sequences begin anew.
    replicator.note_store(2, 0, now);
    replicator.on_purge_failed(ID, 31, 0);
    assert_eq!(replicator.poll(now), None);
}

/// A connected replicator with streams that name a file.
fn with_files(streams: u128) -> (Replicator, Instant) {
    let now = epoch();
    let replicator = Replicator::new(InstanceId(1), RecordsConfig::default(), |_| 7);
    let mut replicator = replicator.with_files(|_| vec![[3; 32]]);
    replicator.set_connected(true, now);
    replicator.note_store(1, 0, now);
    for id in ID..ID + streams {
        replicator.open_stream(KEY, id, b"{}", now);
    }
    (replicator, now + Duration::from_secs(1))
}

fn files(id: u128, renews: bool) -> StoreRequest {
    let files = vec![[3; 32]];
    StoreRequest::Files { id, files, renews }
}

#[test]
fn files_are_stored_before_the_first_record() {
    let (mut replicator, now) = with_files(1);
    assert_eq!(replicator.poll(now), Some(files(ID, false)));
    replicator.append(ID, &tokens(0, &[1]), now);
    let later = now + Duration::from_secs(1);
    assert_eq!(replicator.poll(later), None, "the files are on the way");
    assert!(replicator.behind_bytes() > 0);
    let wait = Duration::from_secs(1);
    replicator.on_files(ID, FilesOutcome::Busy(wait), later);
    assert_eq!(replicator.poll(later), None);
    assert_eq!(replicator.poll(later + wait), Some(files(ID, false)));
    replicator.on_files(ID, FilesOutcome::Stored, later + wait);
    store_next(&mut replicator, 1, later + 2 * wait);
    assert_eq!(replicator.behind_bytes(), 0);
    replicator.forget_stream(ID, later);
    let purge = StoreRequest::Purge {
        id: ID,
        below: 2,
        epoch: 0,
    };
    assert_eq!(replicator.poll(later), Some(purge));
    let purge = Some(StoreRequest::PurgeFiles { id: ID });
    assert_eq!(replicator.poll(later), purge);
    replicator.on_file_purge_failed(ID);
    assert_eq!(replicator.poll(later), purge);
    replicator.check();
}

#[test]
fn files_are_sent_of_few_streams_at_a_time_and_a_forgotten_stream_waits_for_the_answer() {
    let (mut replicator, now) = with_files(6);
    let mut sent = Vec::new();
    while let Some(StoreRequest::Files { id, .. }) = replicator.poll(now) {
        sent.push(id);
    }
    assert_eq!(sent.len(), 4);
    replicator.forget_stream(sent[0], now);
    assert_eq!(replicator.poll(now), None, "its files are on the way");
    replicator.on_files(sent[0], FilesOutcome::Stored, now);
    let purge = StoreRequest::PurgeFiles { id: sent[0] };
    assert_eq!(replicator.poll(now), Some(purge));
    let later = now + Duration::from_secs(1);
    let Some(StoreRequest::Files { id, .. }) = replicator.poll(later) else {
        panic!("there is room for another");
    };
    assert!(!sent.contains(&id));
    replicator.check();
}

#[test]
fn lost_store_gets_the_files_again_and_old_ones_are_renewed() {
    let (mut replicator, now) = with_files(1);
    assert_eq!(replicator.poll(now), Some(files(ID, false)));
    replicator.on_files(ID, FilesOutcome::Stored, now);
    let now = now + Duration::from_secs(1);
    store_next(&mut replicator, 5, now);
    replicator.note_store(2, 0, now);
    assert_eq!(replicator.poll(now), Some(StoreRequest::Check { id: ID }));
    replicator.on_checked(ID, Ok(None), now);
    assert_eq!(replicator.next_copy(), Some((KEY, ID)));
    replicator.copy_stream(ID, b"{}", &mut |_| {}, now);
    let later = now + Duration::from_secs(1);
    assert_eq!(replicator.poll(later), Some(files(ID, false)));
    replicator.on_files(ID, FilesOutcome::Missing, later);
    let later = later + Duration::from_secs(1);
    store_next(&mut replicator, 1, later);
    let old = later + RecordsConfig::default().age_max * 2 / 3;
    replicator.look_at_ages(old);
    assert_eq!(replicator.next_copy(), Some((KEY, ID)));
    replicator.copy_stream(ID, b"{}", &mut |_| {}, old);
    let later = old + Duration::from_secs(1);
    // What the copy after the loss has replaced goes first.
    let purge = replicator.poll(later);
    assert!(matches!(purge, Some(StoreRequest::Purge { id: ID, .. })));
    assert_eq!(replicator.poll(later), Some(files(ID, true)));
    replicator.check();
}
