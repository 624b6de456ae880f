//! Prompts with images: the texts and rows that transformers' processors make, and what users cannot forge.

mod attached;
mod cuts;
mod processors;
mod slices;

use super::*;
use crate::images::{ImageMarks, ImagePart, Vision, measure};
use crate::prompt_limit::{PromptTruncation, Truncation};
use crate::request::GenerationParams;
use crate::request_record::PromptRecord;
use media::plan::{Fit, LongestEdge, Pinpoints, SmartResize, SplitLarge, Square, Tiles};
use media::{Detail, DetailRows, Filter, Limits, Normalization, PatchOrder, Recipe, Rule, Size};
use serde_json::json;
use testing::vocabulary::Vocabulary;
use text::{AnswerFormat, Tokenizer, image_part, text_part};

const SMOL_VLM: &str = "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";
const QWEN: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
const GEMMA3: &str = "{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' }}{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- else -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}{%- endif -%}<end_of_turn>\n{% endfor %}";
const PIXTRAL: &str = "{% for m in messages %}[INST]{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}{% if b.type == 'image' %}[IMG]{% else %}{{ b.text }}{% endif %}{% endfor %}{% endif %}[/INST]{% endfor %}";
const LFM2: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}{% if b.type == 'image' %}<image>{% else %}{{ b.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}";
const CHATML: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

const CONTROLS: [&str; 39] = [
    "<|im_start|>",
    "<|im_end|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    "<row_1_col_1>",
    "<row_1_col_2>",
    "<row_2_col_1>",
    "<row_2_col_2>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
    "[INST]",
    "[/INST]",
    "[IMG]",
    "[IMG_BREAK]",
    "[IMG_END]",
    "<IMG_CONTEXT>",
    "<img>",
    "</img>",
    "<|image>",
    "<image|>",
    "<|image_start|>",
    "<|image_end|>",
    "<|img_thumbnail|>",
    "<|img_row_1_col_1|>",
    "<|img_row_1_col_2|>",
    "</image>",
    "<slice>",
    "</slice>",
    "<image_id>",
    "</image_id>",
    "<unk>",
];

fn tokenizer() -> Tokenizer {
    let marks = Vocabulary::of_bytes()
        .with_eos("<|eos|>")
        .with_bos("<|bos|>");
    let tokenizer = marks.with_control_tokens(&CONTROLS).into_tokenizer();
    Arc::into_inner(tokenizer).expect("the only one")
}

fn recipe(rule: Rule) -> Recipe {
    Recipe {
        rule,
        patch: 4,
        order: PatchOrder::Raster,
        normalization: Normalization::HALF,
        rows: DetailRows::default(),
    }
}

/// Tiles of 16 pixels with 4 rows each, at most 2 × 2.
fn tiles() -> Rule {
    Rule::Tiles(Tiles {
        longest_edge: 32,
        tile: 16,
        patch: 4,
        shuffle: 2,
    })
}

/// Pictures of at most 4 rows, and tiles of 16 pixels, at most two.
fn split() -> Rule {
    Rule::SplitLarge(SplitLarge {
        tile: 16,
        patch: 4,
        merge: 2,
        tiles_min: 2,
        tiles_max: 2,
        rows_min: 1,
        rows_max: 4,
    })
}

fn square() -> Rule {
    Rule::Square(Square {
        edge: 16,
        patch: 4,
        pool: 2,
        filter: Filter::Bilinear,
        fit: Fit::Stretch,
    })
}

fn vision(marks: ImageMarks, rule: Rule) -> Vision {
    Vision {
        recipe: recipe(rule),
        marks,
        images_max: 3,
        limits: Limits::default(),
        fingerprint: [7; 32],
    }
}

fn model(template: &str, marks: ImageMarks, rule: Rule) -> ModelHandle {
    let vision = vision(marks, rule);
    let tokenizer = tokenizer().reserving(vision.marks.texts());
    let model =
        super::restored_tests::model(template, AnswerFormat::default(), Arc::new(tokenizer));
    ModelHandle {
        vision: Some(Arc::new(vision)),
        ..model
    }
}

/// A picture as BMP of 24 bits.
fn picture(width: u32, height: u32) -> ImagePart {
    let row = (width * 3).next_multiple_of(4);
    let mut bytes = b"BM".to_vec();
    for number in [54 + row * height, 0, 54, 40, width, height] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([1, 0, 24, 0]);
    for number in [0, row * height, 0, 0, 0, 0u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend((0..row * height).map(|at| at as u8));
    ImagePart {
        bytes: bytes.into(),
        detail: Detail::High,
        path: format!("p{width}"),
        url: None,
    }
}

fn message(role: &str, content: Value) -> Message {
    Message {
        role: role.to_owned(),
        content,
        rest: Map::new(),
    }
}

fn conversation(messages: Vec<Message>) -> Prompt {
    Prompt::Conversation {
        field: "messages",
        messages,
        tools: Vec::new(),
        continues: false,
        kwargs: Map::new(),
    }
}

fn prepared(
    model: &ModelHandle,
    prompt: Prompt,
    images: &[ImagePart],
    truncation: Truncation,
) -> Result<PreparedPrompt, ApiError> {
    let vision = model.vision.as_deref().expect("eyes");
    let measured = measure(vision, images).expect("images");
    let params = GenerationParams {
        truncation,
        max_tokens: Some(1),
        ..GenerationParams::default()
    };
    let encoder = PromptEncoder::new(model, 0).truncating(PromptTruncation::of(&params));
    let encoder = encoder.with_images(&measured);
    let mut prompts = encoder.prepare(vec![prompt], false, ParseOptions::default())?;
    Ok(prompts.pop().expect("one prompt"))
}

/// The prompt's text, with the number of rows in place of each run.
fn shown(model: &ModelHandle, prompt: &PreparedPrompt) -> String {
    let piece = |id: &u32| {
        if model.tokenizer.is_control(*id) {
            model.tokenizer.piece(*id).unwrap_or_default().as_bytes()
        } else {
            model.tokenizer.bytes(*id).unwrap_or_default()
        }
    };
    let (mut bytes, mut done) = (Vec::new(), 0);
    for run in &prompt.image_runs {
        prompt.ids[done..run.rows.start]
            .iter()
            .for_each(|id| bytes.extend(piece(id)));
        bytes.extend(format!("«{}.{}:{}»", run.image, run.run, run.rows.len()).bytes());
        done = run.rows.end;
    }
    prompt.ids[done..]
        .iter()
        .for_each(|id| bytes.extend(piece(id)));
    String::from_utf8(bytes).expect("text")
}

fn seen(text: &str) -> Vec<Message> {
    vec![message("user", json!([image_part(0), text_part(text)]))]
}

/// An image's own ratio, in patches of 4 pixels, of which 2 x 2 are a row.
fn resized() -> Rule {
    Rule::SmartResize(SmartResize {
        patch: 4,
        merge: 2,
        pixels_min: 64,
        pixels_max: 1 << 20,
    })
}

/// An image's own ratio with at most 32 pixels an edge, with the same patches.
fn longest() -> Rule {
    Rule::LongestEdge(LongestEdge {
        longest_edge: 32,
        patch: 4,
        merge: 2,
    })
}

/// Promise (Images): rows and the texts around them are those of transformers' processors, which `tools/oracle/vision_prompts.py` asked;
/// those of other families, and without a place in the template, are written here.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn prompts_are_those_of_transformers_processors() {
    let (resized, longest) = (resized(), longest());
    let pinpoints = Rule::Pinpoints(Pinpoints {
        tile: 16,
        patch: 4,
        resolutions: vec![Size::new(32, 16), Size::new(16, 32)],
    });
    let rows = [
        (
            "SmolVLM, tiles",
            model(SMOL_VLM, ImageMarks::Idefics3, tiles()),
            (32, 32),
            "<|im_start|>User:<fake_token_around_image><row_1_col_1>«0.0:4»<fake_token_around_image><row_1_col_2>«0.1:4»\n\
             <fake_token_around_image><row_2_col_1>«0.2:4»<fake_token_around_image><row_2_col_2>«0.3:4»\n\
             \n<fake_token_around_image><global-img>«0.4:4»<fake_token_around_image>what?<end_of_utterance>\nAssistant:",
        ),
        (
            "SmolVLM, two tiles",
            model(SMOL_VLM, ImageMarks::Idefics3, tiles()),
            (32, 16),
            "<|im_start|>User:<fake_token_around_image><row_1_col_1>«0.0:4»<fake_token_around_image><row_1_col_2>«0.1:4»\n\
             \n<fake_token_around_image><global-img>«0.2:4»<fake_token_around_image>what?<end_of_utterance>\nAssistant:",
        ),
        (
            "Qwen",
            model(QWEN, ImageMarks::Qwen, resized),
            (24, 16),
            "<|im_start|>user\n<|vision_start|>«0.0:6»<|vision_end|>what?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "Gemma 3",
            model(GEMMA3, ImageMarks::Gemma3, square()),
            (24, 16),
            "<start_of_turn>user\n\n\n<start_of_image>«0.0:4»<end_of_image>\n\nwhat?<end_of_turn>\n",
        ),
        (
            "Mistral",
            model(PIXTRAL, ImageMarks::Pixtral, longest),
            (24, 16),
            "[INST]«0.0:7»[IMG_END]what?[/INST]",
        ),
        (
            "InternVL, without a place in the template",
            model(CHATML, ImageMarks::InternVl, square()),
            (24, 16),
            "<|im_start|>user\n<img>«0.0:4»</img>\nwhat?<|im_end|>",
        ),
        (
            "LFM2-VL, one picture",
            model(LFM2, ImageMarks::Lfm2, split()),
            (16, 16),
            "<|im_start|>user\n<|image_start|>«0.0:4»<|image_end|>what?<|im_end|>",
        ),
        (
            "LFM2-VL, two tiles and the whole",
            model(LFM2, ImageMarks::Lfm2, split()),
            (48, 16),
            "<|im_start|>user\n<|image_start|><|img_row_1_col_1|>«0.0:4»<|img_row_1_col_2|>«0.1:4»\
             <|img_thumbnail|>«0.2:3»<|image_end|>what?<|im_end|>",
        ),
        (
            "LFM2-VL, without a place in the template",
            model(CHATML, ImageMarks::Lfm2, split()),
            (16, 16),
            "<|im_start|>user\n<|image_start|>«0.0:4»<|image_end|>what?<|im_end|>",
        ),
        (
            "Qwen, without a place in the template",
            model(CHATML, ImageMarks::Qwen, square()),
            (24, 16),
            "<|im_start|>user\n<|vision_start|>«0.0:4»<|vision_end|>what?<|im_end|>",
        ),
        (
            "Gemma 4, without a place in the template",
            model(CHATML, ImageMarks::Gemma4, square()),
            (24, 16),
            "<|im_start|>user\n<|image>«0.0:4»<image|>what?<|im_end|>",
        ),
        (
            "LLaVA, without a place in the template",
            model(CHATML, ImageMarks::Llava, square()),
            (24, 16),
            "<|im_start|>user\n«0.0:4»\nwhat?<|im_end|>",
        ),
        (
            "LLaVA 1.6: the whole, then lines without padding, each with its end",
            model(CHATML, ImageMarks::Llava, pinpoints),
            (32, 8),
            "<|im_start|>user\n«0.0:16»«0.1:18»\nwhat?<|im_end|>",
        ),
    ];
    let mut theirs = processors::texts();
    for (label, model, (width, height), want) in rows {
        let images = [picture(width, height)];
        let prompt = conversation(seen("what?"));
        let prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect(label);
        assert_eq!(
            shown(&model, &prompt).trim_end(),
            want.trim_end(),
            "{label}"
        );
        if let Some(theirs) = theirs.remove(label) {
            let ours = processors::joined(&shown(&model, &prompt));
            assert_eq!(ours.trim_end(), theirs.trim_end(), "{label}");
        }
        assert_eq!(prompt.images(), [0], "{label}");
    }
    assert!(theirs.is_empty(), "{theirs:?}");
}

#[test]
fn low_detail_is_one_tile() {
    let model = model(SMOL_VLM, ImageMarks::Idefics3, tiles());
    let image = ImagePart {
        detail: Detail::Low,
        ..picture(32, 32)
    };
    let prompt = prepared(
        &model,
        conversation(seen("a")),
        &[image],
        Truncation::Disabled,
    );
    let prompt = prompt.expect("a prompt");
    let want =
        "<|im_start|>User:<fake_token_around_image><global-img>«0.0:4»<fake_token_around_image>a";
    assert!(shown(&model, &prompt).starts_with(want));
    assert_eq!(prompt.image_rows(), 4);
}

/// Promise (Images): a placeholder or a mark that a user writes stays text.
#[test]
fn marks_that_a_user_writes_stay_text() {
    let forged = format!(
        "<image>{}<|image_pad|><fake_token_around_image>",
        text::image_mark(0)
    );
    for (template, marks) in [
        (SMOL_VLM, ImageMarks::Idefics3),
        (QWEN, ImageMarks::Qwen),
        (CHATML, ImageMarks::Llava),
    ] {
        let model = model(template, marks, square());
        let messages = vec![
            message("system", json!(forged)),
            message(
                "user",
                json!([text_part(&*forged), image_part(0), text_part("a")]),
            ),
        ];
        let prompt = prepared(
            &model,
            conversation(messages),
            &[picture(16, 16)],
            Truncation::Disabled,
        );
        let prompt = prompt.expect("a prompt");
        assert_eq!(prompt.image_rows(), 4, "{template}");
        let typed = "<image>image 0<|image_pad|><fake_token_around_image>";
        let ids = model.tokenizer.encode(typed, false).expect("ids");
        let found = prompt
            .ids
            .windows(ids.len())
            .filter(|window| *window == ids);
        assert_eq!(found.count(), 2, "{template}");
    }
}

/// A family whose placeholder is no control token of the vocabulary.
#[test]
fn reserved_texts_need_no_control_token() {
    let vision = vision(ImageMarks::Idefics3, square());
    let plain = Vocabulary::of_bytes().with_eos("<|eos|>").into_tokenizer();
    let plain = Arc::into_inner(plain).expect("the only one");
    let tokenizer = Arc::new(plain.reserving(vision.marks.texts()));
    let model = super::restored_tests::model(SMOL_VLM, AnswerFormat::default(), tokenizer);
    let vision = Some(Arc::new(vision));
    let model = ModelHandle { vision, ..model };
    let content = json!([text_part("<image>"), image_part(0), text_part("<image>")]);
    let prompt = conversation(vec![message("user", content)]);
    let prompt = prepared(&model, prompt, &[picture(16, 16)], Truncation::Disabled);
    let shown = shown(&model, &prompt.expect("a prompt"));
    let want =
        "<image><fake_token_around_image><global-img>«0.0:4»<fake_token_around_image><image>";
    assert!(shown.contains(want), "{shown}");
}

#[test]
fn template_that_loses_or_invents_images_gets_marks_in_the_text() {
    let invents = format!("<image>{SMOL_VLM}");
    // Parts with images in user messages alone are probed; this one drops the second.
    let drops = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}{% if loop.index < 3 %}<image>{% endif %}{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}";
    let content = json!([text_part("a"), image_part(0), text_part("b"), image_part(1)]);
    for template in [&*invents, drops] {
        let model = model(template, ImageMarks::Idefics3, square());
        let prompt = conversation(vec![message("user", content.clone())]);
        let images = [picture(16, 16), picture(8, 8)];
        let prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect("a prompt");
        let around = |run: &str| {
            format!("<fake_token_around_image><global-img>{run}<fake_token_around_image>")
        };
        let want = format!("a{}b{}", around("«0.0:4»"), around("«1.0:4»"));
        let shown = shown(&model, &prompt);
        assert!(shown.contains(&want), "{shown}");
    }
    let model = model("{{ messages[0].role }}", ImageMarks::Idefics3, square());
    let prompt = conversation(seen("a"));
    let error = prepared(&model, prompt, &[picture(16, 16)], Truncation::Disabled);
    assert_eq!(
        error.expect_err("nothing is rendered").code,
        "template_refused"
    );
}

#[test]
fn pieces_and_earlier_ids_hold_images() {
    let model = model(CHATML, ImageMarks::Llava, square());
    let bos = model.tokenizer.bos().expect("a token");
    let pieces = vec![
        PromptPiece::Template("<|bos|>a".to_owned()),
        PromptPiece::Image(1),
        PromptPiece::User("<image>".into()),
        PromptPiece::Image(0),
    ];
    let images = [picture(16, 16), picture(8, 8)];
    let alone = Prompt::Pieces(pieces.clone());
    let alone = prepared(&model, alone, &images, Truncation::Disabled).expect("a prompt");
    assert_eq!(shown(&model, &alone), "<|bos|>a«1.0:4»\n<image>«0.0:4»\n");
    let then = Prompt::Continued {
        context: vec![bos, 65, 66],
        then: Box::new(Prompt::Pieces(pieces)),
    };
    let later = prepared(&model, then, &images, Truncation::Disabled).expect("a prompt");
    assert_eq!(shown(&model, &later), "<|bos|>ABa«1.0:4»\n<image>«0.0:4»\n");
}

#[test]
fn images_that_do_not_fit_say_what_they_take() {
    let model = ModelHandle {
        context_max: 40,
        ..model(SMOL_VLM, ImageMarks::Idefics3, tiles())
    };
    let images = [picture(32, 32)];
    let error = prepared(
        &model,
        conversation(seen("aaaaaaaaaa")),
        &images,
        Truncation::Disabled,
    );
    let error = error.expect_err("20 rows and their marks");
    assert_eq!(error.code, "context_length_exceeded");
    let want = "The images take 20 of 40 tokens; detail low takes 4.";
    assert!(error.message.ends_with(want), "{}", error.message);
    assert_eq!(error.problems[0].constraint, error.message);
    let none_left = prepared(
        &model,
        conversation(seen(&"a".repeat(90))),
        &images,
        Truncation::LastTokens(None),
    );
    assert_eq!(
        none_left.expect_err("no image is left").code,
        "context_length_exceeded"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn images_that_are_not_read_are_named_together() {
    let vision = vision(ImageMarks::Idefics3, square());
    let part = |path: &str, bytes: &[u8]| ImagePart {
        bytes: bytes.into(),
        detail: Detail::Auto,
        path: path.to_owned(),
        url: None,
    };
    let broken = ImagePart {
        path: "broken".into(),
        bytes: picture(4, 4).bytes[..30].into(),
        detail: Detail::Auto,
        url: None,
    };
    let parts = [
        part("heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"),
        picture(16, 16),
        broken,
    ];
    let error = measure(&vision, &parts).expect_err("two are wrong");
    let problems: Vec<(&str, &str)> = error
        .problems
        .iter()
        .map(|p| (&*p.field, &*p.constraint))
        .collect();
    let heic = ("heic", "is HEIC: JPEG, PNG, WebP, GIF and BMP are read");
    assert_eq!(problems[0], heic);
    assert_eq!((problems.len(), problems[1].0), (2, "broken"));
    assert!(
        problems[1].1.starts_with("cannot be decoded as BMP"),
        "{}",
        problems[1].1
    );
    let limits = Limits {
        bytes_max: 100,
        ..Limits::default()
    };
    for (image, limits, want) in [
        (picture(16, 16), limits, "has 822 bytes, at most 100"),
        (
            picture(402, 1),
            Limits::default(),
            "has edges of 402 x 1 pixels: one may be at most 200 times the other",
        ),
        (
            picture(20, 20),
            Limits {
                pixels_max: 300,
                ..Limits::default()
            },
            "has 400 pixels (20 x 20), at most 300",
        ),
        (
            part("p", b""),
            Limits::default(),
            "is empty: send the bytes of an image",
        ),
        (
            part("p", b"%PDF-1.7"),
            Limits::default(),
            "is PDF: JPEG, PNG, WebP, GIF and BMP are read",
        ),
        (
            part("p", b"no image"),
            Limits::default(),
            "is no image that is known here: JPEG, PNG, WebP, GIF and BMP are read",
        ),
    ] {
        let vision = Vision {
            limits,
            ..vision.clone()
        };
        let error = measure(&vision, &[image]).expect_err(want);
        assert_eq!(error.problems[0].constraint, want);
    }
    let many = vec![picture(4, 4); 4];
    let error = measure(&vision, &many).expect_err("four");
    assert_eq!(
        error.message,
        "p4: is image 4 of 4, with those of earlier turns: at most 3 images are taken"
    );
}
