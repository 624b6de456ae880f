//! Enums of crate `wire`, encoded by their names.

/// A module for `#[serde(with)]` of an enum with `name` and `from_name`.
macro_rules! by_name {
    ($module:ident, $Enum:ty) => {
        pub(super) mod $module {
            use serde::de::Error;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(in crate::durability) fn serialize<S: Serializer>(
                value: &$Enum,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                value.name().serialize(serializer)
            }

            pub(in crate::durability) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$Enum, D::Error> {
                let name = String::deserialize(deserializer)?;
                <$Enum>::from_name(&name)
                    .ok_or_else(|| D::Error::custom(format!("{name:?} is an unknown name")))
            }
        }
    };
}

by_name!(protocol, wire::protocol::Protocol);
by_name!(framing, wire::framing::Framing);
by_name!(reasoning_field, wire::openai::chat_encoder::ReasoningField);
