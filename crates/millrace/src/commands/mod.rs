//! One file per subcommand.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod eval;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod models;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod synth;
pub(crate) mod workflow;
