//! The encoding of control updates in records.

use engine::RequestUpdate;
use serde::{Deserialize, Serialize};

/// The encoding of [`RequestUpdate`]: `#[serde(with = "UpdateFields")]`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestUpdate", default = "RequestUpdate::default")]
pub struct UpdateFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inject: Vec<u32>,
}
