//! Model names of Ollama's clients: with a tag, where the default tag is `latest`.

/// Suffix of a name with the default tag.
pub const LATEST: &str = ":latest";

/// The model name with a tag.
pub fn with_tag(id: &str) -> String {
    let name = id.rsplit('/').next().unwrap_or(id);
    if name.contains(':') {
        id.to_owned()
    } else {
        format!("{id}{LATEST}")
    }
}

#[cfg(test)]
mod tests {
    use super::with_tag;

    #[test]
    fn model_name_gets_a_tag() {
        for (id, want) in [
            ("tiny", "tiny:latest"),
            ("tiny:1b", "tiny:1b"),
            ("host:80/tiny", "host:80/tiny:latest"),
        ] {
            assert_eq!(with_tag(id), want);
        }
    }
}
