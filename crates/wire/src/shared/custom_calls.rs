//! Calls of custom tools in an answer: their input is decoded from the arguments as they come.

use generate::output::custom_input::CustomInput;
use generate::output::event::{ToolCall, ToolCallPart};
use generate::tools::{OfferedTool, find_offered};

/// The open call of each choice, if of a custom tool.
#[derive(Default)]
pub(crate) struct CustomCalls(Vec<Option<CustomCall>>);

#[derive(Clone, Default)]
struct CustomCall {
    decoder: CustomInput,
    /// Input that the last part of the call gave.
    text: String,
}

impl CustomCalls {
    /// No calls so far.
    pub(crate) fn new(choices: usize) -> Self {
        Self(vec![None; choices])
    }

    /// Follows the parts of calls; `tools` are those that the client gave in another form than the model's.
    pub(crate) fn follow(&mut self, tools: &[OfferedTool], call: &ToolCall<'_>) {
        let open = &mut self.0[call.origin.choice];
        if let ToolCallPart::Start { name, .. } = call.part {
            let is_custom = find_offered(tools, name).is_some_and(|tool| tool.is_custom);
            *open = is_custom.then(CustomCall::default);
        }
        if let Some(open) = open {
            open.text.clear();
            if let ToolCallPart::Args(fragment) = call.part {
                open.decoder.take(fragment, &mut open.text);
            }
        }
    }

    /// Input that the last part of a choice's call gave. `None`: the call is not of a custom tool.
    pub(crate) fn new_input(&self, choice: usize) -> Option<&str> {
        self.0[choice].as_ref().map(|call| call.text.as_str())
    }

    /// Whether the call of a custom tool has arguments so far in which no input begins: those of another form are read as a
    /// whole when the call is complete.
    pub(crate) fn has_no_input(&self, choice: usize) -> bool {
        let call = self.0[choice].as_ref();
        call.is_some_and(|call| !call.decoder.has_begun())
    }
}
