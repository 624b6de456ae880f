//! Prompts as records, and prompts of records, which are neither rendered nor tokenized again.

use super::{PreparedPrompt, PromptEncoder, RenderedPrompt, image_runs};
use crate::error::ApiError;
use crate::output::parser_config::{ParseOptions, ParserConfig};
use crate::request_record::PromptRecord;

impl PreparedPrompt {
    /// The prompt as a record.
    pub fn to_record(&self) -> PromptRecord {
        let rendered = self.rendered.as_ref();
        PromptRecord {
            ids: self.ids.clone(),
            at_text_start: self.at_text_start,
            echo_text: self.echo_text.as_deref().map(str::to_owned),
            text: rendered.map(|rendered| rendered.text.clone()),
            tools: rendered.map_or_else(Vec::new, |rendered| rendered.tools.clone()),
            images: self.run_records(),
            described: self.described.clone(),
        }
    }
}

impl PromptEncoder<'_> {
    /// The prompt of a record, without rendering and tokenizing. The answer is parsed as in the process that wrote
    /// the record.
    ///
    /// # Errors
    /// The ids are not those of a prompt for this model.
    pub fn restore(
        self,
        record: PromptRecord,
        wanted: ParseOptions,
    ) -> Result<PreparedPrompt, ApiError> {
        let PromptRecord {
            ids,
            at_text_start,
            echo_text,
            text,
            tools,
            images,
            described,
        } = record;
        let (tokenizer, context_max) = (&self.model.tokenizer, self.model.context_max);
        let vocab = tokenizer.vocab_size();
        if ids.is_empty() || ids.iter().any(|&id| id as usize >= vocab) {
            let message = "prompt: the recorded ids are not ids of the model's vocabulary";
            return Err(ApiError::field("prompt", "invalid_value", message));
        }
        if ids.len() >= context_max {
            return Err(ApiError::full_context("prompt", ids.len(), context_max));
        }
        let Some(image_runs) = image_runs::restored_runs(images, ids.len()) else {
            let message = "prompt: the recorded rows of images are not rows of the prompt";
            return Err(ApiError::field("prompt", "invalid_value", message));
        };
        let rendered = text.map(|text| RenderedPrompt { text, tools });
        let answers = self.model.answers;
        let reading = rendered
            .as_ref()
            .map_or_else(ParserConfig::default, |rendered| {
                ParserConfig::new(answers, &rendered.tools, &rendered.text, tokenizer, wanted)
            });
        Ok(PreparedPrompt {
            ids,
            at_text_start,
            echo_text: echo_text.map(Into::into),
            reading,
            rendered,
            image_runs,
            media: Vec::new(),
            described,
        })
    }
}
