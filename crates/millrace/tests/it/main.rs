//! The program as its users run it: one module for each subject.

mod adapters;
mod bench;
#[cfg(feature = "mini")]
mod built_in;
#[cfg(feature = "mini")]
mod cluster;
mod command_line;
mod config;
#[cfg(all(feature = "gpu", feature = "mini"))]
mod device;
mod early;
mod embedding_decoders;
mod encoders;
mod end_to_end;
#[cfg(feature = "mini")]
mod images;
mod images_in_engine;
#[cfg(feature = "mini")]
mod images_in_protocols;
mod journal;
mod keys;
#[cfg(feature = "mini")]
mod kill;
mod listener;
mod log;
mod models;
mod prompt_cache;
mod pull;
mod recurrent;
mod reload;
#[cfg(feature = "mini")]
mod remote_images;
mod safetensors;
mod service;
#[cfg(feature = "mini")]
mod sliced_images;
mod slow_images;
mod speculation;
mod support;
#[cfg(all(feature = "mini", target_os = "linux"))]
mod surroundings;
#[cfg(all(feature = "mini", unix))]
mod tower_places;
#[cfg(feature = "mini")]
mod upstreams;
#[cfg(feature = "mini")]
mod vision_proxy;
mod workflows;
