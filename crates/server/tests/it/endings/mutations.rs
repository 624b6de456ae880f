//! Invalid transcripts, which the state machine must reject.
//!
//! Promise (Streams): the judging automaton rejects doubled, missing, misplaced and late items.

use crate::support::automaton::{Closes, Item, Rules, Story, accept};
use crate::support::framing::{Event, job, openai, sse, sse_before_the_cut};
use crate::support::messages;

fn rules(closes: Closes, choices: u64, counts: bool) -> Rules {
    Rules {
        choices,
        closes,
        counts,
        counts_errors: true,
    }
}

fn text(choice: u64, text: &str) -> Item {
    let text = text.to_owned();
    Item::Text { choice, text }
}

fn end(choice: u64) -> Item {
    let (word, tokens) = ("stop".to_owned(), None);
    Item::End {
        choice,
        word,
        tokens,
    }
}

fn error() -> Item {
    Item::Error {
        code: "code".to_owned(),
        message: "words".to_owned(),
    }
}

/// A complete transcript without an error.
fn good() -> Vec<Item> {
    vec![
        Item::Sign,
        Item::Opening,
        text(0, "a"),
        Item::Sign,
        text(0, "b"),
        end(0),
        Item::Usage(2),
        Item::Done,
    ]
}

fn bad() -> Vec<Item> {
    vec![Item::Opening, text(0, "a"), Item::Usage(1), error()]
}

const GOOD: Closes = Closes::Good;

#[test]
fn correct_transcripts_are_accepted() {
    let story = accept(rules(GOOD, 1, true), &good()).expect("a good ending");
    assert_eq!((story.text(), story.tokens), ("ab", Some(2)));
    let story = accept(rules(GOOD, 1, true), &bad()).expect("a bad ending");
    assert_eq!(story.error, Some(("code".to_owned(), "words".to_owned())));
    let rows = [
        ("refused", GOOD, 1, vec![Item::Sign, error()]),
        (
            "closed",
            Closes::Always,
            1,
            [bad(), vec![Item::Done]].concat(),
        ),
        (
            "one of two failed",
            GOOD,
            2,
            vec![text(0, "a"), end(0), Item::Usage(1), error()],
        ),
        (
            "no last frame",
            Closes::Never,
            1,
            vec![text(0, "a"), end(0), Item::Usage(1)],
        ),
        (
            "figures",
            Closes::Always,
            1,
            vec![text(0, "a"), Item::Figures(1), error(), Item::Done],
        ),
    ];
    for (case, closes, choices, items) in rows {
        let story = accept(rules(closes, choices, true), &items);
        assert!(story.is_ok(), "{case}: {story:?}");
    }
}

#[test]
fn missing_doubled_or_swapped_items_are_rejected() {
    for (whole, rules) in [
        (good(), rules(GOOD, 1, true)),
        (bad(), rules(GOOD, 1, true)),
    ] {
        let told = accept(rules, &whole).expect("right");
        let same = |items: &[Item]| accept(rules, items).is_ok_and(|story| story == told);
        for at in 0..whole.len() {
            let harmless = matches!(whole[at], Item::Sign | Item::Opening);
            let mut without = whole.clone();
            let item = without.remove(at);
            assert!(harmless || !same(&without), "without {at}: {item:?}");
            let mut twice = whole.clone();
            twice.insert(at, item.clone());
            assert!(harmless || !same(&twice), "twice {at}: {item:?}");
            for to in 0..at {
                let mut moved = without.clone();
                moved.insert(to, item.clone());
                let swapped_sign = whole[to..=at].iter().any(|i| matches!(i, Item::Sign));
                let equal = moved == whole || harmless || swapped_sign;
                assert!(equal || !same(&moved), "{item:?} from {at} to {to}");
            }
        }
        for cut in 0..whole.len() {
            assert!(accept(rules, &whole[..cut]).is_err(), "cut before {cut}");
        }
        for item in [
            Item::Sign,
            text(0, "x"),
            end(0),
            Item::Usage(2),
            error(),
            Item::Done,
        ] {
            let more = [&whole[..], std::slice::from_ref(&item)].concat();
            assert!(accept(rules, &more).is_err(), "{item:?} after the end");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn wrong_transcripts_are_rejected() {
    let rows = [
        ("nothing", GOOD, true, vec![]),
        ("signs alone", GOOD, true, vec![Item::Sign, Item::Opening]),
        ("[DONE] alone", GOOD, true, vec![Item::Done]),
        (
            "[DONE] after an error",
            GOOD,
            true,
            [bad(), vec![Item::Done]].concat(),
        ),
        ("no [DONE] after an error", Closes::Always, true, bad()),
        ("[DONE] where there is none", Closes::Never, true, good()),
        (
            "two endings",
            GOOD,
            true,
            vec![text(0, "a"), end(0), end(0), Item::Usage(1), Item::Done],
        ),
        (
            "an error after the end",
            GOOD,
            true,
            vec![text(0, "a"), end(0), Item::Usage(1), error()],
        ),
        (
            "two errors",
            GOOD,
            true,
            vec![text(0, "a"), Item::Usage(1), error(), error()],
        ),
        (
            "text after the end",
            GOOD,
            true,
            vec![end(0), text(0, "a"), Item::Usage(1), Item::Done],
        ),
        (
            "text after the counts",
            GOOD,
            true,
            vec![Item::Usage(1), text(0, "a"), error()],
        ),
        (
            "tokens and no counts before an error",
            GOOD,
            true,
            vec![text(0, "a"), error()],
        ),
        (
            "no counts at a good ending",
            GOOD,
            true,
            vec![text(0, "a"), end(0), Item::Done],
        ),
        (
            "counts that nobody asked for",
            GOOD,
            false,
            vec![text(0, "a"), end(0), Item::Usage(1), Item::Done],
        ),
        (
            "counts that shrink",
            GOOD,
            true,
            vec![
                text(0, "a"),
                Item::Figures(3),
                end(0),
                Item::Usage(2),
                Item::Done,
            ],
        ),
        (
            "a choice too many",
            GOOD,
            true,
            vec![text(1, "a"), end(0), Item::Usage(1), Item::Done],
        ),
        (
            "a beginning in the middle",
            GOOD,
            true,
            vec![
                text(0, "a"),
                Item::Opening,
                end(0),
                Item::Usage(1),
                Item::Done,
            ],
        ),
    ];
    for (case, closes, counts, items) in rows {
        let story: Result<Story, String> = accept(rules(closes, 1, counts), &items);
        assert!(story.is_err(), "{case}: {story:?}");
    }
    let one_of_two = [text(0, "a"), end(0), Item::Usage(1), Item::Done];
    assert!(accept(rules(GOOD, 2, true), &one_of_two).is_err());
    let silent = Item::Error {
        code: String::new(),
        message: "words".to_owned(),
    };
    assert!(accept(rules(GOOD, 1, true), &[silent]).is_err());
}

#[test]
fn broken_framing_is_rejected() {
    for text in [
        "data: {}",
        "data: {}\n",
        "data: 1\ndata: 2\n\n",
        "id: 1\n\n",
        "retry: 250\n\n",
        "retry: 3000\ndata: x\n\n",
        "data: x\n\nretry: 250\ndata: y\n\n",
        "what: 1\n\n",
        "data\n\n",
    ] {
        assert!(sse(text).is_err(), "{text:?}");
    }
    let events = sse(": ping\n\nid: 7\ndata: x\n\n").expect("two events");
    assert_eq!(events.len(), 2);
    assert_eq!(
        sse_before_the_cut(": ping\n\nid: 7\ndata: x\n").expect("one"),
        [Event::Comment]
    );
    let frames = |data: &[&str]| -> Vec<Event> {
        let event = |data: &&str| Event::Data {
            id: None,
            name: None,
            data: (*data).to_owned(),
        };
        data.iter().map(event).collect()
    };
    let gap = [
        r#"{"type":"token","t":"a","i":0}"#,
        r#"{"type":"token","t":"b","i":2}"#,
    ];
    assert!(job(&frames(&gap)).is_err(), "a token is missing");
    assert!(job(&frames(&[r#"{"type":"news"}"#])).is_err());
    assert!(openai(&frames(&["{}"])).is_err());
    assert!(openai(&frames(&["{"])).is_err());
    let named = |text: &str| messages::frames(&sse(text).expect("whole events"));
    let begun =
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0}\n\n";
    let text = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"a\"}}\n\n";
    assert!(named(&format!("{begun}{text}")).is_ok());
    assert!(named(text).is_err(), "a block that never began");
    assert!(
        named(&text.replacen("block_delta", "block", 1)).is_err(),
        "another name"
    );
    assert!(named("data: {\"type\":\"ping\"}\n\n").is_err(), "no name");
}
