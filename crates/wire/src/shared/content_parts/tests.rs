//! Texts, images and files in parts of every protocol.

use super::*;
use serde_json::json;

/// One pixel: 70 bytes of PNG.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// The error for a part with the path `p`.
fn refused(part: &str, types: &PartTypes) -> String {
    let mut fields = Fields::parse(b"{}").expect("an object");
    let raw = serde_json::from_str(part).expect("JSON");
    assert_eq!(parse_part(&mut fields, "p", raw, types), None, "{part}");
    fields.finish().expect_err("an error").message
}

/// The images of a part with the path `p`, which is the image 0.
fn seen(part: &str, types: &PartTypes) -> Vec<generate::images::ImagePart> {
    let mut fields = Fields::parse(b"{}").expect("an object");
    let raw = serde_json::from_str(part).expect("JSON");
    let parsed = parse_part(&mut fields, "p", raw, types);
    let images = fields.take_images();
    fields.finish().expect(part);
    assert_eq!(parsed, Some(ContentPart::Image(0)), "{part}");
    images
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn image_has_the_same_bytes_in_every_protocol() {
    let url_safe = PIXEL.replace('+', "-").replace('/', "_");
    let lines = format!("{}\\n{}", &PIXEL[..40], PIXEL[40..].trim_end_matches('='));
    let of_png = format!("data:image/png;base64,{PIXEL}");
    let part = |part: Value| part.to_string();
    for (part, types) in [
        (
            part(json!({"type": "image_url", "image_url": {"url": of_png}})),
            &CHAT,
        ),
        (
            part(json!({"type": "image_url", "image_url": of_png})),
            &CHAT,
        ),
        (
            part(json!({"type": "input_image", "image_url": of_png})),
            &RESPONSES,
        ),
        (
            part(json!({"type": "input_image", "image_url": of_png})),
            &RESPONSES_RESULTS,
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": of_png}})),
            &CHAT_RESULTS,
        ),
        (
            part(
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PIXEL}}),
            ),
            &USER_BLOCKS,
        ),
        (
            part(json!({"type": "image", "source": {"type": "url", "url": of_png}})),
            &RESULT_BLOCKS,
        ),
        (
            part(json!({"type": "file", "mediaType": "image/webp", "url": of_png})),
            &UI_PARTS,
        ),
        (
            part(json!({"type": "file", "mediaType": "IMAGE/PNG", "url": of_png})),
            &UI_PARTS,
        ),
        (part(json!({"type": "file", "url": of_png})), &UI_PARTS),
        (
            part(json!({"type": "file", "mimeType": "image/png", "data": PIXEL})),
            &UI_PARTS,
        ),
        (part(json!({"type": "image", "image": of_png})), &UI_PARTS),
        (part(json!({"type": "image", "image": PIXEL})), &UI_PARTS),
        (
            part(json!({"type": "media", "mediaType": "image/png", "data": PIXEL})),
            &UI_RESULTS,
        ),
        (
            part(json!({"type": "file-data", "mediaType": "image/png", "data": PIXEL})),
            &UI_RESULTS,
        ),
        (
            part(json!({"type": "image-url", "url": of_png})),
            &UI_RESULTS,
        ),
        (
            part(
                json!({"type": "file", "mediaType": "image", "data": {"type": "url", "url": of_png}}),
            ),
            &UI_RESULTS,
        ),
        (
            part(json!({"type": "computer_screenshot", "image_url": of_png})),
            &RESPONSES_RESULTS,
        ),
        // Letters of URLs, line ends and no padding, another label, and an escape of JSON.
        (
            format!(r#"{{"type": "image_url", "image_url": "data:;base64,{url_safe}"}}"#),
            &CHAT,
        ),
        (
            format!(r#"{{"type": "image_url", "image_url": "data:image/png;base64,{lines}"}}"#),
            &CHAT,
        ),
        (
            format!(
                r#"{{"type": "image_url", "image_url": "DATA:text/html;base64,\u0069{}"}}"#,
                &PIXEL[1..]
            ),
            &CHAT,
        ),
    ] {
        let images = seen(&part, types);
        let image = &images[0];
        assert_eq!(image.bytes.len(), 70, "{part}");
        assert_eq!((&*image.path, images.len()), ("p", 1), "{part}");
        assert_eq!(image.detail, media::Detail::Auto, "{part}");
    }
}

#[test]
fn detail_is_read_where_each_protocol_has_it() {
    use media::Detail::{High, Low};
    for (part, types, want) in [
        (
            json!({"type": "image_url", "image_url": {"url": "data:,a", "detail": "low"}}),
            &CHAT,
            Low,
        ),
        (
            json!({"type": "input_image", "image_url": "data:,a", "detail": "high"}),
            &RESPONSES,
            High,
        ),
        (
            json!({"type": "input_image", "image_url": "data:,a", "detail": "original"}),
            &RESPONSES,
            High,
        ),
    ] {
        assert_eq!(seen(&part.to_string(), types)[0].detail, want, "{part}");
    }
    let message = refused(
        r#"{"type": "image_url", "image_url": {"url": "data:,a", "detail": "most"}}"#,
        &CHAT,
    );
    assert_eq!(
        message,
        "p.image_url.detail: must be low, auto, high or original"
    );
}

/// Promise (APIs): an image that cannot be read is a 400 that names the part, in the same words in every API.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn image_is_refused_in_the_same_words_in_every_protocol() {
    let remote = "p: is a URL, and remote images are off (vision.remote): send a data URL with the image in base64";
    let stored =
        "p: names a file: files are not stored by this server: send image_url with a data URL";
    let none = "p: is an image without a source: send a data URL, or base64";
    for (part, types, want) in [
        (
            r#"{"type": "image_url", "image_url": {"url": "http://a/"}}"#,
            &CHAT,
            remote,
        ),
        (
            r#"{"type": "image", "source": {"type": "url", "url": "https://a/b"}}"#,
            &USER_BLOCKS,
            remote,
        ),
        (
            r#"{"type": "input_image", "image_url": "HTTP://a/"}"#,
            &RESPONSES,
            remote,
        ),
        (
            r#"{"type": "file", "mediaType": "image/png", "url": "http://a/"}"#,
            &UI_PARTS,
            remote,
        ),
        (
            r#"{"type": "image", "source": {"type": "file", "file_id": "f"}}"#,
            &USER_BLOCKS,
            stored,
        ),
        (
            r#"{"type": "input_image", "file_id": "f"}"#,
            &RESPONSES,
            stored,
        ),
        (
            r#"{"type": "image-file-id", "fileId": "f"}"#,
            &UI_RESULTS,
            stored,
        ),
        (
            r#"{"type": "image", "source": {"type": "bogus", "data": "AAAA"}}"#,
            &USER_BLOCKS,
            "p.source.type: must be base64, url or file",
        ),
        (r#"{"type": "image", "image": {"0": 137}}"#, &UI_PARTS, none),
        (
            r#"{"type": "image", "image": "https://a/b.png"}"#,
            &UI_PARTS,
            remote,
        ),
        (r#"{"type": "image_url"}"#, &CHAT, none),
        (
            r#"{"type": "image", "source": {"type": "base64"}}"#,
            &USER_BLOCKS,
            none,
        ),
        (
            r#"{"type": "image_url", "image_url": "file:///etc/passwd"}"#,
            &CHAT,
            "p: is neither a data URL nor an http or https URL: files and other schemes are not read",
        ),
        (
            r#"{"type": "image_url", "image_url": "data:image/png;base64,A?AA"}"#,
            &CHAT,
            "p: is not base64: character 2 is `?`",
        ),
        (
            r#"{"type": "image_url", "image_url": "data:image/png;base64,"}"#,
            &CHAT,
            "p: is empty: send the bytes of an image",
        ),
        (
            r#"{"type": "image", "source": {"type": "base64", "data": "AAAA"}}"#,
            &TEXT_BLOCKS,
            "p: is an image: only text is read here",
        ),
    ] {
        assert_eq!(refused(part, types), want, "{part}");
    }
}

#[test]
fn list_of_images_in_base64() {
    let mut fields = Fields::parse(b"{}").expect("an object");
    let list = json!([PIXEL, format!("data:image/png;base64,{PIXEL}")]).to_string();
    let raw = serde_json::from_str(&list).expect("JSON");
    assert_eq!(
        crate::shared::images::parse_images(&mut fields, "images", raw),
        [0, 1]
    );
    let paths: Vec<String> = fields
        .take_images()
        .into_iter()
        .map(|image| image.path)
        .collect();
    assert_eq!(paths, ["images[0]", "images[1]"]);
    for (list, want) in [
        (
            r#"["http://a/"]"#,
            "images[0]: is a URL, and remote images are off (vision.remote)",
        ),
        (
            r#"[1]"#,
            "images: must be a list of at most 1024 images in base64",
        ),
        (
            r#""AAAA""#,
            "images: must be a list of at most 1024 images in base64",
        ),
    ] {
        let mut fields = Fields::parse(b"{}").expect("an object");
        let raw = serde_json::from_str(list).expect("JSON");
        crate::shared::images::parse_images(&mut fields, "images", raw);
        let message = fields.finish().expect_err("an error").message;
        assert!(message.starts_with(want), "{message}");
    }
}

#[test]
fn content_keeps_the_order_of_texts_and_images() {
    let mut fields = Fields::parse(b"{}").expect("an object");
    let image = json!({"type": "image_url", "image_url": "data:,a"});
    for (parts, want) in [
        (json!(["a", "b"]), json!("a\nb")),
        (json!([]), json!("")),
        (
            json!(["a", image, "b", "c"]),
            json!([{"type": "text", "text": "a"}, {"type": "image", "image": 0}, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}]),
        ),
        (json!([image]), json!([{"type": "image", "image": 1}])),
        (
            json!(["", image, image]),
            json!([{"type": "image", "image": 2}, {"type": "image", "image": 3}]),
        ),
    ] {
        let text = parts.to_string();
        let raw = serde_json::from_str(&text).expect("JSON");
        assert_eq!(content(&mut fields, "p", raw, &CHAT), Some(want), "{parts}");
    }
    fields.finish().expect("no error");
}

const RESULTS: [(&str, &PartTypes); 3] = [
    (
        r#"[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, "x"]"#,
        &CHAT_RESULTS,
    ),
    (
        r#"[{"type": "input_image", "image_url": "data:image/png;base64,AA"}, {"type": "input_text", "text": "x"}]"#,
        &RESPONSES_RESULTS,
    ),
    (
        r#"[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}, {"type": "text", "text": "x"}]"#,
        &RESULT_BLOCKS,
    ),
];

/// Agents send results again with each request, so an image in one does not end the conversation.
#[test]
fn image_in_a_result_is_left_out_for_a_model_that_reads_text_only() {
    let mut fields = Fields::parse(b"{}").expect("an object").for_text_only();
    for (parts, types) in RESULTS {
        let raw = serde_json::from_str(parts).expect("JSON");
        let text = content(&mut fields, "p[1].content", raw, types);
        let want = "(an image, which this model cannot read)\nx";
        assert_eq!(text, Some(json!(want)), "{parts}");
    }
    assert!(fields.left_out_names().eq(["p.image"]));
    assert!(fields.take_images().is_empty());
    fields.finish().expect("no error");
}

#[test]
fn image_in_a_result_is_seen_by_a_model_that_takes_images() {
    for (parts, types) in RESULTS {
        let mut fields = Fields::parse(b"{}").expect("an object");
        let raw = serde_json::from_str(parts).expect("JSON");
        let parsed = content(&mut fields, "p[1].content", raw, types);
        let want = json!([{"type": "image", "image": 0}, {"type": "text", "text": "x"}]);
        assert_eq!(parsed, Some(want), "{parts}");
        assert_eq!(fields.take_images().len(), 1, "{parts}");
    }
}

#[test]
fn image_for_a_model_that_reads_text_only_is_named_and_not_decoded() {
    let mut fields = Fields::parse(b"{}").expect("an object").for_text_only();
    let raw =
        serde_json::from_str(r#"{"type": "image_url", "image_url": "data:image/png;base64,?"}"#);
    let part = parse_part(&mut fields, "p", raw.expect("JSON"), &CHAT);
    assert_eq!(part, Some(ContentPart::Image(0)));
    let images = fields.take_images();
    assert_eq!((&*images[0].path, images[0].bytes.len()), ("p", 0));
}

#[test]
fn text_file_is_its_text() {
    let file = "YSxiCjEsMgo="; // a,b\n1,2\n
    let in_url = |media_type: &str| format!("data:{media_type};base64,{file}");
    let rows = [
        (
            json!({"type": "file", "file": {"filename": "t.csv", "file_data": in_url("text/csv")}}),
            &CHAT,
            "t.csv\n",
        ),
        (
            json!({"type": "file", "file": {"file_data": file}}),
            &CHAT,
            "",
        ),
        (
            json!({"type": "input_file", "filename": "t.json", "file_data": in_url("application/json")}),
            &RESPONSES,
            "t.json\n",
        ),
        (
            json!({"type": "input_file", "file_data": in_url("text/plain;charset=utf-8")}),
            &RESPONSES,
            "",
        ),
        (
            json!({"type": "file", "mediaType": "text/markdown", "url": in_url("text/markdown")}),
            &UI_PARTS,
            "",
        ),
        (
            json!({"type": "document", "title": "T", "source": {"type": "base64", "media_type": "text/plain", "data": file}}),
            &USER_BLOCKS,
            "T\n",
        ),
    ];
    for (part, types, before) in rows {
        let mut fields = Fields::parse(b"{}").expect("an object");
        let text = part.to_string();
        let raw = serde_json::from_str(&text).expect("JSON");
        let want = format!("{before}a,b\n1,2\n");
        assert_eq!(
            parse_part(&mut fields, "p", raw, types),
            Some(ContentPart::Text(want)),
            "{part}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of parts")]
fn part_of_another_protocol_or_without_a_text_is_refused() {
    for (part, types, want) in [
        (r#"{"type": "file", "file": {}}"#, &CHAT, FILES_MESSAGE),
        (
            r#"{"type": "file", "file": {"file_id": "file-1", "filename": "a.txt"}}"#,
            &CHAT,
            STORED_MESSAGE,
        ),
        (
            r#"{"type": "input_file", "file_id": "file-1"}"#,
            &RESPONSES,
            STORED_MESSAGE,
        ),
        // A PDF, once without its type; bytes that are not UTF-8; a sound.
        (
            r#"{"type": "input_file", "file_data": "data:application/pdf;base64,YQ=="}"#,
            &RESPONSES,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "input_file", "file_data": "JVBERi0xLjc="}"#,
            &RESPONSES,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "input_file", "file_url": "http://a/b.txt"}"#,
            &RESPONSES,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "/w=="}}"#,
            &USER_BLOCKS,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "file", "mediaType": "audio/wav", "url": "data:audio/wav;base64,YQ=="}"#,
            &UI_PARTS,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "file", "mediaType": "text/plain"}"#,
            &UI_PARTS,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "document", "source": {"type": "url"}}"#,
            &USER_BLOCKS,
            FILES_MESSAGE,
        ),
        (
            r#"{"type": "summary_text", "text": "a"}"#,
            &CHAT,
            CHAT.message,
        ),
        (r#""a""#, &RESPONSES, RESPONSES.message),
        (
            r#"{"type": "input_text", "text": 1}"#,
            &RESPONSES,
            "p.text: must be a string",
        ),
    ] {
        let message = refused(part, types);
        assert!(message.contains(want), "{part}: {message}");
    }
}
