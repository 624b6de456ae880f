//! What is wrong with a document, or with what it was given.

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the fault: `steps[2].body[0].batch_size`, `inputs[1].min`; `document` for the whole.
    pub path: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// All that is wrong, in the document's order; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// Faults that are told; a document can have no end of them.
pub(crate) const FAULTS_MAX: usize = 100;

impl Faults {
    pub(crate) fn one(path: &str, what: impl Into<String>) -> Self {
        Self(vec![Fault {
            path: path.to_owned(),
            what: what.into(),
        }])
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            let between = if at > 0 { "; " } else { "" };
            write!(f, "{between}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
