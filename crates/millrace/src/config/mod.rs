//! What the server is to do, after all layers were laid over each other:
//! defaults < file < environment < flags. Each value remembers where it came from.

mod api_keys;
mod check;
mod environment;
mod file;
mod layers;
mod origin;
mod settings;

pub(crate) use layers::{Config, ConfigError, Layers};
pub(crate) use origin::Origin;
pub(crate) use settings::{Model, Settings, SlowReader};
