//! Rows of images compared with the whole expanded text, and after cuts.

use super::*;
use crate::prompt::drop_image_turns;
use proptest::prelude::*;
use std::ops::Range;
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

/// The bytes of an image with its marks in a prompt's text, where `open` and `close` are the first and the last ones.
fn marked(text: &str, image: usize, (open, close): (&str, &str)) -> Range<usize> {
    let open = open.replace('N', &image.to_string());
    let start = text.find(&format!("«{image}.0:")).expect("rows");
    let last = text.rfind(&format!("«{image}.")).expect("rows");
    let end = last + text[last..].find('»').expect("the end of the rows") + '»'.len_utf8();
    assert!(text[..start].ends_with(&open), "{text}");
    assert!(text[end..].starts_with(close), "{text}");
    start - open.len()..end + close.len()
}

/// Families with their templates, and the first and the last marks of an image, which has the number N.
fn families() -> Vec<(ModelHandle, (&'static str, &'static str))> {
    let queries = || slices::slices(media::plan::SliceRows::Queries(3));
    let tile = "<fake_token_around_image><row_1_col_1>";
    let qwen = ("<|vision_start|>", "<|vision_end|>");
    let gemma = ("\n\n<start_of_image>", "<end_of_image>\n\n");
    let lfm = ("<|image_start|><|img_row_1_col_1|>", "<|image_end|>");
    let minicpm = slices::MINICPM;
    let number = "<image_id>N</image_id><image>";
    vec![
        (
            model(SMOL_VLM, ImageMarks::Idefics3, tiles()),
            (tile, "<fake_token_around_image>"),
        ),
        (model(QWEN, ImageMarks::Qwen, resized()), qwen),
        (model(CHATML, ImageMarks::Qwen, square()), qwen),
        (model(GEMMA3, ImageMarks::Gemma3, square()), gemma),
        (
            model(CHATML, ImageMarks::Gemma4, square()),
            ("<|image>", "<image|>"),
        ),
        (
            model(PIXTRAL, ImageMarks::Pixtral, longest()),
            ("", "[IMG_END]"),
        ),
        (
            model(CHATML, ImageMarks::InternVl, square()),
            ("<img>", "</img>\n"),
        ),
        (model(LFM2, ImageMarks::Lfm2, split()), lfm),
        (model(CHATML, ImageMarks::Llava, square()), ("", "\n")),
        (
            model(minicpm, ImageMarks::MiniCpm25, queries()),
            ("<image>", "</image></slice>\n"),
        ),
        (
            model(minicpm, ImageMarks::MiniCpm26, queries()),
            (number, "</slice>\n"),
        ),
        (
            model(slices::QWEN46, ImageMarks::MiniCpm46, queries()),
            (number, "</slice>"),
        ),
    ]
}

/// Promise (Images): a prompt of which the last tokens stay begins at no length within an image or its marks, and is shorter than
/// that length only by such an image.
#[test]
fn cut_keeps_or_drops_an_image_with_all_its_marks() {
    for (model, marks) in families() {
        let family = model.vision.as_deref().expect("eyes").marks;
        let images = [picture(32, 32), picture(48, 16)];
        let parts = json!([
            image_part(0),
            text_part("ab"),
            image_part(1),
            text_part("what?")
        ]);
        let prompt = || conversation(vec![message("user", parts.clone())]);
        let whole = prepared(&model, prompt(), &images, Truncation::Disabled).expect("a prompt");
        let text = shown(&model, &whole);
        let places = [0, 1].map(|image| marked(&text, image, marks));
        let mut least = whole.ids.len() + 1;
        for most in (1..=whole.ids.len()).rev() {
            let cut = prepared(
                &model,
                prompt(),
                &images,
                Truncation::LastTokens(Some(most)),
            );
            let cut = match cut {
                Ok(cut) => cut,
                Err(error) => {
                    assert_eq!(error.problems[0].field, "truncate_prompt_tokens");
                    let why =
                        format!("truncate_prompt_tokens: is {most}; keeps no image of messages: ");
                    assert!(error.message.starts_with(&why), "{}", error.message);
                    let why = format!("are {least} tokens");
                    assert!(
                        error.message.ends_with(&why),
                        "{family:?}: {}",
                        error.message
                    );
                    continue;
                }
            };
            least = most;
            assert!(whole.ids.ends_with(&cut.ids), "{family:?} {most}");
            let start = text.len() - shown(&model, &cut).len();
            let is_within = |place: &Range<usize>| place.start < start && start < place.end;
            assert!(
                !places.iter().any(is_within),
                "{family:?} {most}: {}",
                &text[start..]
            );
            let is_behind = places.iter().any(|place| place.end == start);
            assert!(
                cut.ids.len() == most || is_behind,
                "{family:?} {most}: {}",
                &text[start..]
            );
        }
        assert!(least + 10 < whole.ids.len(), "{family:?}: one image stays");
    }
}

/// A token of a mark and the text before it is the image's, one of the marks of two images the later one's.
#[test]
fn tokens_of_marks_and_text_are_not_left_behind() {
    let vocabulary = Vocabulary::of_bytes().with_eos("<|eos|>");
    let vocabulary = vocabulary.with_control_tokens(&CONTROLS);
    let tokenizer = vocabulary
        .with_merges(&["Ċ Ċ", "ĊĊ Ċ", "ĊĊ ĊĊ"])
        .into_tokenizer();
    let gemma = ModelHandle {
        tokenizer,
        ..model(GEMMA3, ImageMarks::Gemma3, square())
    };
    let images = [picture(16, 16), picture(16, 16)];
    let parts = json!([image_part(0), image_part(1), text_part("what?")]);
    let prompt = || conversation(vec![message("user", parts.clone())]);
    let keep = |truncation| prepared(&gemma, prompt(), &images, truncation).expect("a prompt");
    let whole = keep(Truncation::Disabled);
    let want = "<start_of_turn>user\n\n\n<start_of_image>«0.0:4»<end_of_image>\n\n\n\n<start_of_image>«1.0:4»<end_of_image>\n\nwhat?";
    assert!(shown(&gemma, &whole).starts_with(want));
    let starts: Vec<String> = (1..=whole.ids.len())
        .filter_map(|most| {
            let truncation = Truncation::LastTokens(Some(most));
            let cut = prepared(&gemma, prompt(), &images, truncation).ok()?;
            Some(shown(&gemma, &cut).chars().take(18).collect())
        })
        .collect();
    let mut starts: Vec<&str> = starts.iter().map(String::as_str).collect();
    starts.dedup();
    let want = [
        "\n\n\n\n<start_of_imag",
        "\n\n\n<start_of_image",
        "r\n\n\n<start_of_imag",
        "er\n\n\n<start_of_ima",
        "ser\n\n\n<start_of_im",
        "user\n\n\n<start_of_i",
        "<start_of_turn>use",
    ];
    assert_eq!(starts, want);
}
