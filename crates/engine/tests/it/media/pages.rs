//! Pages of the prefix cache that have rows of images.

use super::{Part, alone, bench, bench_of, encoder, image, model, question, read, request};
use crate::support::Random;
use engine::fake::{FakeInput, FakeModel};
use engine::{CacheSalt, EngineConfig, Request};

#[test]
fn same_image_at_the_same_place_is_found_again() {
    let (mut bench, log) = bench();
    let ask = |bench: &mut super::Bench, parts: &[Part]| {
        let mut asked = bench.ask(request(bench, parts, 8), 1);
        bench.run();
        (read(&mut asked).0, asked.progress.cached_tokens())
    };
    let first = question(image(1, 22, 3));
    let (tokens, cached) = ask(&mut bench, &first);
    assert_eq!((cached, log.begun()), (0, 1));
    // Six tokens, 22 rows and three tokens are seven full pages.
    assert_eq!(ask(&mut bench, &first), (tokens.clone(), 28));
    // The next turn: the answer, another image, and the first one again.
    let mut turn = first.to_vec();
    turn.extend([
        Part::Text(tokens),
        Part::Image(image(2, 10, 1)),
        Part::Image(image(1, 22, 3)),
        Part::Text(vec![4]),
    ]);
    let (_, cached) = ask(&mut bench, &turn);
    assert_eq!(cached, 36, "with the answer's pages");
    assert_eq!(log.begun(), 2, "the first image is encoded once");
    let stats = bench.handle.stats();
    assert_eq!((stats.encodings(), stats.encoding_hits()), (2, 1));
    // Another place is another prompt.
    let (_, cached) = ask(&mut bench, &first[1..]);
    assert_eq!((cached, log.begun()), (0, 2));
}

/// Promise (Engine): two images share a page only if their keys are equal in all 256 bits, and requests with other salts
/// share none.
#[test]
fn two_images_with_one_prompt_never_share_a_page() {
    const PAIRS: u64 = 10_000;
    let encoder = encoder(false, false);
    let mut bench = bench_of(FakeModel::new(model()), &encoder, EngineConfig::default());
    let mut random = Random(11);
    for pair in 0..PAIRS {
        let key: [u8; 32] = std::array::from_fn(|_| random.next() as u8);
        let mut other = key;
        let salts = [0, u128::from(pair % 97 == 0)];
        if salts[1] == 0 {
            // All but one bit are equal: 32-bit parts collide.
            other[random.below(32) as usize] ^= 1 << random.below(8);
        }
        let mut cached = [0; 2];
        for (at, key) in [key, other].into_iter().enumerate() {
            let mut asked = request(&bench, &question(image(pair * 2 + at as u64, 9, 1)), 1);
            asked.media[0].key = key;
            asked.terms.salt = CacheSalt(salts[at]);
            let asked = bench.ask(asked, 1);
            bench.run();
            cached[at] = asked.progress.cached_tokens();
        }
        // The text before the image has one full page.
        assert!(cached[1] <= 4, "pair {pair}: {cached:?}");
    }
    assert_eq!(encoder.log.finished(), 2 * PAIRS, "nor rows");
}

#[test]
fn equal_images_side_by_side_are_told_apart_by_their_rows() {
    // Rows of one number follow each other: only the chain tells which row of the image a page begins with.
    let encoder = encoder(false, false);
    let mut bench = bench_of(FakeModel::new(model()), &encoder, EngineConfig::default());
    for rows in [3, 4, 5, 8, 11] {
        let one = Part::Image(image(rows as u64, rows, 1));
        for before in 0..5 {
            for images in 1..5 {
                let mut parts = vec![Part::Text(vec![1; 1 + before])];
                parts.extend(vec![one.clone(); images]);
                parts.push(Part::Text(vec![2; 3]));
                let mut asked = bench.ask(request(&bench, &parts, 8), 1);
                bench.run();
                let wanted = alone(&encoder, &parts, &|_| {});
                assert_eq!(
                    read(&mut asked).0,
                    wanted,
                    "{images} of {rows} after {before}"
                );
            }
        }
    }
    // One key for images of other sizes, as a caller with a mistake has: their rows have other numbers.
    let of_size = |bench: &mut super::Bench, rows| {
        let same_key = |request: &mut Request| request.media[0].key = [1; 32];
        let input = FakeInput {
            rows,
            ..image(70, 0, 1)
        };
        let mut asked = request(bench, &question(input), 8);
        same_key(&mut asked);
        let mut asked = bench.ask(asked, 1);
        bench.run();
        assert_eq!(
            read(&mut asked).0,
            alone(&encoder, &question(input), &same_key)
        );
    };
    of_size(&mut bench, 8);
    of_size(&mut bench, 12);
}

#[test]
fn pages_that_end_within_an_image_are_continued() {
    for blocks in [false, true] {
        let encoder = encoder(false, blocks);
        let mut bench = bench_of(FakeModel::new(model()), &encoder, EngineConfig::default());
        let parts = question(image(3, 21, 2));
        let first = &parts[..2];
        // Seven pages, of which the last is not full: the image's last rows are computed anew.
        for parts in [first, &parts[..], first] {
            let mut asked = bench.ask(request(&bench, parts, 8), 1);
            bench.run();
            assert_eq!(read(&mut asked).0, alone(&encoder, parts, &|_| {}));
            bench.steps(2);
        }
        assert!(bench.handle.stats().prefix_hit_tokens() >= 24 + 24);
    }
}
