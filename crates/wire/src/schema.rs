//! JSON schemas of response types.
//!
//! Schemas are derived from the types that serde writes. A type with a `Serialize` implementation of its own names the
//! plain type of the same JSON ([`written_as`]). The server's `/openapi.json` is made of these schemas, and its
//! integration tests validate each response against them.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The schema of a type; types with names become references.
pub type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Schemas of a wire protocol's responses.
#[derive(Clone, Copy)]
pub struct ResponseSchemas {
    /// The non-streaming response.
    pub collected: SchemaFn,
    /// The JSON of a stream's frames, without the cursor that lines of NDJSON may have.
    pub event: SchemaFn,
    /// The body of an error response.
    pub error: SchemaFn,
}

/// The schema of `T`.
pub fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of a value that is an `A` or a `B`.
pub fn either<A: JsonSchema, B: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    any_of([of::<A>(generator), of::<B>(generator)])
}

/// The schema of a value that matches one of these; equal schemas are one.
pub fn any_of(schemas: impl IntoIterator<Item = Schema>) -> Schema {
    let mut all: Vec<Schema> = Vec::new();
    for schema in schemas {
        if !all.contains(&schema) {
            all.push(schema);
        }
    }
    match <[Schema; 1]>::try_from(all) {
        Ok([only]) => only,
        Err(several) => json_schema!({ "anyOf": several }),
    }
}

/// Implements `JsonSchema` for a type that is serialized as another type.
macro_rules! written_as {
    ($($type:ty => $plain:ty),* $(,)?) => {$(
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                <$plain>::inline_schema()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$plain>::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$plain>::json_schema(generator)
            }
        }
    )*};
}

pub(crate) use written_as;
