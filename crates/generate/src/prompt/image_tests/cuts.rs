//! Rows of images compared with the whole expanded text, and after cuts.

use super::*;
use crate::prompt::drop_image_turns;
use proptest::prelude::*;
use text::images_of;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Ids and rows are those of the whole expanded text, whatever stands around images; a cut is never within an image.
    #[test]
    fn rows_are_where_the_expanded_text_has_them(
        turns in prop::collection::vec(
            (prop::sample::select(vec!["user", "system", "assistant"]), prop::collection::vec(
                prop_oneof![3 => "[ab \n]{0,6}".prop_map(Some), 2 => Just(None)], 0..5)),
            1..5,
        ),
        sizes in prop::collection::vec((1u32..40, 1u32..40), 3),
        most in 1usize..200,
    ) {
        let model = model(SMOL_VLM, ImageMarks::Idefics3, tiles());
        let images: Vec<ImagePart> = sizes.iter().map(|&(width, height)| picture(width, height)).collect();
        let mut image = 0..3;
        let messages: Vec<Message> = turns.iter().map(|(role, parts)| {
            let parts = parts.iter().filter_map(|part| match part {
                Some(text) => Some(text_part(text.as_str())),
                None if *role == "user" => image.next().map(image_part),
                None => None,
            });
            message(role, Value::Array(parts.collect()))
        }).map(|message| match message.content.as_array() {
            Some(parts) if parts.iter().all(|part| part["type"] == "text") => {
                let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
                Message { content: json!(texts.join("\n")), ..message }
            }
            _ => message,
        }).collect();
        let whole = prepared(&model, conversation(messages.clone()), &images, Truncation::Disabled);
        let whole = whole.expect("a prompt");
        let mut expanded = shown(&model, &whole);
        for run in &whole.image_runs {
            let mark = format!("«{}.{}:{}»", run.image, run.run, run.rows.len());
            expanded = expanded.replacen(&mark, &"<image>".repeat(run.rows.len()), 1);
        }
        prop_assert_eq!(&whole.ids, &model.tokenizer.encode_rendered(&expanded).expect("ids"));
        let pad = model.tokenizer.id_of("<image>").expect("a token");
        let is_in_run = |at: usize| whole.image_runs.iter().any(|run| run.rows.contains(&at));
        for (at, id) in whole.ids.iter().enumerate() {
            prop_assert_eq!(*id == pad, is_in_run(at), "{}", at);
        }
        let order: Vec<usize> = (0..image.start).collect();
        prop_assert_eq!(whole.images(), order);
        let cut = prepared(&model, conversation(messages), &images, Truncation::LastTokens(Some(most)));
        let Ok(cut) = cut else {
            prop_assert!(!whole.image_runs.is_empty());
            return Ok(());
        };
        prop_assert!(cut.ids.len() <= most.max(1));
        prop_assert!(whole.ids.ends_with(&cut.ids));
        let rows = |prompt: &PreparedPrompt, image: usize| -> Vec<(usize, usize)> {
            let runs = prompt.image_runs.iter().filter(|run| run.image == image);
            runs.map(|run| (run.run, prompt.ids.len() - run.rows.start)).collect()
        };
        for image in cut.images() {
            prop_assert_eq!(rows(&cut, image), rows(&whole, image));
        }
        let pads = cut.ids.iter().filter(|id| **id == pad).count();
        prop_assert_eq!(pads, cut.image_rows());
    }
}

#[test]
fn turns_are_dropped_with_their_images() {
    let model = ModelHandle {
        context_max: 120,
        ..model(CHATML, ImageMarks::Llava, square())
    };
    let turn = |image: usize| {
        message(
            "user",
            json!([image_part(image), text_part("a".repeat(30))]),
        )
    };
    let messages = vec![turn(0), message("assistant", json!("b")), turn(1)];
    let images = [picture(16, 16), picture(8, 8)];
    let all = prepared(
        &model,
        conversation(messages.clone()),
        &images,
        Truncation::Turns,
    );
    assert_eq!(all.expect("both").images(), [0, 1]);
    let shorter = ModelHandle {
        context_max: 80,
        ..model
    };
    let last = prepared(&shorter, conversation(messages), &images, Truncation::Turns);
    let last = last.expect("the last turn");
    assert_eq!(last.images(), [1]);
    assert!(shown(&shorter, &last).contains("«1.0:4»"));
}

#[test]
fn surplus_images_are_dropped_with_their_turns() {
    let turn = |image: usize| message("user", json!([image_part(image), text_part("a")]));
    let answer = || message("assistant", json!("b"));
    let messages = [turn(0), answer(), turn(1), answer(), turn(2)];
    for (images_max, messages_left, images_left) in [
        (3, 5, vec!["p4", "p5", "p6"]),
        (2, 3, vec!["p5", "p6"]),
        (1, 1, vec!["p6"]),
        // The last turn stays.
        (0, 5, vec!["p4", "p5", "p6"]),
    ] {
        let mut prompts = [conversation(messages.to_vec())];
        let mut images = vec![picture(4, 4), picture(5, 5), picture(6, 6)];
        drop_image_turns(&mut prompts, &mut images, images_max);
        let paths: Vec<_> = images.iter().map(|image| &*image.path).collect();
        assert_eq!(paths, images_left, "{images_max}");
        let [Prompt::Conversation { messages, .. }] = &prompts else {
            panic!("a conversation");
        };
        assert_eq!(messages.len(), messages_left, "{images_max}");
        let contents = messages.iter().map(|message| &message.content);
        let numbers: Vec<usize> = contents.flat_map(images_of).collect();
        let want: Vec<usize> = (0..images_left.len()).collect();
        assert_eq!(numbers, want, "{images_max}");
    }
}
