//! Why a grammar is refused.

/// Why a grammar could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// Where in the source: below a schema a path such as `properties.name.pattern`; empty where it is the whole
    /// or where there are no places.
    pub place: String,
    /// What is wrong there.
    pub why: String,
}

impl GrammarError {
    /// What `why` says where the system had no thread to compile it on.
    pub(super) const NO_THREAD: &str = "could not be compiled now: no thread";

    /// Whether the same source may be compiled another time.
    pub fn is_temporary(&self) -> bool {
        self.why == Self::NO_THREAD
    }

    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self {
            place: String::new(),
            why: why.into(),
        }
    }

    /// Of the arguments' schema of this tool.
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
