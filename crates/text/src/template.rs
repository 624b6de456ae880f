//! Chat templates with the semantics of Python's jinja2 in the environment of the `transformers` library, where the
//! authors of models test their templates.
//!
//! | `transformers` | here |
//! |---|---|
//! | `trim_blocks`, `lstrip_blocks`, no autoescape, default `Undefined` | settings of minijinja |
//! | loop controls | a feature of minijinja |
//! | `{% generation %}` | becomes `{% with %}`: equal text, names stay inside |
//! | `tojson`, `raise_exception`, `strftime_now` | `builtin_functions` |
//! | methods of `str`, `dict`, `list` | minijinja's `pycompat`, and additions in `builtin_functions` |
//! | the sandbox | minijinja has no access to the system; fuel and an output limit in addition |
//!
//! Known differences: a loop over `none` does nothing (Python fails; templates that expect `tools` work without tools),
//! floats from 1e16 up and below 1e-4 print with Rust's exponents (except in `tojson`), `loop.length` is unknown for the
//! characters of a string, `'%s' % x` is unsupported.
//!
//! A template comes with the model's file and may be broken or hostile; rendered messages come from any client.
//! [`FUEL`] bounds the work, [`OUTPUT_BYTES_MAX`] (or a smaller limit of the caller) the text, [`SOURCE_BYTES_MAX`] the
//! source; filters and methods whose result may be larger than their arguments check [`VALUE_BYTES_MAX`] and
//! [`VALUE_ITEMS_MAX`] before allocating (`bounded_filters`). What filters, methods and operators read and write together is
//! bounded by [`WORK_MAX`] (`bounded_filters`, `metered_source`): fuel counts an instruction once, however large its operands are.

mod bounded_filters;
mod builtin_functions;
mod call_support;
mod capabilities;
mod chat_template;
mod content_form;
mod generic_tools;
mod image_parts;
#[cfg(test)]
mod image_parts_tests;
mod message;
mod metered_source;
mod python_json;
mod turn_format;
mod turn_support;

pub use bounded_filters::{VALUE_BYTES_MAX, VALUE_ITEMS_MAX, WORK_MAX};
pub use capabilities::{Capabilities, GenericPlace, ToolSupport};
pub use chat_template::{
    ChatTemplate, FUEL, OUTPUT_BYTES_MAX, RenderInput, SOURCE_BYTES_MAX, TAG_BYTES_MAX,
    TemplateError,
};
pub use generic_tools::GenericTools;
pub use image_parts::{ImageMark, image_mark, image_marks, image_part, images_of, text_part};
pub use message::{INVALID_ARGUMENTS, Message, with_escaped_values};
pub use turn_format::{BASE_MODEL, OWN_TEMPLATE, turn_format_name};
