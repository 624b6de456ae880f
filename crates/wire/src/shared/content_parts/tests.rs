//! Texts, images and files in parts of every protocol.

use super::*;

/// The part in each protocol's words, and the error for the path `p`.
fn refused(part: &str, types: &PartTypes) -> String {
    let mut fields = Fields::parse(b"{}").expect("an object");
    let raw = serde_json::from_str(part).expect("JSON");
    assert_eq!(part_text(&mut fields, "p", raw, types), None, "{part}");
    fields.finish().expect_err("an error").message
}

/// Promise (APIs): an image in a message of any API is a 400 that names the field, in the same words.
#[test]
fn image_is_refused_in_the_same_words_in_every_protocol() {
    let png =
        "p: is an image (image/png, 4 bytes in base64), and this model takes no images: send text";
    let url = "p: is an image (a URL of 9 bytes), and this model takes no images: send text";
    for (part, types, want) in [
        (
            r#"{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}"#,
            &CHAT,
            png,
        ),
        (
            r#"{"type": "input_image", "image_url": "data:image/png;base64,\u0041AAA"}"#,
            &RESPONSES,
            png,
        ),
        (
            r#"{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}"#,
            &USER_BLOCKS,
            png,
        ),
        (
            r#"{"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}"#,
            &UI_PARTS,
            png,
        ),
        (
            r#"{"type": "image_url", "image_url": {"url": "http://a/"}}"#,
            &CHAT,
            url,
        ),
        (
            r#"{"type": "image", "source": {"type": "url", "url": "http://a/"}}"#,
            &TEXT_BLOCKS,
            url,
        ),
        (
            r#"{"type": "image_url"}"#,
            &CHAT,
            "p: is an image (without a source), and this model takes no images: send text",
        ),
    ] {
        let message = refused(part, types);
        assert!(message.contains(want), "{part}: {message}");
    }
    let mut fields = Fields::parse(b"{}").expect("an object");
    parse_images(
        &mut fields,
        "p",
        serde_json::from_str(r#"["AAAA"]"#).expect("JSON"),
    );
    parse_images(
        &mut fields,
        "none",
        serde_json::from_str("[]").expect("JSON"),
    );
    let message = fields.finish().expect_err("an error").message;
    assert!(
        message.contains("p: is an image (data, 4 bytes in base64)"),
        "{message}"
    );
    assert!(!message.contains("none"), "{message}");
}

#[test]
fn image_in_a_result_is_left_out() {
    let mut fields = Fields::parse(b"{}").expect("an object");
    for (parts, types) in [
        (
            r#"[{"type": "image_url", "image_url": {"url": "http://a/"}}, "x"]"#,
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
    ] {
        let raw = serde_json::from_str(parts).expect("JSON");
        let text = parts_text(&mut fields, "p[1].content", raw, types);
        assert_eq!(text, Some(format!("{LEFT_OUT_IMAGE}\nx")), "{parts}");
    }
    assert!(fields.left_out_names().eq(["p.image"]));
    fields.finish().expect("no error");
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
            part_text(&mut fields, "p", raw, types),
            Some(want),
            "{part}"
        );
    }
}

#[test]
fn part_of_another_protocol_or_without_a_text_is_refused() {
    for (part, types, want) in [
        (r#"{"type": "file", "file": {}}"#, &CHAT, FILES_MESSAGE),
        (
            r#"{"type": "file", "file": {"file_id": "file-1", "filename": "a.txt"}}"#,
            &CHAT,
            FILES_MESSAGE,
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
