//! All settings, as the typed settings describe them: the bounds of each value, whether a running server can change the
//! value, and the reason for its default.
//!
//! A field's `range(…)` is what the loader checks, what the JSON Schema says and what docs/settings.md prints. `x-reload` is
//! `"live"` (read again on SIGHUP, for later requests) or `"restart"` (the value sizes threads or memory).
//!
//! The yardsticks of the reasons: an answer of 10,000 tokens (a model that reasons), a prompt of 30,000, and 32 clients, all on
//! two processors. An official client waits 600 seconds for a byte and then tries again.

use super::schema;
use serde_json::Value;
use std::sync::LazyLock;

/// All settings, in the order of the file's sections.
pub(crate) static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let schema = schema::schema();
    schema::fields(&schema)
        .into_iter()
        .map(|(key, field)| Setting::new(key, field))
        .collect()
});

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Section and name, such as `server.bind`.
    pub(crate) key: String,
    /// Bounds of a whole number, both inclusive; `None` of other types.
    pub(crate) range: Option<(u64, u64)>,
    /// Whether a changed value applies on SIGHUP, to later requests; otherwise at the next start.
    pub(crate) is_live: bool,
    /// The schema of the value.
    pub(crate) field: Value,
}

impl Setting {
    fn new(key: String, field: &Value) -> Self {
        let bound = |name: &str| field[name].as_u64();
        Self {
            key,
            range: bound("minimum").zip(bound("maximum")),
            is_live: field["x-reload"] == "live",
            field: field.clone(),
        }
    }
}
