use super::*;
use crate::mailbox::MailboxEntry;
use proptest::prelude::*;
use serde_json::Value;

const ALICE: Owner = Owner(1);
const BOB: Owner = Owner(2);

fn mailboxes(settings: MailboxSettings) -> Mailboxes {
    let mailboxes = Mailboxes::new(Arc::default(), Arc::new(IdGenerator::new()));
    mailboxes.set_settings(settings);
    mailboxes
}

fn bounds(events_max: usize, total_max: usize) -> MailboxSettings {
    MailboxSettings {
        events_max,
        total_max,
        ..MailboxSettings::default()
    }
}

fn event(owner: Owner, n: u8, created_unix_us: u64) -> EventRecord {
    let stream = StreamId::from_random([n; 16]);
    let end: EndedStream = serde_json::from_value(serde_json::json!({
        "id": format!("resp_{n}"), "object": "response", "stream_id": stream.to_string(), "dialect": "openai.responses",
        "model": "m", "status": "completed", "ending": "eos", "error": null,
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "created_at": 1, "ended_at": 2,
        "links": {"result": "/v1/responses/resp_1", "events": "/v1/streams/1/events"},
    }))
    .expect("an end");
    EventRecord::new(
        DescriptionKind::MailboxEvent,
        (stream, owner),
        &end,
        created_unix_us,
    )
}

fn add(mailboxes: &Mailboxes, owner: Owner, n: u8) {
    mailboxes.add_record(event(owner, n, clock::unix_us()), false);
}

fn numbers(page: &MailboxPage) -> Vec<u8> {
    let number = |entry: &MailboxEntry| {
        let event: Value = serde_json::from_str(entry.event.get()).expect("JSON");
        let id = event["data"]["id"].as_str().expect("an id");
        id["resp_".len()..].parse().expect("a number")
    };
    page.entries.iter().map(number).collect()
}

fn read_all(mailboxes: &Mailboxes, owner: Owner) -> Vec<u8> {
    numbers(&mailboxes.read(owner, &MailboxCursor::default(), usize::MAX))
}

#[test]
fn events_stay_until_they_are_acknowledged() {
    let mailboxes = mailboxes(MailboxSettings::default());
    for n in 1..=5 {
        add(&mailboxes, ALICE, n);
    }
    add(&mailboxes, BOB, 9);
    let start = MailboxCursor::default();
    let first = mailboxes.read(ALICE, &start, 2);
    assert_eq!((numbers(&first), first.has_more), (vec![1, 2], true));
    let two = first.cursor_after(&start);
    let rest = mailboxes.read(ALICE, &two, 10);
    assert_eq!((numbers(&rest), rest.has_more), (vec![3, 4, 5], false));
    assert_eq!(
        read_all(&mailboxes, ALICE),
        [1, 2, 3, 4, 5],
        "reading keeps"
    );
    assert_eq!(mailboxes.acknowledge(ALICE, &two).0, 2);
    assert_eq!(mailboxes.acknowledge(ALICE, &two).0, 0);
    assert_eq!(
        mailboxes.acknowledge(BOB, &two).0,
        0,
        "another key's places"
    );
    assert_eq!(read_all(&mailboxes, ALICE), [3, 4, 5]);
    assert_eq!((read_all(&mailboxes, BOB), mailboxes.len()), (vec![9], 4));
    add(&mailboxes, BOB, 9);
    assert_eq!(mailboxes.len(), 4, "one event for each stream");
}

#[test]
fn oldest_events_of_the_fullest_mailbox_make_room() {
    let mailboxes = mailboxes(bounds(3, 5));
    for n in 1..=4 {
        add(&mailboxes, ALICE, n);
    }
    assert_eq!(read_all(&mailboxes, ALICE), [2, 3, 4]);
    for n in 5..=7 {
        add(&mailboxes, BOB, n);
    }
    assert_eq!((mailboxes.len(), read_all(&mailboxes, BOB).len()), (5, 3));
    let page = mailboxes.read(ALICE, &MailboxCursor::default(), 9);
    assert_eq!((numbers(&page), page.dropped), (vec![3, 4], 2));
    mailboxes.set_settings(bounds(0, 5));
    assert!(mailboxes.is_empty() && !mailboxes.is_on());
    assert_eq!(mailboxes.metrics().dropped.get(), 7);
}

#[test]
fn old_events_are_dropped_and_counted() {
    let mailboxes = mailboxes(MailboxSettings {
        age_max: Duration::from_secs(60),
        ..MailboxSettings::default()
    });
    let now = clock::unix_us();
    mailboxes.add_record(event(ALICE, 1, now - 61_000_000), false);
    mailboxes.add_record(event(ALICE, 2, now - 1_000_000), false);
    let page = mailboxes.read(ALICE, &MailboxCursor::default(), 9);
    assert_eq!((numbers(&page), page.dropped), (vec![2], 1));
}

#[test]
fn cursor_of_another_process_covers_nothing() {
    let (before, after) = (
        mailboxes(MailboxSettings::default()),
        mailboxes(MailboxSettings::default()),
    );
    add(&before, ALICE, 1);
    let start = MailboxCursor::default();
    let cursor = before.read(ALICE, &start, 9).cursor_after(&start);
    add(&after, ALICE, 2);
    assert_eq!(numbers(&after.read(ALICE, &cursor, 9)), [2]);
    assert_eq!(after.acknowledge(ALICE, &cursor).0, 0);
}

#[test]
fn news_reach_readers_of_the_key() {
    let mailboxes = mailboxes(MailboxSettings::default());
    let (alice, bob) = (mailboxes.news(ALICE), mailboxes.news(BOB));
    let (mut alice, mut bob) = (Box::pin(alice.notified()), Box::pin(bob.notified()));
    assert!(!alice.as_mut().enable() && !bob.as_mut().enable());
    add(&mailboxes, ALICE, 1);
    assert!(alice.as_mut().enable() && !bob.as_mut().enable());
}

/// What a client or a stream does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add { gateway: usize },
    Read { gateways: [bool; 2], limit: usize },
    Acknowledge { gateways: [bool; 2] },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gateways = || [any::<bool>(), any::<bool>()];
    let step = prop_oneof![
        (0..2_usize).prop_map(|gateway| Step::Add { gateway }),
        (gateways(), 1..4_usize).prop_map(|(gateways, limit)| Step::Read { gateways, limit }),
        gateways().prop_map(|gateways| Step::Acknowledge { gateways }),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// A client of two gateways, of which some do not answer at times, gets every event: each once, and those of one
    /// gateway in order.
    #[test]
    fn client_with_a_cursor_gets_every_event_once(steps in steps()) {
        let all = [(); 2].map(|()| mailboxes(MailboxSettings::default()));
        let (mut added, mut cursor) = ([Vec::new(), Vec::new()], MailboxCursor::default());
        let (mut got, mut next) = (Vec::new(), 0_u8);
        let mut read = |gateways: [bool; 2], limit, cursor: &mut MailboxCursor| {
            let answering = all.iter().zip(gateways).filter(|(_, answers)| *answers);
            let pages = answering.map(|(one, _)| one.read(ALICE, cursor, limit)).collect();
            let page = MailboxPage::merge(pages, limit);
            *cursor = page.cursor_after(cursor);
            got.extend(numbers(&page));
            page.has_more
        };
        for step in steps {
            match step {
                Step::Add { gateway } => {
                    next += 1;
                    add(&all[gateway], ALICE, next);
                    added[gateway].push(next);
                }
                Step::Read { gateways, limit } => {
                    read(gateways, limit, &mut cursor);
                }
                Step::Acknowledge { gateways } => {
                    for (one, _) in all.iter().zip(gateways).filter(|(_, answers)| *answers) {
                        let _ = one.acknowledge(ALICE, &cursor);
                    }
                }
            }
        }
        while read([true; 2], 3, &mut cursor) {}
        for one in &all {
            let _ = one.acknowledge(ALICE, &cursor);
            prop_assert!(one.is_empty());
        }
        for added in &added {
            let of_gateway: Vec<u8> = got.iter().filter(|n| added.contains(n)).copied().collect();
            prop_assert_eq!(&of_gateway, added);
        }
        prop_assert_eq!(got.len(), added.iter().map(Vec::len).sum::<usize>());
    }

    /// Bounds hold after each event, the newest events stay, and the counter tells the rest.
    #[test]
    fn bounds_hold_and_what_is_dropped_is_counted(
        owners in proptest::collection::vec(0_u64..3, 0..60),
        events_max in 1..6_usize,
        total_max in 1..12_usize,
    ) {
        let mailboxes = mailboxes(bounds(events_max, total_max));
        for (n, owner) in owners.iter().enumerate() {
            add(&mailboxes, Owner(*owner), n as u8);
            prop_assert!(mailboxes.len() <= total_max);
        }
        let mut kept = 0;
        for owner in 0..3 {
            let all: Vec<u8> = (0..).zip(&owners).filter(|(_, o)| **o == owner).map(|(n, _)| n).collect();
            let page = mailboxes.read(Owner(owner), &MailboxCursor::default(), usize::MAX);
            let newest = &all[all.len() - page.entries.len()..];
            prop_assert_eq!(numbers(&page), newest);
            prop_assert!(page.entries.len() <= events_max);
            prop_assert_eq!(page.dropped as usize, all.len() - page.entries.len());
            kept += page.entries.len();
        }
        prop_assert_eq!(mailboxes.len(), kept);
    }
}
