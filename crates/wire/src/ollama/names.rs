//! Models by the names Ollama's clients use: with a tag, of which `latest` goes without saying.

/// The tag of a name without one.
pub const LATEST: &str = ":latest";

/// A model's name with its tag.
pub fn tagged(id: &str) -> String {
    let name = id.rsplit('/').next().unwrap_or(id);
    match name.contains(':') {
        true => id.to_owned(),
        false => format!("{id}{LATEST}"),
    }
}

#[cfg(test)]
mod tests {
    use super::tagged;

    #[test]
    fn every_name_has_a_tag() {
        for (id, want) in [
            ("tiny", "tiny:latest"),
            ("tiny:1b", "tiny:1b"),
            ("host:80/tiny", "host:80/tiny:latest"),
        ] {
            assert_eq!(tagged(id), want);
        }
    }
}
