//! The interface of a wire protocol's parser: from the fields of a body to a typed request.

use crate::fields::Fields;
use crate::model_defaults::ModelDefaults;
use crate::shared::job_id::JobId;
use crate::stored_request::{History, StoredRequest};
use generate::error::ApiError;
use generate::model_handle::{ModelAdapters, NO_ADAPTERS};
use generate::request::{GenerateRequest, GenerationParams, Prompt, StreamOptions};

/// Parser of one wire protocol. An error lists all invalid fields.
pub type RequestParser = fn(Fields<'_>, &ParseContext<'_>) -> Result<ParsedBody, ApiError>;

/// Finds a stored response by its id.
pub type HistoryLookup<'a> = dyn Fn(&str) -> Result<Box<dyn History>, ApiError> + 'a;

/// Input of a parser beside the fields.
pub struct ParseContext<'a> {
    /// Number of token ids of the model.
    pub vocab_size: usize,
    /// Adapters that a request may use.
    pub adapters: &'a ModelAdapters,
    /// Defaults of the model, for fields that the request does not set.
    pub defaults: ModelDefaults,
    /// Stored responses that a request may continue.
    pub history: &'a HistoryLookup<'a>,
}

/// A parsed body.
#[derive(Debug, PartialEq)]
pub struct ParsedBody {
    /// The request.
    pub request: GenerateRequest,
    /// Job id chosen by the caller (jobs API).
    pub job_id: Option<JobId>,
    /// The part of the request that is stored (Responses API; chat completions with `store`).
    pub stored_request: Option<StoredRequest>,
}

impl ParseContext<'static> {
    /// A vocabulary of this size, no adapters, no defaults, and no stored responses.
    pub fn of_vocab(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            adapters: &NO_ADAPTERS,
            defaults: ModelDefaults::default(),
            history: &|_| {
                Err(ApiError::bad_request(
                    "not_found",
                    "no responses are stored",
                ))
            },
        }
    }
}

impl ParsedBody {
    /// A request for one answer to each of these prompts, and nothing else.
    pub(crate) fn of_prompts(
        prompts: impl IntoIterator<Item = Prompt>,
        params: GenerationParams,
        stream_options: StreamOptions,
    ) -> Self {
        let prompts = prompts.into_iter().collect();
        let request = GenerateRequest {
            prompts,
            n: 1,
            params,
            stream_options,
        };
        Self {
            request,
            job_id: None,
            stored_request: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stream::StreamId;

    /// Token ids of the vocabulary of tests.
    const VOCAB: usize = 300;

    struct EmptyHistory;

    impl History for EmptyHistory {
        fn id(&self) -> Option<StreamId> {
            None
        }

        fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
            Box::new(std::iter::empty())
        }
    }

    /// A small vocabulary, and a response without items under any id.
    pub(crate) fn context() -> ParseContext<'static> {
        ParseContext {
            history: &|_| Ok(Box::new(EmptyHistory)),
            ..ParseContext::of_vocab(VOCAB)
        }
    }

    /// The request in a body.
    pub(crate) fn parsed_request(
        parse: RequestParser,
        body: &[u8],
    ) -> Result<GenerateRequest, ApiError> {
        parse(Fields::parse(body)?, &context()).map(|parsed| parsed.request)
    }
}
