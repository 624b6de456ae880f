//! Vercel AI SDK: the UI message stream protocol, version 1, as used by `useChat` and its default transport.
//!
//! Source: `ui-message-chunks.ts`, `http-chat-transport.ts` and `convert-to-model-messages.ts` of the package `ai`.

mod encoder;
mod request;
mod tool_output;

pub(crate) use encoder::SCHEMAS;
pub use encoder::UiMessageEncoder;
pub use request::parse;

/// Name and value of the header by which the SDK recognizes the protocol.
pub const HEADER: (&str, &str) = ("x-vercel-ai-ui-message-stream", "v1");
