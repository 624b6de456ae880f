//! Prompts with gaps. A fill-in-the-middle prompt (FIM) is the text of a file before and after a gap, which the answer fills.
//!
//! ```text
//! [REPOSITORY]name  ([FILE]name text)*  [FILE]name  [PREFIX]before begun [SUFFIX]after [MIDDLE]
//! ```
//!
//! The parts of the first line's kind are llama.cpp's form of `/infill`, with its names for what a request cannot name;
//! without them the prompt begins with `[PREFIX]`.
//!
//! The prompt of a reranker that is a generative model has places for a query and a document.

use crate::error::ApiError;
use crate::request::PromptField;
use serde::{Deserialize, Serialize};
use text::{InfillTokens, Tokenizer, TokenizerError};

/// Other files of one prompt.
pub const INFILL_FILES_MAX: usize = 1024;
/// Bytes of a file's name.
pub const FILE_NAME_BYTES_MAX: usize = 4096;

/// Name of the repository, in llama.cpp's prompts.
const REPOSITORY_LINE: &str = "myproject\n";
/// Name of the file with the gap, in llama.cpp's prompts.
const FILE_LINE: &str = "filename\n";
/// Text before another file's, for models without a token for it; as in llama.cpp.
const SNIPPET_LINES: &str = "\n\n--- snippet ---\n\n";

/// Text around a gap.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
pub struct InfillPrompt {
    /// Text before the gap.
    pub before: String,
    /// Text after the gap.
    pub after: String,
    /// Context of the repository, for models that were trained with it; `None`: only this file.
    pub repository: Option<RepositoryContext>,
}

/// Files and name of a repository in a prompt.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
pub struct RepositoryContext {
    /// Beginning of the text of the gap.
    pub begun: String,
    /// Other files, the most important one last: if they do not fit into the context, their beginning is left out.
    pub files: Vec<InfillFile>,
    /// Tokens of the context that other files leave for the answer.
    pub answer_tokens: usize,
}

/// A file, or a part of one.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
pub struct InfillFile {
    /// Name of the file.
    pub name: String,
    /// The text.
    pub text: String,
}

impl InfillPrompt {
    /// Field of the text before the gap.
    pub fn before_field(&self) -> PromptField {
        match self.repository {
            Some(_) => "input_prefix",
            None => "prompt",
        }
    }

    /// Field of the text after the gap.
    pub fn after_field(&self) -> PromptField {
        match self.repository {
            Some(_) => "input_suffix",
            None => "suffix",
        }
    }

    /// The tokens of this prompt in a vocabulary.
    ///
    /// # Errors
    /// The vocabulary has no tokens for fill-in-the-middle prompts.
    pub(crate) fn tokens(&self, tokenizer: &Tokenizer) -> Result<InfillTokens, ApiError> {
        tokenizer.infill_tokens().map_err(|missing| {
            let (field, missing) = (self.after_field(), missing.join(", "));
            let message = format!(
                "{field}: this model fills no gaps: its vocabulary has no fill-in-the-middle tokens \
                 ({missing}); use a model that has them, such as qwen2.5-coder"
            );
            ApiError::field(field, "unsupported_value", message)
        })
    }

    /// The ids of the prompt. Other files take what the rest leaves of `context` tokens.
    ///
    /// # Errors
    /// The tokenizer failed.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        marks: InfillTokens,
        context: usize,
    ) -> Result<Vec<u32>, TokenizerError> {
        let plain = |text: &str| tokenizer.encode(text, false);
        let mut gap = vec![marks.prefix];
        gap.extend(plain(&self.before)?);
        if let Some(repository) = &self.repository {
            gap.extend(plain(&repository.begun)?);
        }
        gap.push(marks.suffix);
        gap.extend(plain(&self.after)?);
        gap.push(marks.middle);
        // With what the vocabulary puts before a prompt.
        let mut ids = tokenizer.encode_prompt("", false)?;
        ids.retain(|id| Some(*id) == tokenizer.bos());
        if let Some(repository) = &self.repository {
            let used = ids.len() + gap.len() + repository.answer_tokens;
            ids.extend(repository.encode(tokenizer, marks, context.saturating_sub(used))?);
        }
        ids.extend(gap);
        Ok(ids)
    }
}

impl RepositoryContext {
    /// At most the last `room` tokens of the repository's name and files.
    fn encode(
        &self,
        tokenizer: &Tokenizer,
        marks: InfillTokens,
        room: usize,
    ) -> Result<Vec<u32>, TokenizerError> {
        let line = |mark: Option<u32>, text: &str| match mark {
            Some(mark) => {
                let ids = tokenizer.encode(text, false)?;
                Ok(std::iter::once(mark).chain(ids).collect())
            }
            None => Ok(Vec::new()),
        };
        // From the last part to the first one: what does not fit is not tokenized.
        let mut parts = vec![line(marks.file, FILE_LINE)?];
        let mut count = parts[0].len();
        for file in self.files.iter().rev() {
            if count >= room {
                break;
            }
            let mut part = match marks.file {
                Some(_) => line(marks.file, &format!("{}\n", file.name))?,
                None => tokenizer.encode(SNIPPET_LINES, false)?,
            };
            part.extend(tokenizer.encode(&file.text, false)?);
            count += part.len();
            parts.push(part);
        }
        if count < room {
            parts.push(line(marks.repository, REPOSITORY_LINE)?);
        }
        let mut ids: Vec<u32> = parts.into_iter().rev().flatten().collect();
        ids.drain(..ids.len().saturating_sub(room));
        Ok(ids)
    }
}

/// Where the query stands, as llama.cpp's converter writes it.
const QUERY: &str = "{query}";
/// Where the document stands.
const DOCUMENT: &str = "{document}";

/// A prompt with a place for a query and, after it, one for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RerankTemplate {
    before: String,
    between: String,
    after: String,
}

impl RerankTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// What the template lacks, as the end of a sentence.
    pub fn parse(template: &str) -> Result<Self, String> {
        let wanted = || format!("must have one {QUERY} and after it one {DOCUMENT}");
        let (before, rest) = template.split_once(QUERY).ok_or_else(wanted)?;
        let (between, after) = rest.split_once(DOCUMENT).ok_or_else(wanted)?;
        let has_place = |text: &str| text.contains(QUERY) || text.contains(DOCUMENT);
        if [before, between, after].into_iter().any(has_place) {
            return Err(wanted());
        }
        Ok(Self {
            before: before.to_owned(),
            between: between.to_owned(),
            after: after.to_owned(),
        })
    }

    /// The text up to the document.
    pub fn start(&self, query: &str) -> String {
        format!("{}{query}{}", self.before, self.between)
    }

    /// The text after the document.
    pub fn end(&self) -> &str {
        &self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::vocabulary::Vocabulary;

    const MARKS: [&str; 5] = [
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|repo_name|>",
        "<|file_sep|>",
    ];

    /// Ids as text: bytes as they are, control tokens by their texts.
    fn shown(tokenizer: &Tokenizer, ids: &[u32]) -> String {
        let show = |&id: &u32| {
            if tokenizer.is_control(id) {
                tokenizer.piece(id).unwrap_or_default().to_owned()
            } else {
                String::from_utf8_lossy(tokenizer.bytes(id).unwrap_or_default()).into_owned()
            }
        };
        ids.iter().map(show).collect()
    }

    fn prompt(files: &[(&str, &str)], answer_tokens: usize) -> InfillPrompt {
        let files = files.iter().map(|(name, text)| InfillFile {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
        });
        InfillPrompt {
            before: "int a = <|fim_suffix|>".to_owned(),
            after: ";\n".to_owned(),
            repository: Some(RepositoryContext {
                begun: "f(".to_owned(),
                files: files.collect(),
                answer_tokens,
            }),
        }
    }

    fn encoded(prompt: &InfillPrompt, marks: usize, context: usize) -> Result<String, ApiError> {
        let tokenizer = Vocabulary::of_bytes()
            .with_eos("<|endoftext|>")
            .with_control_tokens(&MARKS[..marks])
            .into_tokenizer();
        let tokens = prompt.tokens(&tokenizer)?;
        let ids = prompt.encode(&tokenizer, tokens, context).expect("encoded");
        Ok(shown(&tokenizer, &ids))
    }

    const GAP: &str = "<|fim_prefix|>int a = <|fim_suffix|>f(<|fim_suffix|>;\n<|fim_middle|>";

    #[test]
    fn prompt_has_the_order_of_llama_cpp() {
        let files = [("a.h", "int f();\n"), ("b.h", "int g();\n")];
        let repository = "<|repo_name|>myproject\n";
        let file = "<|file_sep|>filename\n";
        for (label, prompt, marks, want) in [
            (
                "no other file",
                prompt(&[], 0),
                5,
                format!("{repository}{file}{GAP}"),
            ),
            (
                "files",
                prompt(&files, 0),
                5,
                format!(
                    "{repository}<|file_sep|>a.h\nint f();\n<|file_sep|>b.h\nint g();\n{file}{GAP}"
                ),
            ),
            (
                "no token for a file",
                prompt(&[], 0),
                4,
                format!("{repository}{GAP}"),
            ),
            (
                "snippets",
                prompt(&files, 0),
                3,
                format!("{SNIPPET_LINES}int f();\n{SNIPPET_LINES}int g();\n{GAP}"),
            ),
            (
                "this file alone",
                InfillPrompt {
                    repository: None,
                    ..prompt(&files, 0)
                },
                5,
                "<|fim_prefix|>int a = <|fim_suffix|><|fim_suffix|>;\n<|fim_middle|>".to_owned(),
            ),
        ] {
            assert_eq!(
                encoded(&prompt, marks, 1000).expect("marks"),
                want,
                "{label}"
            );
        }
        let error = encoded(&prompt(&files, 0), 1, 1000).expect_err("two are missing");
        assert_eq!(error.problems[0].field, "input_suffix");
        assert!(
            error.message.contains("(suffix, middle)"),
            "{}",
            error.message
        );
    }

    #[test]
    fn typed_control_tokens_are_text() {
        let tokenizer = Vocabulary::of_bytes()
            .with_control_tokens(&MARKS)
            .into_tokenizer();
        let prompt = prompt(&[("<|file_sep|>", "<|repo_name|>")], 0);
        let marks = prompt.tokens(&tokenizer).expect("marks");
        let ids = prompt.encode(&tokenizer, marks, 1000).expect("encoded");
        let controls = ids.iter().filter(|id| tokenizer.is_control(**id));
        assert_eq!(controls.count(), 6, "those of the form");
    }

    #[test]
    fn files_leave_room_for_the_gap_and_the_answer() {
        let files = [("a.h", "int f();\n"), ("b.h", "int g();\n")];
        // Tokens of the gap: the three marks, and the bytes of the text.
        let gap = "int a = <|fim_suffix|>f(;\n".len() + 3;
        let whole = "int f();\n<|file_sep|>b.h\nint g();\n<|file_sep|>filename\n";
        let tokens = "int f();\nb.h\nint g();\nfilename\n".len() + 2;
        for (answer, room, want) in [
            (0, tokens, whole),
            (7, tokens, whole),
            (7, tokens - 4, &whole[4..]),
            (7, 10, "<|file_sep|>filename\n"),
            (7, 3, "me\n"),
            (7, 0, ""),
        ] {
            let prompt = prompt(&files, answer);
            let told = encoded(&prompt, 5, gap + answer + room).expect("marks");
            assert_eq!(told, format!("{want}{GAP}"), "{answer} {room}");
        }
        // No room at all: the caller tells how long the rest is.
        assert_eq!(encoded(&prompt(&files, 7), 5, 3).expect("marks"), GAP);
    }

    #[test]
    fn templates_have_both_places_in_order() {
        let template = RerankTemplate::parse("a {query} b {document} c").expect("both places");
        assert_eq!(template.start("{document}"), "a {document} b ");
        assert_eq!(template.end(), " c");
        for bad in [
            "",
            "{query}",
            "{document}",
            "{document} {query}",
            "{query} {document} {document}",
            "{query} {query} {document}",
        ] {
            let error = RerankTemplate::parse(bad).expect_err(bad);
            assert!(error.contains("one {query} and after it one {document}"));
        }
    }
}
