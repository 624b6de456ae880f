//! `model.device`: where the layers of a model are computed.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Most devices of one interface that can be named.
const INDEX_MAX: usize = 63;

/// The interface to a device's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// Any of those below: the first that has a device.
    Any,
    Vulkan,
    Metal,
    Dx12,
}

/// The device of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// A GPU that computes the model and reads memory clearly faster than the processor; the processor, if there is none.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// This GPU, or an error at start.
    Gpu {
        interface: Interface,
        /// Which of the interface's devices; `None`: the first that is no software.
        index: Option<usize>,
    },
}

const INTERFACES: [(&str, Interface); 4] = [
    ("gpu", Interface::Any),
    ("vulkan", Interface::Vulkan),
    ("metal", Interface::Metal),
    ("dx12", Interface::Dx12),
];

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            _ => {}
        }
        let (name, index) = match text.split_once(':') {
            None => (text, None),
            Some((name, index)) => (name, Some(index)),
        };
        let interface = INTERFACES.iter().find(|(known, _)| *known == name);
        let (_, interface) = interface.ok_or_else(|| {
            format!("must be auto, cpu, gpu, vulkan, metal or dx12, not `{text}`")
        })?;
        let index = match index.map(usize::from_str) {
            None => None,
            Some(Ok(index)) if index <= INDEX_MAX => Some(index),
            Some(_) => {
                return Err(format!(
                    "the number after `{name}:` must be 0 to {INDEX_MAX}, as `millrace doctor` lists them, not `{text}`"
                ));
            }
        };
        Ok(Self::Gpu {
            interface: *interface,
            index,
        })
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu { interface, index } => {
                let name = INTERFACES.iter().find(|(_, known)| *known == interface);
                f.write_str(name.map_or("gpu", |row| row.0))?;
                index.map_or(Ok(()), |index| write!(f, ":{index}"))
            }
        }
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for DeviceChoice {
    fn schema_name() -> Cow<'static, str> {
        "DeviceChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(auto|cpu|(gpu|vulkan|metal|dx12)(:[0-9]{1,2})?)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written() {
        for text in [
            "auto", "cpu", "gpu", "vulkan", "vulkan:0", "metal", "dx12:63",
        ] {
            let choice: DeviceChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            let json = serde_json::to_value(choice).unwrap();
            assert_eq!(json, text);
            assert_eq!(
                serde_json::from_value::<DeviceChoice>(json).unwrap(),
                choice
            );
        }
        for (text, why) in [
            ("cuda", "must be auto, cpu, gpu"),
            ("", "must be auto, cpu, gpu"),
            ("cpu:0", "must be auto, cpu, gpu"),
            ("Vulkan", "must be auto, cpu, gpu"),
            ("vulkan:", "must be 0 to 63"),
            ("vulkan:64", "must be 0 to 63"),
            ("gpu:-1", "must be 0 to 63"),
        ] {
            let found = text.parse::<DeviceChoice>().unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
