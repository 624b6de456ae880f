//! Short names of Ollama's clients, and repositories with these models as GGUF files.

/// A line for each short name: name with tag, repository, tensor format, use, megabytes of the file. The first of a
/// family is the default of the name without a tag.
const TABLE: &str = include_str!("known_models.txt");
/// Bytes of a megabyte.
const MEGABYTE: u64 = 1_000_000;

/// A short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownModel {
    /// Name with tag.
    pub(crate) name: &'static str,
    pub(super) repository: &'static str,
    pub(super) quant: &'static str,
    /// `text`, `embeddings` or `reranking`.
    pub(crate) purpose: &'static str,
    /// Size of the file, rounded.
    pub(crate) bytes: u64,
}

impl KnownModel {
    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        Some(Self {
            name: words.next()?,
            repository: words.next()?,
            quant: words.next()?,
            purpose: words.next()?,
            bytes: words.next()?.parse::<u64>().ok()? * MEGABYTE,
        })
    }
}

/// All short names, in the order of the table.
pub(crate) fn all() -> impl Iterator<Item = KnownModel> {
    TABLE.lines().filter_map(KnownModel::parse)
}

/// The model of this short name; no tag, or `latest`, means the first.
pub(super) fn find(name: &str) -> Option<KnownModel> {
    let bare = name.strip_suffix(":latest").unwrap_or(name);
    all().find(|known| known.name == bare || known.name.split(':').next() == Some(bare))
}

/// All short names, for error messages.
pub(super) fn list_names() -> String {
    let names: Vec<_> = all().map(|known| known.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{MEGABYTE, TABLE, all, find};

    #[test]
    fn each_line_of_the_table_is_a_model() {
        assert_eq!(all().count(), TABLE.lines().count());
        for known in all() {
            let purposes = ["text", "embeddings", "reranking"];
            assert!(purposes.contains(&known.purpose), "{known:?}");
            assert!(known.bytes >= 10 * MEGABYTE, "{known:?}");
            assert_eq!(find(known.name), Some(known));
        }
        assert_eq!(find("qwen3").map(|known| known.name), Some("qwen3:4b"));
        assert_eq!(find("qwen3:latest"), find("qwen3"));
    }
}
