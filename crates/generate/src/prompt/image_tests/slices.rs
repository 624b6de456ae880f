//! Prompts of MiniCPM-V: the texts of the published code around the whole of an image and its slices.

use super::*;
use media::plan::{SliceRows, Slices};

pub(super) const MINICPM: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}{% if b.type == 'image' %}(<image>./</image>)\n{% else %}{{ b.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}";
pub(super) const QWEN46: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for b in m.content %}{% if b.type == 'image' %}<|image_pad|>{% else %}{{ b.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}";

/// Slices of 16 pixels, at most four.
pub(super) fn slices(rows: SliceRows) -> Rule {
    Rule::Slices(Slices {
        slice: 16,
        patch: 4,
        slices_max: 4,
        rows,
    })
}

/// Promise (Images): rows of MiniCPM-V and the texts around them are those of the published code, and of transformers' processor.
#[test]
fn slices_have_the_marks_of_their_version() {
    let queries = || slices(SliceRows::Queries(3));
    let rows = [
        (
            "MiniCPM-V 2.5, one slice",
            model(CHATML, ImageMarks::MiniCpm25, queries()),
            (16, 16),
            "<|im_start|>user\n<image>«0.0:3»</image>\nwhat?<|im_end|>",
        ),
        (
            "MiniCPM-V 2.5, the whole and four slices",
            model(MINICPM, ImageMarks::MiniCpm25, queries()),
            (32, 32),
            "<|im_start|>user\n<image>«0.0:3»</image><slice><image>«0.1:3»</image><image>«0.2:3»</image>\n\
             <image>«0.3:3»</image><image>«0.4:3»</image></slice>\nwhat?<|im_end|>",
        ),
        (
            "MiniCPM-V 2.6, the whole and two slices",
            model(MINICPM, ImageMarks::MiniCpm26, queries()),
            (32, 16),
            "<|im_start|>user\n<image_id>0</image_id><image>«0.0:3»</image><slice>«0.1:3»</slice><slice>«0.2:3»</slice>\n\
             what?<|im_end|>",
        ),
        (
            "MiniCPM-V 2.6, without a place in the template, slices in two lines",
            model(CHATML, ImageMarks::MiniCpm26, queries()),
            (16, 32),
            "<|im_start|>user\n<image_id>0</image_id><image>«0.0:3»</image><slice>«0.1:3»</slice>\n<slice>«0.2:3»</slice>\n\
             what?<|im_end|>",
        ),
        (
            "MiniCPM-V 4.6, the whole and two slices",
            model(QWEN46, ImageMarks::MiniCpm46, slices(SliceRows::Merged(2))),
            (32, 16),
            "<|im_start|>user\n<image_id>0</image_id><image>«0.0:3»</image><slice>«0.1:4»</slice><slice>«0.2:4»</slice>\
             what?<|im_end|>",
        ),
    ];
    for (label, model, (width, height), want) in rows {
        let images = [picture(width, height)];
        let prompt = conversation(seen("what?"));
        let prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect(label);
        let found = shown(&model, &prompt);
        assert_eq!(found.trim_end(), want.trim_end(), "{label}");
    }
}

/// Images are numbered by their places in the prompt; rows of 4.6 have the positions of tokens.
#[test]
fn images_are_numbered_in_the_order_of_the_prompt() {
    let model = model(QWEN46, ImageMarks::MiniCpm46, slices(SliceRows::Merged(2)));
    let content = json!([image_part(1), text_part("a"), image_part(0)]);
    let prompt = conversation(vec![message("user", content)]);
    let images = [picture(16, 16), picture(8, 32)];
    let prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect("a prompt");
    let found = shown(&model, &prompt);
    assert!(
        found.contains("<image_id>0</image_id><image>«1.0:"),
        "{found}"
    );
    assert!(
        found.contains("a<image_id>1</image_id><image>«0.0:4»</image>"),
        "{found}"
    );
    assert!(prompt.image_runs.iter().all(|run| run.grid == (0, 0)));
}

/// A user's own marks stay text.
#[test]
fn marks_that_a_user_writes_stay_text() {
    let model = model(
        MINICPM,
        ImageMarks::MiniCpm26,
        slices(SliceRows::Queries(3)),
    );
    let typed = "(<image>./</image>)<slice><image_id>7</image_id>";
    let content = json!([text_part(typed), image_part(0), text_part("a")]);
    let prompt = conversation(vec![message("user", content)]);
    let images = [picture(16, 16)];
    let prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect("a prompt");
    assert_eq!(prompt.image_rows(), 3);
    let ids = model.tokenizer.encode(typed, false).expect("ids");
    let mut windows = prompt.ids.windows(ids.len());
    assert!(windows.any(|window| window == ids));
}
