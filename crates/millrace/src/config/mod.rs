//! The configuration, merged from layers: defaults < preset < file < environment < flags. Each value has an origin.

mod answers;
mod api_keys;
pub(crate) mod bind;
mod catalog;
mod changes;
mod check;
mod cluster;
mod environment;
mod file;
mod journal;
mod keys;
mod kv_type;
mod layers;
mod log;
mod mailbox;
pub(crate) mod memory;
mod models;
mod origin;
mod otlp;
mod preset;
mod quantize;
mod realtime;
mod reasons;
mod responses;
mod scale;
mod schema;
mod settings;
mod table;
mod tree;
mod webhooks;
mod workflows;

pub(crate) use answers::{Field, ReasoningParser, ToolParser};
pub(crate) use changes::Changes;
pub(crate) use cluster::{Cluster, Role as ClusterRole};
pub(crate) use journal::JournalPlace;
pub(crate) use kv_type::KvType;
pub(crate) use layers::{Config, ConfigError, Layers};
pub(crate) use origin::Origin;
#[cfg(feature = "otlp")]
pub(crate) use otlp::with_otlp;
pub(crate) use preset::Preset;
pub(crate) use quantize::Quantize;
pub(crate) use schema::schema;
pub(crate) use settings::{Settings, SlowReader, Speculation};
pub(crate) use table::table;
pub(crate) use webhooks::{SecretTexts, parse_secrets};
