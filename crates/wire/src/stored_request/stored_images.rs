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

/// The bytes of stored images; `None`: they are lost.
pub type FindImage<'a> = &'a dyn Fn(&StoredImage) -> Option<&'a [u8]>;

/// Takes the images of a request out of an item: those whose data URL is written as [`StoredItem::with_images`] writes it, so that
/// the item is shown as it came. Takes time with their bytes.
pub fn take_images(item: &mut Map<String, Value>, parts: &[ImagePart]) -> Vec<StoredImage> {
    let mut taken = Vec::new();
    let mut take = |url: &mut String, place: &str| {
        let start = url.find(BASE64).filter(|_| url.starts_with("data:"));
        let Some(start) = start.map(|at| at + BASE64.len()) else {
            return;
        };
        let is_this = |part: &&ImagePart| is_base64_of(&url[start..], &part.bytes);
        if let Some(part) = parts.iter().find(is_this) {
            let ImageRecord { sha256, bytes, .. } = part.to_record();
            url.truncate(start);
            taken.push(StoredImage {
                place: place.into(),
                sha256: sha256.into(),
                bytes,
            });
        }
    };
    take_from_object(item, &mut String::new(), &mut take);
    taken
}

/// The work on each URL of an image, with its place.
type Take<'a> = &'a mut dyn FnMut(&mut String, &str);

fn take_from_object(object: &mut Map<String, Value>, place: &mut String, take: Take<'_>) {
    for (name, value) in object {
        let length = place.len();
        place.push('/');
        place.push_str(&name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::String(url) if name == IMAGE_URL => take(url, place),
            Value::Object(object) if name == IMAGE_URL => {
                if let Some(Value::String(url)) = object.get_mut("url") {
                    place.push_str("/url");
                    take(url, place);
                }
            }
            value => take_from_value(value, place, take),
        }
        place.truncate(length);
    }
}

fn take_from_value(value: &mut Value, place: &mut String, take: Take<'_>) {
    match value {
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

impl StoredItem {
    /// The item as JSON with its images. In place of an image that is lost, the item has no URL and an `error`.
    pub fn with_images<'a>(&'a self, find: FindImage<'_>) -> Cow<'a, str> {
        if self.images.is_empty() {
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
        Cow::Owned(item.to_string())
    }

    /// Bytes of the item and of its images.
    pub fn stored_bytes(&self) -> usize {
        let images = self.images.iter();
        let images = images.fold(0, |sum: u64, image| sum.saturating_add(image.bytes));
        let text = self.id.len() + self.json.len();
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
            let images = take_images(&mut stored, &parts);
            assert!(!images.is_empty(), "{value}");
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
            assert!(take_images(&mut stored, &parts).is_empty(), "{value}");
            assert_eq!(Value::Object(stored), value);
        }
    }

    #[test]
    fn lost_image_is_an_error_in_its_part() {
        let value = json!({"content": [{"type": "input_image", "image_url": url(b"bytes")}]});
        let object = json!({"content_parts": [{"image_url": {"url": url(b"bytes")}}]});
        for (value, place) in [(value, "/content/0"), (object, "/content_parts/0")] {
            let mut stored = item(value);
            let images = take_images(&mut stored, &[part(b"bytes")]);
            let stored = StoredItem::new("msg_1".to_owned(), stored).holding(images);
            let shown = stored.with_images(&|_| None);
            let shown: Value = serde_json::from_str(&shown).expect("JSON");
            let part = shown.pointer(place).expect("the part");
            assert_eq!(part["image_url"], Value::Null, "{shown}");
            assert_eq!(part["error"]["code"], IMAGE_LOST, "{shown}");
        }
    }
}
