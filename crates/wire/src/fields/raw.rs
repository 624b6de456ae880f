//! JSON values and objects that keep the text of the client.

use super::{FIELDS_MAX, Fields, JsonType, json_type};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The text of one valid JSON value, without white space around the value.
#[derive(Clone, Copy, Debug)]
pub struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// The JSON text.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// A value whose text was parsed earlier.
    pub(crate) fn of_parsed(text: &'a str) -> Self {
        Self(text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(raw.get()))
    }
}

/// Names and values of an object, in the client's order.
pub struct JsonObject<'a>(Vec<(Cow<'a, str>, RawJson<'a>)>);

impl<'a> JsonObject<'a> {
    /// An object with these entries.
    pub(crate) fn new(entries: Vec<(Cow<'a, str>, RawJson<'a>)>) -> Self {
        Self(entries)
    }

    /// Entries in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, RawJson<'a>)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }

    /// Entries in order; a name is borrowed from the JSON text unless the text has escapes.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (Cow<'a, str>, RawJson<'a>)> {
        self.0.into_iter()
    }

    /// The value of `name`; null counts as absent.
    pub fn get(&self, name: &str) -> Option<RawJson<'a>> {
        self.entries()
            .find(|(n, _)| *n == name)
            .map(|(_, raw)| raw)
            .filter(|raw| json_type(*raw) != JsonType::Null)
    }

    /// Names that occur more than once.
    pub(super) fn repeated_names(&self) -> impl Iterator<Item = &str> {
        (0..self.0.len()).filter_map(|i| {
            let name = &self.0[i].0;
            let before = self.0[..i].iter().filter(|(n, _)| n == name).count();
            (before == 1).then_some(name.as_ref())
        })
    }
}

impl Fields<'_> {
    /// Whether the object has a field `name`, null included.
    pub fn is_given(&self, name: &str) -> bool {
        self.object.entries().any(|(given, _)| given == name)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Entries<'a> {
            type Value = JsonObject<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<JsonObject<'a>, M::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    if entries.len() == FIELDS_MAX {
                        return Err(M::Error::custom("too many fields"));
                    }
                    entries.push((name.0, map.next_value::<RawJson<'de>>()?));
                }
                Ok(JsonObject(entries))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

/// A string that is borrowed from the JSON text unless the text has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);
