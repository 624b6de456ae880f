//! Images of stored items: the bytes of a data URL are taken out of the item, and put back where the item is shown.

use super::StoredItem;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generate::images::{ImagePart, ImageRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The name of an image's URL in an item, or of the object with it.
const IMAGE_URL: &str = "image_url";
/// Names of members that hold an address, which the parser of images reads.
const SOURCES: [&str; 4] = [IMAGE_URL, "url", "image", "data"];
/// The end of a data URL's head.
const BASE64: &str = ";base64,";
/// Code of the error in place of an image whose bytes are lost.
pub const IMAGE_LOST: &str = "image_lost";

/// An image that was taken out of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// JSON pointer of the data URL in the item, which ends before the bytes there.
    pub place: Box<str>,
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub sha256: Box<str>,
    /// Number of bytes.
    pub bytes: u64,
}

/// The address of an image as the client sent it, where the item has a data URL with the bytes that were fetched from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentUrl {
    /// JSON pointer of the data URL in the item.
    pub place: Box<str>,
    /// The address.
    pub url: Box<str>,
}

/// The images of one item, next to its JSON.
#[derive(Debug, Default, PartialEq)]
pub struct ItemImages {
    /// Images that were taken out.
    pub taken: Vec<StoredImage>,
    /// Addresses of images that were fetched.
    pub sent_urls: Vec<SentUrl>,
}

/// The bytes of stored images; `None`: they are lost.
pub type FindImage<'a> = &'a dyn Fn(&StoredImage) -> Option<&'a [u8]>;

/// Gives the items of a request the images that were fetched for it, as data URLs, so that a continuation has the same bytes. With
/// `in_files`, takes images out of the items: those that were fetched, and those whose data URL is written as
/// [`StoredItem::with_images`] writes it, so that the item is shown as it came. Takes time with their bytes.
pub fn take_images(
    items: &mut [Map<String, Value>],
    parts: &[ImagePart],
    in_files: bool,
) -> Vec<ItemImages> {
    let mut fetched: Vec<&ImagePart> = parts.iter().filter(|part| part.url.is_some()).collect();
    let of_item = |item| {
        let mut images = ItemImages::default();
        let mut take = |text: &mut String, place: &str| {
            let part = if let Some(part) = next_fetched(&mut fetched, text, place) {
                let start = format!("data:{}{BASE64}", part.media_type());
                images.sent_urls.push(SentUrl {
                    place: place.into(),
                    url: std::mem::replace(text, start).into(),
                });
                if !in_files {
                    STANDARD.encode_string(&part.bytes, text);
                }
                Some(part)
            } else if in_files {
                cut_data_url(text, place, parts)
            } else {
                None
            };
            if let Some(part) = part.filter(|_| in_files) {
                images.taken.push(StoredImage::new(part, place));
            }
        };
        take_from_object(item, &mut String::new(), &mut take);
        images
    };
    items.iter_mut().map(of_item).collect()
}

/// The image that was fetched from this address. Where a request has an address several times, each one has its own bytes.
fn next_fetched<'p>(
    fetched: &mut Vec<&'p ImagePart>,
    text: &str,
    place: &str,
) -> Option<&'p ImagePart> {
    let name = place.rsplit('/').next().unwrap_or_default();
    let is_this = |part: &&ImagePart| part.url.as_deref() == Some(text.trim_ascii());
    let first = fetched.iter().position(is_this)?;
    if !SOURCES.contains(&name) {
        return None;
    }
    let is_last = !fetched[first + 1..].iter().any(is_this);
    Some(if is_last {
        fetched[first]
    } else {
        fetched.remove(first)
    })
}

/// Cuts the bytes of one of these images off its data URL.
fn cut_data_url<'p>(
    url: &mut String,
    place: &str,
    parts: &'p [ImagePart],
) -> Option<&'p ImagePart> {
    let part = place.strip_suffix("/url").unwrap_or(place);
    if !part.ends_with("/image_url") || !url.starts_with("data:") {
        return None;
    }
    let start = url.find(BASE64)? + BASE64.len();
    let mut parts = parts.iter();
    let part = parts.find(|part| is_base64_of(&url[start..], &part.bytes))?;
    url.truncate(start);
    Some(part)
}

/// The work on each text, with its place.
type Take<'a> = &'a mut dyn FnMut(&mut String, &str);

fn take_from_object(object: &mut Map<String, Value>, place: &mut String, take: Take<'_>) {
    for (name, value) in object {
        let length = place.len();
        place.push('/');
        place.push_str(&name.replace('~', "~0").replace('/', "~1"));
        take_from_value(value, place, take);
        place.truncate(length);
    }
}

fn take_from_value(value: &mut Value, place: &mut String, take: Take<'_>) {
    match value {
        Value::String(text) => take(text, place),
        Value::Object(object) => take_from_object(object, place, take),
        Value::Array(values) => {
            for (index, value) in values.iter_mut().enumerate() {
                let length = place.len();
                place.push_str(&format!("/{index}"));
                take_from_value(value, place, take);
                place.truncate(length);
            }
        }
        _ => {}
    }
}

fn is_base64_of(text: &str, bytes: &[u8]) -> bool {
    let length = bytes.len().div_ceil(3) * 4;
    text.len() == length && STANDARD.encode(bytes) == text
}

impl StoredImage {
    fn new(part: &ImagePart, place: &str) -> Self {
        let ImageRecord { sha256, bytes, .. } = part.to_record();
        Self {
            place: place.into(),
            sha256: sha256.into(),
            bytes,
        }
    }
}

impl StoredItem {
    /// The item as JSON with its images, for a request that continues the conversation. In place of an image that is lost, the
    /// item has no URL and an `error`.
    pub fn with_images<'a>(&'a self, find: FindImage<'_>) -> Cow<'a, str> {
        self.filled(find, &[])
    }

    /// As [`Self::with_images`], with the addresses that the client sent in place of what was fetched from there.
    pub fn as_sent<'a>(&'a self, find: FindImage<'_>) -> Cow<'a, str> {
        self.filled(find, &self.sent_urls)
    }

    fn filled<'a>(&'a self, find: FindImage<'_>, sent_urls: &[SentUrl]) -> Cow<'a, str> {
        if self.images.is_empty() && sent_urls.is_empty() {
            return Cow::Borrowed(&self.json);
        }
        let Ok(mut item) = serde_json::from_str::<Value>(&self.json) else {
            return Cow::Borrowed(&self.json);
        };
        for image in &self.images {
            match find(image) {
                Some(bytes) => {
                    if let Some(Value::String(url)) = item.pointer_mut(&image.place) {
                        STANDARD.encode_string(bytes, url);
                    }
                }
                None => mark_lost(&mut item, image),
            }
        }
        for sent in sent_urls {
            if let Some(Value::String(url)) = item.pointer_mut(&sent.place) {
                *url = sent.url.to_string();
            }
        }
        Cow::Owned(item.to_string())
    }

    /// Bytes of the item and of its images.
    pub fn stored_bytes(&self) -> usize {
        let images = self.images.iter();
        let images = images.fold(0, |sum: u64, image| sum.saturating_add(image.bytes));
        let urls = self.sent_urls.iter().map(|sent| sent.url.len());
        let text = self.id.len() + self.json.len() + urls.sum::<usize>();
        text.saturating_add(usize::try_from(images).unwrap_or(usize::MAX))
    }
}

fn mark_lost(item: &mut Value, image: &StoredImage) {
    let part = image.place.strip_suffix("/url").unwrap_or(&image.place);
    let part = part.rsplit_once('/').map_or("", |(part, _)| part);
    if let Some(Value::Object(part)) = item.pointer_mut(part) {
        let message = format!(
            "the image with SHA-256 {} is missing from the server's journal, or damaged",
            image.sha256
        );
        part.insert(IMAGE_URL.to_owned(), Value::Null);
        let error = json!({"code": IMAGE_LOST, "message": message});
        part.insert("error".to_owned(), error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::Detail;

    fn part(bytes: &[u8]) -> ImagePart {
        ImagePart {
            bytes: bytes.into(),
            detail: Detail::Auto,
            path: "input".to_owned(),
            url: None,
        }
    }

    fn url(bytes: &[u8]) -> String {
        format!("data:image/png;base64,{}", STANDARD.encode(bytes))
    }

    fn item(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(item) => item,
            other => panic!("{other}"),
        }
    }

    /// The images of an item, which are in files.
    fn taken(stored: &mut Map<String, Value>, parts: &[ImagePart]) -> ItemImages {
        let images = take_images(std::slice::from_mut(stored), parts, true);
        images.into_iter().next().expect("one item")
    }

    #[test]
    fn images_are_taken_out_and_put_back_byte_for_byte() {
        let (first, second): (&[u8], &[u8]) = (b"first image", b"second");
        let rows = [
            json!({"content": [{"image_url": url(first), "detail": "low"}, {"text": "a/~b"}]}),
            json!({"content_parts": [
                {"image_url": {"url": url(second)}}, {"image_url": {"url": url(first)}}]}),
            json!({"output": [{"type": "input_image", "image_url": url(first)}],
                "a/~b": {"image_url": url(second)}}),
        ];
        let parts = [part(first), part(second)];
        for value in rows {
            let mut stored = item(value.clone());
            let images = taken(&mut stored, &parts);
            assert!(
                !images.taken.is_empty() && images.sent_urls.is_empty(),
                "{value}"
            );
            let whole = StoredItem::new("msg_1".to_owned(), item(value.clone()));
            let cut = StoredItem::new("msg_1".to_owned(), stored).holding(images);
            for image in [first, second].map(|bytes| STANDARD.encode(bytes)) {
                assert!(!cut.json.contains(&image), "{}", cut.json);
            }
            let find = |image: &StoredImage| {
                let named = |bytes: &&[u8]| *part(bytes).to_record().sha256 == *image.sha256;
                [first, second].into_iter().find(named)
            };
            assert_eq!(cut.with_images(&find), *whole.json);
            assert!(cut.stored_bytes() > cut.json.len() + second.len());
            let read = serde_json::to_string(&cut).expect("JSON");
            let read = serde_json::from_str::<StoredItem>(&read).expect("an item");
            assert_eq!(read, cut);
        }
    }

    #[test]
    fn what_would_not_be_the_same_stays_in_the_item() {
        let parts = [part(b"bytes")];
        let text = STANDARD.encode(b"bytes");
        for value in [
            json!({"image_url": format!("data:image/png;base64,{}", text.trim_end_matches('='))}),
            json!({"image_url": format!("data:image/png;base64,\n{text}")}),
            json!({"image_url": text}),
            json!({"image_url": url(b"others")}),
            json!({"text": url(b"bytes"), "image_url": 7}),
            json!({"image_url": {"url": null}}),
        ] {
            let mut stored = item(value.clone());
            assert_eq!(taken(&mut stored, &parts), ItemImages::default(), "{value}");
            assert_eq!(Value::Object(stored), value);
        }
    }

    #[test]
    fn lost_image_is_an_error_in_its_part() {
        let value = json!({"content": [{"type": "input_image", "image_url": url(b"bytes")}]});
        let object = json!({"content_parts": [{"image_url": {"url": url(b"bytes")}}]});
        for (value, place) in [(value, "/content/0"), (object, "/content_parts/0")] {
            let mut stored = item(value);
            let images = taken(&mut stored, &[part(b"bytes")]);
            let stored = StoredItem::new("msg_1".to_owned(), stored).holding(images);
            let shown = stored.with_images(&|_| None);
            let shown: Value = serde_json::from_str(&shown).expect("JSON");
            let part = shown.pointer(place).expect("the part");
            assert_eq!(part["image_url"], Value::Null, "{shown}");
            assert_eq!(part["error"]["code"], IMAGE_LOST, "{shown}");
        }
    }

    /// One address may have other bytes with each fetch.
    #[test]
    fn fetched_image_is_the_items_own_and_shown_by_its_address() {
        const ADDRESS: &str = "https://a.test/x.png";
        let fetched = |bytes: &[u8]| ImagePart {
            url: Some(ADDRESS.into()),
            ..part(bytes)
        };
        let parts = [fetched(b"first"), part(b"other"), fetched(b"second")];
        let text = json!({"type": "input_text", "text": ADDRESS});
        let sent = [
            json!({"content": [text, {"type": "input_image", "image_url": ADDRESS}]}),
            json!({"output": [{"image_url": {"url": format!(" {ADDRESS}"), "detail": "low"}}]}),
        ];
        let data = |bytes: &[u8]| {
            let data = STANDARD.encode(bytes);
            format!("data:application/octet-stream;base64,{data}")
        };
        let seen = [
            json!({"content": [text, {"type": "input_image", "image_url": data(b"first")}], "id": "1"}),
            json!({"output": [{"image_url": {"url": data(b"second"), "detail": "low"}}], "id": "1"}),
        ];
        for in_files in [false, true] {
            let mut items = sent.clone().map(item);
            let images = take_images(&mut items, &parts, in_files).into_iter();
            for (number, (cut, images)) in items.into_iter().zip(images).enumerate() {
                assert_eq!(images.taken.len(), usize::from(in_files));
                let cut = StoredItem::new("1".to_owned(), cut).holding(images);
                let find = |image: &StoredImage| {
                    let named = |part: &&ImagePart| part.to_record().sha256 == *image.sha256;
                    parts.iter().find(named).map(|part| &*part.bytes)
                };
                let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
                assert_eq!(json(&cut.with_images(&find)), seen[number]);
                let mut shown = sent[number].clone();
                shown["id"] = json!("1");
                assert_eq!(json(&cut.as_sent(&find)), shown);
                let read = serde_json::to_string(&cut).expect("JSON");
                assert_eq!(
                    serde_json::from_str::<StoredItem>(&read).expect("an item"),
                    cut
                );
                let lost = cut.as_sent(&|_| None);
                assert_eq!(lost.contains(IMAGE_LOST), in_files, "{lost}");
            }
        }
    }
}
