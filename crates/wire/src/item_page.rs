//! Lists of stored items, in pages, as in OpenAI's API.

use crate::stored_request::METADATA_MAX;
use generate::error::ApiError;
use http::Uri;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::marker::PhantomData;

/// Items on a page by default.
const PAGE: usize = 20;
/// Items on a page at most.
pub const PAGE_MAX: u64 = 100;

/// Order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOrder {
    /// `asc`.
    OldestFirst,
    /// `desc`.
    NewestFirst,
}

/// The requested page of a list: `limit`, `order`, `after`.
pub struct PageQuery<'q> {
    /// Items on a page.
    pub limit: usize,
    /// Order of the items.
    pub order: ItemOrder,
    /// The last item of the page before.
    pub after: Option<&'q str>,
}

impl<'q> PageQuery<'q> {
    /// Parses the fields of a query string.
    ///
    /// # Errors
    /// An invalid limit or order.
    pub fn parse(query: &'q Query, default: ItemOrder) -> Result<Self, ApiError> {
        let limit = query.number("limit", PAGE_MAX)?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let orders = [
            ("asc", ItemOrder::OldestFirst),
            ("desc", ItemOrder::NewestFirst),
        ];
        let order = query.one_of("order", orders)?.unwrap_or(default);
        Ok(Self {
            limit: limit.unwrap_or(PAGE).max(1),
            order,
            after: query.get("after"),
        })
    }

    /// The page of `items`, which are the oldest first. Items that `keep` leaves out are on no page.
    ///
    /// # Errors
    /// `after` is the id of no item.
    pub fn page<'i, T, S>(
        &self,
        items: &'i [T],
        id: impl Fn(&'i T) -> &'i str,
        keep: impl Fn(&T) -> bool,
        json: impl Fn(&'i T) -> RawItem<S>,
    ) -> Result<ItemPage<'i, RawItem<S>>, ApiError> {
        let mut all: Vec<&T> = items.iter().collect();
        if self.order == ItemOrder::NewestFirst {
            all.reverse();
        }
        let from = match self.after {
            None => 0,
            Some(after) => {
                let position = all.iter().position(|item| id(item) == after);
                position.ok_or_else(unknown_after)? + 1
            }
        };
        let mut rest = all[from..].iter().copied().filter(|item| keep(item));
        let page: Vec<&T> = rest.by_ref().take(self.limit).collect();
        Ok(ItemPage {
            object: "list",
            first_id: page.first().map(|item| id(item)),
            last_id: page.last().map(|item| id(item)),
            has_more: rest.next().is_some(),
            data: page.into_iter().map(json).collect(),
        })
    }
}

/// The error of a page after an item that is not in the list.
pub fn unknown_after() -> ApiError {
    let error_message = "after: must be the id of an item of this list";
    ApiError::field("after", "invalid_value", error_message)
}

/// A page of items.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "{T}Page")]
pub struct ItemPage<'a, T> {
    object: &'static str,
    data: Vec<T>,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

/// An item as JSON; `S` has the schema of the item.
pub struct RawItem<S> {
    json: Box<RawValue>,
    schema: PhantomData<S>,
}

impl<S> RawItem<S> {
    /// An item of this JSON.
    pub fn of(json: Box<RawValue>) -> Self {
        Self {
            json,
            schema: PhantomData,
        }
    }

    /// An item of this JSON; invalid JSON becomes `null`.
    pub fn new(json: &str) -> Self {
        Self {
            json: serde_json::from_str(json).unwrap_or_else(|_| RawValue::NULL.to_owned()),
            schema: PhantomData,
        }
    }
}

impl<S> Serialize for RawItem<S> {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        self.json.serialize(serializer)
    }
}

impl<S: JsonSchema> JsonSchema for RawItem<S> {
    fn inline_schema() -> bool {
        S::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        S::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        S::json_schema(generator)
    }
}

/// Limit of fields in a query string: all entries of a `metadata` filter, and others.
const FIELDS_MAX: usize = METADATA_MAX + 16;

/// The fields of a query string.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query string of a URI.
    ///
    /// # Errors
    /// The query string is malformed or has too many fields.
    pub fn of(uri: &Uri) -> Result<Self, ApiError> {
        serde_urlencoded::from_str::<Vec<(String, String)>>(uri.query().unwrap_or_default())
            .ok()
            .filter(|fields| fields.len() <= FIELDS_MAX)
            .map(Self)
            .ok_or_else(|| {
                ApiError::bad_request(
                    "invalid_query",
                    "the query string is malformed or has too many fields",
                )
            })
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value whose name is the first value of `name`.
    ///
    /// # Errors
    /// Another name.
    pub fn one_of<T: Copy, const N: usize>(
        &self,
        name: &str,
        values: [(&str, T); N],
    ) -> Result<Option<T>, ApiError> {
        let Some(given) = self.get(name) else {
            return Ok(None);
        };
        let found = values.iter().find(|(value, _)| *value == given);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let names = values.map(|(value, _)| value).join(" or ");
            let error_message = format!("{name}: must be {names}");
            ApiError::field(name, "invalid_value", error_message)
        })
    }

    /// Members of an object in the notation `object[member]=value`.
    pub fn members(&self, object: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(move |(field, value)| {
            let member = field.strip_prefix(object)?.strip_prefix('[')?;
            Some((member.strip_suffix(']')?, value.as_str()))
        })
    }

    /// Number of fields with this name.
    pub fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|(field, _)| field == name).count()
    }

    /// The first value of `name` as a number from 0 to `max`.
    ///
    /// # Errors
    /// The value is not such a number.
    pub fn number(&self, name: &str, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|&number| number <= max);
        number.map(Some).ok_or_else(|| {
            let error_message = format!("{name}: must be an integer from 0 to {max}");
            ApiError::field(name, "invalid_value", error_message)
        })
    }
}
