//! From a typed request to typed events: the prompt, constraints on the output, and the output pipeline.

pub(crate) mod allowed;
pub(crate) mod ask;
pub(crate) mod channels;
pub(crate) mod choice_reader;
pub(crate) mod class;
pub(crate) mod collected;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fold;
pub(crate) mod form;
pub(crate) mod masks;
pub(crate) mod model_handle;
pub(crate) mod position;
pub(crate) mod prompt;
pub(crate) mod prompt_room;
pub(crate) mod reading;
pub(crate) mod refold;
pub(crate) mod scored;
pub(crate) mod spelled;
pub(crate) mod stream_change;
pub(crate) mod stream_meta;
pub(crate) mod stream_source;
pub(crate) mod strict;
pub(crate) mod terminator;
pub(crate) mod thinking;
pub(crate) mod tools;
