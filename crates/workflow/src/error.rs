//! Errors of documents and of inputs.

/// One error with a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Location: `steps[2].body[0].batch_size`, `inputs[1].min`; `document` for the whole.
    pub path: String,
    /// The error, and a correct alternative.
    pub what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// All errors, in the document's order; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// Errors that are reported; a document can contain many more.
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
