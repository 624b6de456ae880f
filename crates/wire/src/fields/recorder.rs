//! Schemas of the fields that a parser reads.
//!
//! A parser that reads an object with a recorder tells the name, the type and the bounds of each field by reading the
//! field, also of fields that the object does not have. What the type does not say (items of lists, values, descriptions)
//! the parser adds with [`Fields::record`].

use super::{FIELDS_MAX, Fields};
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

/// Collects the schemas of fields.
#[derive(Clone, Debug, Default)]
pub struct FieldRecorder(Arc<Mutex<Map<String, Value>>>);

impl FieldRecorder {
    /// The schemas of all fields by name.
    pub fn take(&self) -> Map<String, Value> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a field is read with this schema.
    pub(crate) fn record(&self, name: &str, schema: Value) {
        let mut fields = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = fields.entry(name).or_insert_with(|| json!({}));
        merge(known, schema);
    }
}

impl Fields<'_> {
    /// The fields, with a recorder of what is read.
    pub fn with_recorder(self, recorder: &FieldRecorder) -> Self {
        Self {
            recorder: Some(recorder.clone()),
            ..self
        }
    }

    /// Whether the recorder knows the field.
    pub(crate) fn has_recorded(&self, name: &str) -> bool {
        let recorded = self.recorder.as_ref().map(|recorder| &recorder.0);
        let recorded = recorded.map(|fields| fields.lock().unwrap_or_else(PoisonError::into_inner));
        recorded.is_some_and(|fields| fields.contains_key(name))
    }

    /// Adds to the schema of a field, if the fields have a recorder.
    pub(crate) fn record(&self, name: &str, schema: impl FnOnce() -> Value) {
        if let Some(recorder) = &self.recorder {
            recorder.record(name, schema());
        }
    }
}

/// The schema of an integer; bounds that JSON schemas cannot have are left out.
pub(super) fn integer_schema(range: &RangeInclusive<i128>) -> Value {
    let mut schema = json!({"type": "integer"});
    for (name, bound) in [("minimum", *range.start()), ("maximum", *range.end())] {
        match (i64::try_from(bound), u64::try_from(bound)) {
            (Ok(bound), _) => schema[name] = json!(bound),
            (_, Ok(bound)) => schema[name] = json!(bound),
            _ => {}
        }
    }
    schema
}

/// The schema of an object.
pub(super) fn object_schema() -> Value {
    json!({"type": "object", "maxProperties": FIELDS_MAX})
}

/// The schema of a list of at most `max` items.
pub(super) fn array_schema(max: usize) -> Value {
    match max {
        usize::MAX => json!({"type": "array"}),
        max => json!({"type": "array", "maxItems": max}),
    }
}

/// The schema of a token id of any vocabulary.
pub(crate) fn token_id_schema() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})
}

/// Adds the members of a schema to another of the same field; members of objects are merged.
pub(crate) fn merge(known: &mut Value, more: Value) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) => {
            for (name, value) in more {
                merge(known.entry(name).or_insert(Value::Null), value);
            }
        }
        (known, more) => *known = more,
    }
}
