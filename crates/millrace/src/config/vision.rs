//! Settings of images: which tower a model sees with, and the bounds of what requests send.

use media::DetailRows;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Images in requests (docs/images.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Vision {
    /// Maximum number of images in a request.
    #[schemars(
        range(min = 1, max = 256),
        extend("x-reload" = "restart", "x-reason" = "pages of a document, or a conversation with some screenshots")
    )]
    pub(crate) images_max: usize,
    /// Maximum size of an image's file in bytes.
    #[schemars(
        range(min = 1024, max = 1_u64 << 30),
        extend("x-reload" = "restart", "x-reason" = "a photo of a telephone as PNG")
    )]
    pub(crate) image_bytes_max: u64,
    /// Maximum number of pixels of an image, width times height.
    #[schemars(
        range(min = 1024, max = 1_u64 << 30),
        extend("x-reload" = "restart", "x-reason" = "cameras make 12 to 48 megapixels; a bomb has thousands")
    )]
    pub(crate) image_pixels_max: u64,
    /// Maximum number of rows of an image without `detail` or with `auto`, in models whose pictures have any size; `low` has 256.
    #[schemars(
        range(min = 16, max = 16_384),
        extend("x-reload" = "restart", "x-reason" = "1.3 megapixels: coordinates of small things are found")
    )]
    pub(crate) image_tokens_max: u32,
    /// Maximum number of rows of an image with `detail: high`.
    #[schemars(
        range(min = 16, max = 16_384),
        extend("x-reload" = "restart", "x-reason" = "4 megapixels; the work of the tower grows with the square")
    )]
    pub(crate) image_tokens_high: u32,
    /// Format in which matrices of a tower in F32, F16 or BF16 are computed.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "rows as exact as the file"))]
    pub(crate) quantize: TowerFormat,
    /// Size of the cache of encoded images: an image that was seen before is not encoded again.
    #[schemars(
        range(min = 0, max = 1_u64 << 20),
        extend("x-reload" = "restart", "x-reason" = "60 images of 1,024 rows in a model of 8B")
    )]
    pub(crate) cache_mib: usize,
    /// Memory for files and pixels of images of all requests; further ones are rejected with 503.
    #[schemars(
        range(min = 1, max = 1_u64 << 20),
        extend("x-reload" = "live", "x-reason" = "a megapixel takes 3 MB: a hundred images of requests that wait or run")
    )]
    pub(crate) pixels_mib: u64,
    /// Memory for the decoding of images; one that needs more alone is rejected.
    #[schemars(
        range(min = 1, max = 1_u64 << 20),
        extend("x-reload" = "restart", "x-reason" = "an image of 50 megapixels takes 4 to 7 bytes a pixel while it is decoded")
    )]
    pub(crate) decode_mib: u64,
}

impl Default for Vision {
    fn default() -> Self {
        let (limits, rows) = (media::Limits::default(), DetailRows::default());
        Self {
            images_max: 16,
            image_bytes_max: limits.bytes_max,
            image_pixels_max: limits.pixels_max,
            image_tokens_max: rows.auto,
            image_tokens_high: rows.high,
            quantize: TowerFormat::default(),
            cache_mib: 256,
            pixels_mib: 512,
            decode_mib: 384,
        }
    }
}

impl Vision {
    /// Bytes of files and pixels.
    pub(crate) fn pixels_bytes(&self) -> u64 {
        self.pixels_mib << 20
    }

    /// Bytes that decoding holds.
    pub(crate) fn decode_bytes(&self) -> u64 {
        self.decode_mib << 20
    }

    /// Rows of an image by detail.
    pub(crate) fn detail_rows(&self) -> DetailRows {
        DetailRows {
            low: DetailRows::default().low.min(self.image_tokens_max),
            auto: self.image_tokens_max,
            high: self.image_tokens_high,
        }
    }

    /// More detail has no fewer rows.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let (auto, high) = (self.image_tokens_max, self.image_tokens_high);
        (auto > high).then(|| {
            let why = format!("{auto} is more than vision.image_tokens_high ({high})");
            ("vision.image_tokens_max", why)
        })
    }

    /// The bounds of one image.
    pub(crate) fn limits(&self) -> media::Limits {
        media::Limits {
            bytes_max: self.image_bytes_max,
            pixels_max: self.image_pixels_max,
            decode_bytes_max: self.decode_bytes(),
            ..media::Limits::default()
        }
    }
}

/// Format of a tower's matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum TowerFormat {
    /// As in the file.
    #[default]
    #[serde(rename = "as_stored")]
    AsStored,
    /// 8 bits per weight and a scale for each 32.
    #[serde(rename = "q8_0")]
    Q8,
}

/// The file with the tower of a model (`model.mmproj`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MmprojChoice {
    /// The file next to the model that fits it, if there is one.
    #[default]
    Auto,
    /// None: the model reads text only.
    Off,
    /// This file, or an error at load.
    File(PathBuf),
}

impl FromStr for MmprojChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "off" => Self::Off,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for MmprojChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Serialize for MmprojChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MmprojChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let Ok(choice) = text.parse();
        Ok(choice)
    }
}

impl JsonSchema for MmprojChoice {
    fn schema_name() -> Cow<'static, str> {
        "MmprojChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written() {
        for (text, want) in [
            ("auto", MmprojChoice::Auto),
            ("off", MmprojChoice::Off),
            (
                "/models/mmproj-F16.gguf",
                MmprojChoice::File("/models/mmproj-F16.gguf".into()),
            ),
            ("./off", MmprojChoice::File("./off".into())),
        ] {
            let Ok(choice) = text.parse::<MmprojChoice>();
            assert_eq!(choice, want);
            let json = serde_json::to_value(&choice).unwrap();
            assert_eq!(json, text);
            assert_eq!(
                serde_json::from_value::<MmprojChoice>(json).unwrap(),
                choice
            );
        }
    }

    #[test]
    fn rows_follow_the_settings() {
        let rows = Vision::default().detail_rows();
        assert_eq!(rows, DetailRows::default());
        let settings = Vision {
            image_tokens_max: 100,
            image_tokens_high: 99,
            ..Vision::default()
        };
        assert_eq!(settings.detail_rows().low, 100);
        let (key, why) = settings.problem().unwrap();
        assert_eq!(key, "vision.image_tokens_max");
        assert!(
            why.contains("100 is more than vision.image_tokens_high (99)"),
            "{why}"
        );
        assert_eq!(Vision::default().problem(), None);
    }

    #[test]
    fn bounds_of_an_image_are_those_of_the_settings() {
        let settings = Vision {
            image_bytes_max: 5,
            image_pixels_max: 6,
            decode_mib: 7,
            ..Vision::default()
        };
        let limits = settings.limits();
        assert_eq!(
            (limits.bytes_max, limits.pixels_max, limits.decode_bytes_max),
            (5, 6, 7 << 20)
        );
        assert_eq!(Vision::default().limits(), media::Limits::default());
    }
}
