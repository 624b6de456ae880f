//! Chat templates, with the semantics the model's authors tested them with: Python's jinja2 in the
//! environment of the `transformers` library.
//!
//! | there | here |
//! |---|---|
//! | `trim_blocks`, `lstrip_blocks`, no autoescape, default `Undefined` | the engine's settings |
//! | loop controls | minijinja's feature |
//! | `{% generation %}` | becomes `{% with %}`: the text is the same, and names stay inside |
//! | `tojson`, `raise_exception`, `strftime_now` | `functions` |
//! | methods of `str`, `dict`, `list` | minijinja's `pycompat`, and a few more in `methods` |
//! | the sandbox | minijinja's nature; fuel and an output limit besides |
//!
//! Known differences: a loop over none does nothing (Python fails; so templates that want `tools`
//! work without), floats from 1e16 up and below 1e-4 print with Rust's exponents (not in `tojson`),
//! `loop.length` is not known for the characters of a string, `'%s' % x` is not there.
//!
//! A template comes with the model's file, so it may be broken or hostile, and what it renders comes from
//! anybody. Work is bounded by [`FUEL`], the text by [`OUTPUT_BYTES_MAX`] (or by what the caller has room for),
//! the source by [`SOURCE_BYTES_MAX`]; a filter or method that makes more of its arguments than they are looks
//! at [`VALUE_BYTES_MAX`] and [`VALUE_ITEMS_MAX`] before it allocates (`bounded`). Not bounded is what a template's
//! own operators (`~`, `+`, `*`) and captured blocks put into its variables: one that doubles a string in a loop needs
//! the memory for it, as in Python. What is rendered cannot make a template do that which does not do it by itself.

mod bounded;
mod capabilities;
mod chat_template;
mod functions;
mod generic;
mod json;
mod message;
mod methods;
mod syntax;
mod value;

pub use bounded::{VALUE_BYTES_MAX, VALUE_ITEMS_MAX};
pub use capabilities::{Capabilities, GenericPlace, ToolSupport};
pub use chat_template::{
    ChatTemplate, FUEL, OUTPUT_BYTES_MAX, RenderInput, SOURCE_BYTES_MAX, TAG_BYTES_MAX,
    TemplateError,
};
pub use generic::GenericTools;
pub use message::Message;
