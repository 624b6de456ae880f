//! The prompt of a reranker that is a generative model: text with places for a query and a document.

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
