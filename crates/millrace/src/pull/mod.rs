//! Fetching models from a hub of Hugging Face's kind.
//!
//! ```text
//! source  what a name means: a repository and a file of it     known   short names, and whose they are
//! hub     what a repository has, and the bytes of its files    choose  which of them
//! fetch   a file into its place: resumed, verified, renamed             sum     what its content must hash to
//! ```
//!
//! A file comes into `NAME.SUM.part` beside its place. Whatever interrupts that, what came stays; the next pull goes
//! on after it. Only what has the sum that the hub names gets its own name, all at once.

mod choose;
mod fetch;
mod hub;
mod known;
mod progress;
mod source;
mod sum;

use crate::model_store::{ModelName, ModelStore};
use fetch::Fetch;
use hub::Hub;
use progress::{ReportPull, expect_continue};
use server::{LibraryError, PullNews};
use source::Source;
use std::path::{Component, Path};
use sum::Sum;

/// Fetches the model of this name into the first model directory, and gives it the name.
///
/// # Errors
/// The name means nothing, the hub does not have it, what came is not what it should be, or nobody waits any more.
pub(crate) fn pull(
    store: &ModelStore,
    name: &str,
    report: ReportPull<'_>,
) -> Result<(), LibraryError> {
    let source = Source::parse(name)?;
    let model =
        ModelName::parse(&source.name).ok_or_else(|| LibraryError::Invalid(ModelName::rule()))?;
    let hub = Hub::from_env()?;
    expect_continue(report(PullNews::Listing))?;
    let files = hub.files(&source)?;
    let chosen = choose::choose(&files, &source)?;
    let folder = format!("{}/{}", source.owner, source.repository);
    let directory = store.download_directory()?;
    for file in &chosen {
        let place = expect_plain(&folder, &file.path)?;
        let fetch = Fetch {
            hub: &hub,
            source: &source,
            file,
            target: directory.join(place),
        };
        fetch.run(report)?;
    }
    expect_continue(report(PullNews::Naming))?;
    let first = chosen
        .first()
        .ok_or_else(|| LibraryError::Unknown(source.name.clone()))?;
    let place = expect_plain(&folder, &first.path)?;
    let sha256 = chosen.iter().find_map(|file| match &file.sum {
        Sum::Sha256(digits) => Some(digits.as_str()),
        Sum::Git(_) => None,
    });
    store.name_file(&model, &place, sha256)
}

/// Whether this is surely a name to pull: a short one that is known, or one that begins with a hub's host.
pub(crate) fn is_known(name: &str) -> bool {
    known::find(name).is_some() || source::is_hosted(name) && Source::parse(name).is_ok()
}

/// A path that a hub told, under the folder: it leads nowhere else.
fn expect_plain(folder: &str, path: &str) -> Result<String, LibraryError> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let right =
        !path.is_empty() && !path.contains(['\\', '\0']) && Path::new(path).components().all(plain);
    match right {
        true => Ok(format!("{folder}/{path}")),
        false => Err(LibraryError::Failed(
            "the hub lists a file whose path leaves the repository".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::expect_plain;

    #[test]
    fn a_hub_cannot_write_elsewhere() {
        assert_eq!(expect_plain("a/b", "c/d.gguf").unwrap(), "a/b/c/d.gguf");
        for path in [
            "",
            "/etc/x",
            "../x",
            "a/../../x",
            "a\\..\\x",
            "./../x",
            "a\0b",
        ] {
            assert!(expect_plain("a/b", path).is_err(), "{path:?}");
        }
    }
}
