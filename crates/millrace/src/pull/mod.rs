//! Fetching models from a hub of Hugging Face's kind.
//!
//! ```text
//! source    the repository and file of a name         known  short names and their repositories
//! hub       a repository's files and their content    choose the files of a model
//! fetch     download: resumed, verified, renamed      sum    checksums
//! progress  reports to the caller
//! ```
//!
//! A file is downloaded into `NAME.SUM.part` beside the final path. After an interruption the partial file stays, and
//! the next pull resumes. A file with the hub's checksum is renamed atomically.

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
use source::HubSource;
use std::path::{Component, Path};
use sum::Sum;

/// Downloads the model of this name into the first model directory, and stores the name.
///
/// # Errors
/// The name is invalid, the hub lacks the model, a checksum is wrong, or the caller abandoned the download.
pub(crate) fn pull(
    store: &ModelStore,
    name: &str,
    report: ReportPull<'_>,
) -> Result<(), LibraryError> {
    let source = HubSource::parse(name)?;
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

/// Whether this is certainly a name to pull: a known short name, or one that begins with a hub's host.
pub(crate) fn is_known(name: &str) -> bool {
    known::find(name).is_some() || source::is_hosted(name) && HubSource::parse(name).is_ok()
}

/// A path from a hub's list under `folder`; a path out of the folder is an error.
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
    fn hub_path_outside_the_folder_is_rejected() {
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
