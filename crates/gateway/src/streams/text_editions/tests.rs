use super::*;
use futures_util::FutureExt;

fn at(steps: &[u64]) -> Vec<Position> {
    steps.iter().map(|&steps| Position::whole(steps)).collect()
}

fn editions() -> TextEditions {
    TextEditions::new(TextEdition::default())
}

#[test]
fn cursor_beyond_the_stored_tokens_is_of_another_text_until_it_names_the_edition() {
    let editions = editions();
    assert_eq!(editions.compare(&at(&[9]), 0), CursorText::Same);
    editions.expect();
    assert_eq!(editions.compare(&at(&[0]), 0), CursorText::Same);
    assert_eq!(editions.compare(&at(&[1]), 0), CursorText::Undecided);
    editions.propose(vec![7], 3);
    assert_eq!(editions.compare(&at(&[7]), 0), CursorText::Same);
    assert_eq!(editions.compare(&at(&[8]), 0), CursorText::Undecided);
    let beyond = at(&[8]);
    let mut decided = Box::pin(editions.decided(&beyond, 0));
    assert_eq!(decided.as_mut().now_or_never(), None);
    assert!(editions.begin(|| unreachable!("the proposed steps count")));
    assert_eq!(decided.now_or_never(), Some(()));
    assert_eq!(editions.told.get(), 3);
    assert_eq!(
        editions.compare(&at(&[8]), 0),
        CursorText::Diverged(at(&[7]))
    );
    let part = [Position { steps: 7, parts: 1 }];
    assert_eq!(editions.compare(&part, 2), CursorText::Diverged(at(&[7])));
    assert_eq!(editions.compare(&at(&[8]), 3), CursorText::Same);
    assert!(!editions.begin(Vec::new), "once for an owner");
}

#[test]
fn adopted_stream_has_one_text_until_its_engine_is_lost() {
    let editions = editions();
    editions.expect();
    editions.propose(vec![7, 5], 1);
    editions.set_requests(2);
    assert!(!editions.adopt());
    assert_eq!(editions.compare(&at(&[8, 0]), 0), CursorText::Undecided);
    assert!(editions.adopt());
    assert_eq!(editions.compare(&at(&[8, 9]), 0), CursorText::Same);
    assert!(editions.recorded().is_empty());
    assert!(editions.begin(|| vec![20, 30]));
    assert_eq!(editions.compare(&at(&[20, 30]), 0), CursorText::Same);
    let cut = CursorText::Diverged(at(&[4, 30]));
    assert_eq!(editions.compare(&at(&[4, 31]), 0), cut);
}

#[test]
fn later_owner_knows_all_editions_and_what_may_have_begun() {
    let first = editions();
    first.expect();
    first.propose(vec![7], 1);
    let recorded = first.recorded();
    assert_eq!(recorded[0].steps, [7]);
    let second = editions();
    second.restore(&recorded);
    second.expect();
    // A number that is not larger than the last one would hide the edition.
    second.propose(vec![12], 1);
    assert!(second.begin(Vec::new));
    assert_eq!(second.told.get(), 2);
    for (edition, steps, place) in [(0, 12, 7), (1, 13, 12)] {
        let diverged = CursorText::Diverged(at(&[place]));
        assert_eq!(second.compare(&at(&[steps]), edition), diverged);
    }
    assert_eq!(second.compare(&at(&[12]), 1), CursorText::Same);
    second.settle();
    assert_eq!(second.compare(&at(&[99]), 2), CursorText::Same);
}

#[test]
fn editions_are_bounded_and_the_oldest_place_stays() {
    let editions = editions();
    for number in 1..20 {
        editions.expect();
        editions.propose(vec![number + 5], number);
        editions.begin(Vec::new);
    }
    let kept = editions.recorded();
    assert_eq!(kept.len(), EDITIONS_MAX);
    assert_eq!(
        editions.compare(&at(&[7]), 0),
        CursorText::Diverged(at(&[6]))
    );
}

#[test]
fn stream_whose_choices_have_all_ended_has_no_other_text() {
    let editions = editions();
    editions.expect();
    editions.propose(vec![7], 1);
    assert_eq!(editions.compare(&at(&[9]), 0), CursorText::Undecided);
    editions.set_requests(0);
    assert_eq!(editions.compare(&at(&[9]), 0), CursorText::Same);
    assert!(!editions.begin(Vec::new));
}
