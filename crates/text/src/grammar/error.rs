//! Errors of compiling a grammar.

/// Why a grammar cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// Location in the source: a path such as `properties.name.pattern` in a schema; empty for the whole
    /// source and for sources without paths.
    pub place: String,
    /// The fault at the location.
    pub why: String,
}

impl GrammarError {
    /// Value of `why` when the system could not create a thread.
    pub(super) const NO_THREAD: &str = "could not be compiled now: no thread";

    /// Whether the same source may compile later.
    pub fn is_temporary(&self) -> bool {
        self.why == Self::NO_THREAD
    }

    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self {
            place: String::new(),
            why: why.into(),
        }
    }

    /// This error located in the arguments' schema of a tool.
    pub(super) fn in_tool(self, tool: usize) -> Self {
        let dot = if self.place.is_empty() { "" } else { "." };
        let Self { place, why } = self;
        Self {
            place: format!("[{tool}]"),
            why: format!("parameters{dot}{place}: {why}"),
        }
    }
}

impl std::fmt::Display for GrammarError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.why),
            place => write!(f, "{place}: {}", self.why),
        }
    }
}

impl std::error::Error for GrammarError {}
