//! What the model means, in every dialect: reasoning, text and calls of tools, streamed, whole, and cut
//! anywhere.

mod channels;
mod closed;
mod cuts;
mod dialects;
mod forced;
mod generic;
mod options;
mod stops;
mod story;
mod strict;
mod transcripts;
