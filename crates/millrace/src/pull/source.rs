//! The repository of a hub and the file of that repository that a name stands for.

use super::known;
use server::LibraryError;

/// Hosts that a repository's name may begin with.
const HOSTS: [&str; 3] = ["hf.co/", "huggingface.co/", "www.huggingface.co/"];
/// Prefixes that Ollama's clients put before a short name.
const SHORT: [&str; 3] = [
    "registry.ollama.ai/library/",
    "ollama.com/library/",
    "library/",
];

/// The branch of a repository without `@REVISION`.
const BRANCH: &str = "main";

/// Characters of an invalid name that an error repeats.
const SHOWN_CHARS: usize = 64;

/// A model in a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubSource {
    /// Name of the model on this machine.
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) repository: String,
    /// Branch, tag or commit; `None`: the branch `main`.
    pub(super) revision: Option<String>,
    pub(super) pick: Pick,
}

/// Which file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The file with the preferred tensor format.
    Usual,
    /// The file with this tensor format, such as `Q4_K_M`.
    Quant(String),
    /// The file of this path.
    File(String),
}

impl HubSource {
    /// Reads `hf.co/OWNER/REPOSITORY[@REVISION][:QUANT|:FILE.gguf]` (the host may be left out), or a short name.
    pub(super) fn parse(typed: &str) -> Result<Self, LibraryError> {
        let typed = typed.trim();
        let bare = typed.strip_prefix("https://").unwrap_or(typed);
        let bare = bare.strip_prefix("http://").unwrap_or(bare);
        let hosted = HOSTS.iter().find_map(|host| bare.strip_prefix(host));
        let (path, pick) = split_pick(hosted.unwrap_or(bare));
        let parts: Vec<&str> = path.split('/').collect();
        match (hosted, parts.as_slice()) {
            (None, [_] | ["library", _] | [_, "library", _]) => Self::parse_short(bare),
            (_, [owner, last]) => {
                let (repository, revision) = match last.split_once('@') {
                    Some((repository, revision)) => (repository, Some(revision)),
                    None => (*last, None),
                };
                let parts = [Some(*owner), Some(repository), revision];
                if !parts.into_iter().flatten().all(is_part) {
                    return Err(invalid_name());
                }
                let host = if hosted.is_some() { "hf.co/" } else { "" };
                let pick = pick.map(expect_inside).transpose()?;
                let tag = pick.map(|pick| pick.rsplit('/').next().unwrap_or(pick));
                Ok(Self {
                    name: match tag {
                        Some(tag) => format!("{host}{path}:{tag}"),
                        None => format!("{host}{path}"),
                    },
                    owner: (*owner).to_owned(),
                    repository: repository.to_owned(),
                    revision: revision.map(str::to_owned),
                    pick: Pick::of(pick),
                })
            }
            _ => Err(invalid_name()),
        }
    }

    /// Branch, tag or commit.
    pub(super) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(BRANCH)
    }

    /// The folder of the files in a model directory; one of its own for each revision, so that none replaces another's file.
    pub(super) fn folder(&self) -> String {
        let (owner, repository) = (&self.owner, &self.repository);
        match &self.revision {
            None => format!("{owner}/{repository}"),
            Some(revision) => format!("{owner}/{repository}@{revision}"),
        }
    }

    /// The source of a short name of Ollama's clients.
    fn parse_short(typed: &str) -> Result<Self, LibraryError> {
        let name = SHORT.iter().find_map(|host| typed.strip_prefix(host));
        let name = name.unwrap_or(typed);
        let Some(known) = known::find(name) else {
            return Err(LibraryError::Invalid(format!(
                "no model is known by that short name; known are {}; any repository with GGUF files can be named \
                 as hf.co/OWNER/REPOSITORY or hf.co/OWNER/REPOSITORY:QUANT",
                known::list_names()
            )));
        };
        let (owner, repository) = known.repository.split_once('/').unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            owner: owner.to_owned(),
            repository: repository.to_owned(),
            revision: None,
            pick: Pick::Quant(known.quant.to_owned()),
        })
    }
}

impl Pick {
    fn of(pick: Option<&str>) -> Self {
        match pick {
            None | Some("latest") => Self::Usual,
            Some(file) if file.to_ascii_lowercase().ends_with(".gguf") => {
                Self::File(file.to_owned())
            }
            Some(quant) => Self::Quant(quant.to_ascii_uppercase()),
        }
    }
}

/// Whether a name begins with the host of a hub.
pub(super) fn is_hosted(typed: &str) -> bool {
    let bare = typed.trim_start_matches("https://");
    HOSTS.iter().any(|host| bare.starts_with(host))
}

/// A repository's path, and the text after the colon.
fn split_pick(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((path, pick)) => (path, Some(pick)),
        None => (text, None),
    }
}

fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
}

/// A tensor format, or a path inside of the repository. A path out of the repository is rejected before any request to
/// the hub.
fn expect_inside(pick: &str) -> Result<&str, LibraryError> {
    let is_plain = |part: &str| {
        let harmless = |c: char| !c.is_control() && !matches!(c, '\\' | ':');
        !matches!(part, "" | "." | "..") && part.chars().all(harmless)
    };
    let is_path = pick.to_ascii_lowercase().ends_with(".gguf");
    let is_inside = if is_path {
        pick.split('/').all(is_plain)
    } else {
        is_part(pick)
    };
    is_inside.then_some(pick).ok_or_else(|| {
        let shown: String = pick.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        LibraryError::Invalid(format!(
            "`{shown}` is neither a quantisation such as Q4_K_M nor the path of a .gguf file inside the repository"
        ))
    })
}

fn invalid_name() -> LibraryError {
    LibraryError::Invalid(
        "say hf.co/OWNER/REPOSITORY, hf.co/OWNER/REPOSITORY:QUANT, OWNER/REPOSITORY:FILE.gguf (each with @REVISION after \
         REPOSITORY, a branch, tag or commit), or a short name such as qwen3:0.6b"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    //! Promise (Models): a path in a pulled name that leaves the repository is rejected before a hub is contacted.

    use super::*;

    #[test]
    fn valid_names_are_parsed() {
        let quant = |text: &str| Pick::Quant(text.to_owned());
        let rows = [
            ("hf.co/a/b", "hf.co/a/b", "a/b", Pick::Usual),
            (
                "https://huggingface.co/a/b",
                "hf.co/a/b",
                "a/b",
                Pick::Usual,
            ),
            ("hf.co/a/b:latest", "hf.co/a/b:latest", "a/b", Pick::Usual),
            (
                "hf.co/a/b:q4_k_m",
                "hf.co/a/b:q4_k_m",
                "a/b",
                quant("Q4_K_M"),
            ),
            ("a/b", "a/b", "a/b", Pick::Usual),
            ("a/b:Q8_0", "a/b:Q8_0", "a/b", quant("Q8_0")),
            (
                "a/b:c.gguf",
                "a/b:c.gguf",
                "a/b",
                Pick::File("c.gguf".to_owned()),
            ),
            (
                "a/b:d/c.gguf",
                "a/b:c.gguf",
                "a/b",
                Pick::File("d/c.gguf".to_owned()),
            ),
            (
                "qwen3:0.6b",
                "qwen3:0.6b",
                "Qwen/Qwen3-0.6B-GGUF",
                quant("Q8_0"),
            ),
            (
                "library/qwen3:0.6b",
                "qwen3:0.6b",
                "Qwen/Qwen3-0.6B-GGUF",
                quant("Q8_0"),
            ),
            (
                "llama3.2",
                "llama3.2",
                "bartowski/Llama-3.2-3B-Instruct-GGUF",
                quant("Q4_K_M"),
            ),
        ];
        for (typed, name, path, pick) in rows {
            let source = HubSource::parse(typed).unwrap_or_else(|why| panic!("{typed}: {why}"));
            let found = format!("{}/{}", source.owner, source.repository);
            assert_eq!(
                (source.name.as_str(), found.as_str(), source.pick),
                (name, path, pick)
            );
        }
    }

    #[test]
    fn revision_is_part_of_name_and_folder() {
        let rows = [
            ("hf.co/a/b", "hf.co/a/b", "main", "a/b"),
            ("a/b@v1.2:Q8_0", "a/b@v1.2:Q8_0", "v1.2", "a/b@v1.2"),
            (
                "hf.co/a/b@0a1b2c",
                "hf.co/a/b@0a1b2c",
                "0a1b2c",
                "a/b@0a1b2c",
            ),
        ];
        for (typed, name, revision, folder) in rows {
            let source = HubSource::parse(typed).unwrap_or_else(|why| panic!("{typed}: {why}"));
            let found = (source.name.as_str(), source.revision(), source.folder());
            assert_eq!(found, (name, revision, folder.to_owned()));
            assert!(
                crate::model_store::ModelName::parse(name).is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        for typed in [
            "a/b@",
            "a/b@..",
            "a/b@x@y",
            "a/b@../x:Q8_0",
            "a@v1/b",
            "",
            "nobody-knows-it",
            "a/b/c",
            "hf.co/a",
            "../b",
            "a/..",
            "a/b c",
            "hf.co/../a",
            "a/b:../../../x.gguf",
            "a/b:c/../x.gguf",
            "a/b:/etc/x.gguf",
            "a/b:./x.gguf",
            "a/b:c//x.gguf",
            "a/b:c\\x.gguf",
            "a/b:c\nx.gguf",
            "a/b:../Q4_K_M",
            "a/b:Q4/K",
            "a/b:",
        ] {
            assert!(HubSource::parse(typed).is_err(), "{typed:?}");
        }
    }
}
