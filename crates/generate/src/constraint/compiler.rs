//! From a request's response format and tools to compiled output constraints.

use crate::constraint::mask_worker::MaskWorker;
use crate::constraint::strict_tools::StrictGrammars;
use crate::error::ApiError;
use crate::model_handle::ModelHandle;
use crate::output::parser_config::ParserConfig;
use crate::prompt::PreparedPrompt;
use crate::request::{GenerationParams, ResponseFormat};
use crate::tools::allow_any_arguments;
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use text::{
    AnswerFormat, CallSyntax, ConstrainedTool, DelimiterSet, Grammar, GrammarCompiler,
    GrammarSource, Tokenizer,
};

/// A set of delimiters of one model, once found; `None` if the model has none.
type FoundDelimiters = OnceLock<Option<Arc<DelimiterSet>>>;

/// Compiles output constraints for the requests of one model.
pub struct ConstraintCompiler {
    answers: AnswerFormat,
    tokenizer: Arc<Tokenizer>,
    grammars: GrammarCompiler,
    masks: Arc<MaskWorker>,
    call_openings: FoundDelimiters,
    reasoning_closings: FoundDelimiters,
}

/// Inputs of the constraints of a request.
#[derive(Clone)]
pub struct ConstraintOptions {
    format: Option<ResponseFormat>,
    /// Tools with constrained calls.
    tools: Vec<ConstrainedTool>,
    must_call: bool,
    /// Objects have no other members than those that their schemas name.
    closed_objects: bool,
    in_channels: bool,
    /// Reasoning is delimited by text.
    has_text_delimiters: bool,
    may_call: bool,
}

/// Compiled constraints, shared by all answers of a request. By default there are none.
#[derive(Clone, Default)]
pub struct OutputConstraints {
    /// Grammar of the answer.
    pub(crate) grammar: Option<Arc<Grammar>>,
    /// Grammars of tool calls that the model makes unasked.
    pub(crate) strict: Option<StrictGrammars>,
    /// Delimiters that a constrained answer is searched for: the ends of reasoning, or the headers of channels.
    pub(crate) delimiters: Option<Arc<DelimiterSet>>,
    pub(crate) masks: Arc<MaskWorker>,
    /// Whether schemas that do not set `additionalProperties` forbid other members.
    pub(crate) closed_objects: bool,
}

/// How much work a look-up may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    Cached,
    Full,
}

/// Why constraints are missing.
enum Unfinished {
    /// A part is not cached.
    Uncached,
    Failed(ApiError),
}

impl ConstraintOptions {
    /// The options of a request with these prompts. `closed_objects` is the default of the server.
    pub fn new(
        params: &GenerationParams,
        prompts: &[PreparedPrompt],
        closed_objects: bool,
    ) -> Self {
        let readings = || prompts.iter().map(|prompt| &prompt.reading);
        Self {
            format: params.response_format.clone(),
            tools: params.constrained_tools.clone(),
            must_call: params.tool_calling.required,
            closed_objects: params.closed_objects.unwrap_or(closed_objects),
            in_channels: readings().any(|reading| reading.channels().is_some()),
            has_text_delimiters: readings().any(|reading| reading.spelled().is_some()),
            may_call: readings().any(ParserConfig::calls),
        }
    }

    /// The format of the whole answer.
    fn answer_format(&self) -> Option<ResponseFormat> {
        if self.must_call && self.in_channels {
            Some(self.call_format(CallSyntax::HARMONY_CALL))
        } else {
            self.format.clone()
        }
    }

    /// Calls of the constrained tools in this syntax.
    fn call_format(&self, syntax: CallSyntax) -> ResponseFormat {
        ResponseFormat {
            source: GrammarSource::Calls(syntax, self.tools.clone()),
            field: "tools".to_owned(),
        }
    }
}

impl ConstraintCompiler {
    /// A compiler without anything cached.
    pub fn new(model: &ModelHandle) -> Self {
        Self {
            answers: model.answers,
            tokenizer: Arc::clone(&model.tokenizer),
            grammars: GrammarCompiler::new(Arc::clone(&model.tokenizer), &model.eos),
            masks: Arc::default(),
            call_openings: OnceLock::new(),
            reasoning_closings: OnceLock::new(),
        }
    }

    /// The constraints, if no part of them has to be compiled.
    pub fn find_cached(&self, options: &ConstraintOptions) -> Option<OutputConstraints> {
        self.build_constraints(options, Effort::Cached).ok()
    }

    /// The constraints. Takes time with the size of grammars, and of the vocabulary the first time.
    ///
    /// # Errors
    /// A grammar cannot be compiled.
    pub fn compile(&self, options: &ConstraintOptions) -> Result<OutputConstraints, ApiError> {
        self.build_constraints(options, Effort::Full)
            .map_err(|why| match why {
                Unfinished::Failed(error) => error,
                Unfinished::Uncached => {
                    ApiError::ours("internal_error", "the constraints were not compiled")
                }
            })
    }

    fn build_constraints(
        &self,
        options: &ConstraintOptions,
        effort: Effort,
    ) -> Result<OutputConstraints, Unfinished> {
        let grammar = match self.compile_grammar(options, options.answer_format(), effort) {
            Err(Unfinished::Failed(error)) if options.must_call => {
                let relaxed = self.without_refused_schemas(options)?;
                let relaxed = relaxed.ok_or(Unfinished::Failed(error))?;
                self.compile_grammar(&relaxed, relaxed.answer_format(), effort)?
            }
            compiled => compiled?,
        };
        let calls_strictly = grammar.is_none() && options.may_call && !options.tools.is_empty();
        let strict = if calls_strictly {
            self.strict_grammars(options, effort)?
        } else {
            None
        };
        let is_constrained = grammar.is_some() || strict.is_some();
        let delimiters = match (options.in_channels, options.has_text_delimiters) {
            _ if !is_constrained => None,
            (true, _) => self.call_openings(effort)?,
            (false, true) => self.reasoning_closings(effort)?,
            (false, false) => None,
        };
        Ok(OutputConstraints {
            grammar,
            strict,
            delimiters,
            masks: Arc::clone(&self.masks),
            closed_objects: options.closed_objects,
        })
    }

    /// The options of a required call where each tool that is not strict, and whose schema does not compile, takes any object;
    /// `None` if there is no such tool. The error of a strict one has its place in the request, not in the schema of all calls.
    fn without_refused_schemas(
        &self,
        options: &ConstraintOptions,
    ) -> Result<Option<ConstraintOptions>, Unfinished> {
        let mut relaxed = options.clone();
        let refusal = |schema: &Value, place: usize| {
            let mut source = GrammarSource::JsonSchema(schema.clone());
            if options.closed_objects {
                source = source.with_closed_objects();
            }
            let refused = self.grammars.compile(&source).err();
            let refused = refused.filter(|error| !error.is_temporary())?;
            let field = format!("tools[{place}].parameters");
            Some(ResponseFormat { source, field }.grammar_error(&refused))
        };
        let mut has_refused = false;
        for (at, tool) in relaxed.tools.iter_mut().enumerate() {
            let arguments = tool.arguments.as_ref();
            let Some(error) = arguments.and_then(|schema| refusal(schema, tool.place)) else {
                continue;
            };
            if tool.strict {
                return Err(Unfinished::Failed(error));
            }
            (tool.arguments, has_refused) = (None, true);
            if let Some(ResponseFormat {
                source: GrammarSource::JsonSchema(calls),
                ..
            }) = &mut relaxed.format
            {
                allow_any_arguments(calls, at);
            }
        }
        Ok(has_refused.then_some(relaxed))
    }

    fn strict_grammars(
        &self,
        options: &ConstraintOptions,
        effort: Effort,
    ) -> Result<Option<StrictGrammars>, Unfinished> {
        let Some(openings) = self.call_openings(effort)? else {
            return Ok(None);
        };
        let mut then = Vec::new();
        for syntax in openings.call_syntaxes() {
            let format = syntax.map(|syntax| options.call_format(syntax));
            then.push(self.compile_grammar(options, format, effort)?);
        }
        let first = options
            .in_channels
            .then(|| options.call_format(CallSyntax::HARMONY_FIRST));
        let first = self.compile_grammar(options, first, effort)?;
        Ok(Some(StrictGrammars {
            openings,
            then,
            first,
        }))
    }

    fn compile_grammar(
        &self,
        options: &ConstraintOptions,
        format: Option<ResponseFormat>,
        effort: Effort,
    ) -> Result<Option<Arc<Grammar>>, Unfinished> {
        let Some(mut format) = format else {
            return Ok(None);
        };
        if options.closed_objects {
            format.source = format.source.with_closed_objects();
        }
        if let Some(grammar) = self.grammars.find_cached(&format.source) {
            return Ok(Some(grammar));
        }
        if effort == Effort::Cached {
            return Err(Unfinished::Uncached);
        }
        match self.grammars.compile(&format.source) {
            Ok(grammar) => Ok(Some(grammar)),
            Err(error) => Err(Unfinished::Failed(format.grammar_error(&error))),
        }
    }

    /// Delimiters that begin tool calls.
    fn call_openings(&self, effort: Effort) -> Result<Option<Arc<DelimiterSet>>, Unfinished> {
        look_up(&self.call_openings, effort, || {
            DelimiterSet::call_openings(self.answers, &self.tokenizer)
        })
    }

    /// Delimiters that end reasoning.
    fn reasoning_closings(&self, effort: Effort) -> Result<Option<Arc<DelimiterSet>>, Unfinished> {
        look_up(&self.reasoning_closings, effort, || {
            DelimiterSet::reasoning_closings(self.answers, &self.tokenizer)
        })
    }
}

/// The set, which is found by a walk through the vocabulary the first time.
fn look_up(
    found: &FoundDelimiters,
    effort: Effort,
    find: impl FnOnce() -> Option<DelimiterSet>,
) -> Result<Option<Arc<DelimiterSet>>, Unfinished> {
    match (found.get(), effort) {
        (Some(set), _) => Ok(set.clone()),
        (None, Effort::Cached) => Err(Unfinished::Uncached),
        (None, Effort::Full) => Ok(found.get_or_init(|| find().map(Arc::new)).clone()),
    }
}
