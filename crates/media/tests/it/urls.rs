//! URLs and base64 as clients send them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use media::{ImageSource, Limits, decode_base64};
use proptest::prelude::*;
use testing::heap;

fn read(url: &str) -> Result<ImageSource<'_>, String> {
    ImageSource::of_url("messages[0].content[1].image_url", url, &Limits::default())
        .map_err(|error| error.to_string())
}

#[test]
fn urls_are_read_recognized_or_named_in_the_error() {
    let bytes = |bytes: &[u8]| Ok(ImageSource::Bytes(bytes.to_vec()));
    let remote = |url| Ok(ImageSource::Remote(url));
    let wrong = |reason: &str| Err(format!("messages[0].content[1].image_url {reason}"));
    let scheme =
        "is neither a data URL nor an http or https URL: files and other schemes are not read";
    let cases = [
        ("data:image/png;base64,YWJj", bytes(b"abc")),
        ("DATA:image/png;BASE64,YWJj", bytes(b"abc")),
        ("data:;base64,YWI=", bytes(b"ab")),
        ("data:;base64,YWI", bytes(b"ab")),
        ("data:;base64,YWI%3D", bytes(b"ab")),
        ("data:;base64,YW\r\nJj\n", bytes(b"abc")),
        ("data:;base64, _-8", bytes(&[0xff, 0xef])),
        ("data:;base64,/%2B8=", bytes(&[0xff, 0xef])),
        ("data:image/svg+xml;utf8,%3Csvg%2f>", bytes(b"<svg/>")),
        ("data:,100%", bytes(b"100%")),
        (
            "https://example.org/a.png",
            remote("https://example.org/a.png"),
        ),
        (
            " HTTP://example.org/a.png\n",
            remote("HTTP://example.org/a.png"),
        ),
        ("", wrong("is empty: send the bytes of an image")),
        (
            "data:;base64,",
            wrong("is empty: send the bytes of an image"),
        ),
        ("data:,", wrong("is empty: send the bytes of an image")),
        (
            "data:image/png",
            wrong("is no data URL with a comma after its type"),
        ),
        ("file:///etc/passwd", wrong(scheme)),
        ("/etc/passwd", wrong(scheme)),
        ("https://", wrong(scheme)),
        ("ftp://example.org/a.png", wrong(scheme)),
        (
            "data:;base64,YW*j",
            wrong("is not base64: character 3 is `*`"),
        ),
        (
            "data:;base64,YWJjY",
            wrong("is not base64: its length is not that of any bytes, so it has been cut"),
        ),
        (
            "data:;base64,YQ==YWJj",
            wrong("is not base64: characters follow its end"),
        ),
    ];
    for (url, expected) in cases {
        assert_eq!(read(url), expected, "{url:?}");
    }
}

#[test]
fn base64_alone_may_be_a_data_url() {
    for text in ["YWJj", "data:image/png;base64,YWJj", "YW Jj\n"] {
        let found = decode_base64("images[0]", text, &Limits::default());
        assert_eq!(found.expect("three bytes"), b"abc");
    }
}

#[test]
fn a_long_url_is_refused_before_anything_is_allocated() {
    let limits = Limits {
        bytes_max: 1000,
        ..Limits::default()
    };
    for data in ["A".repeat(1 << 20), "A\n".repeat(1 << 19)] {
        for start in ["data:;base64,", "data:,"] {
            let url = format!("{start}{data}");
            heap::take_thread_peak();
            let before = heap::thread_held();
            let found = ImageSource::of_url("image", &url, &limits);
            let peak = heap::take_thread_peak() - before;
            let error = found.expect_err("too long").to_string();
            assert!(error.ends_with("bytes, at most 1000"), "{error}");
            assert!(peak < 10_000, "{peak} bytes");
        }
    }
}

proptest! {
    #[test]
    fn every_spelling_of_base64_is_read(bytes in prop::collection::vec(any::<u8>(), 1..300), at in 0_usize..400) {
        for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            let mut text = engine.encode(&bytes);
            text.insert_str(at.min(text.len()), "\r\n ");
            let url = format!("data:image/webp;base64,{text}");
            prop_assert_eq!(read(&url), Ok(ImageSource::Bytes(bytes.clone())));
        }
        let escaped: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
        let url = format!("data:,{escaped}");
        prop_assert_eq!(read(&url), Ok(ImageSource::Bytes(bytes)));
    }
}
