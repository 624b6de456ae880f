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

/// Downloads the model of this name into the first model directory, and stores the name. While the hub cannot be asked, a
/// model that is on this machine stays as it is.
///
/// # Errors
/// The name is invalid, the hub lacks the model, a checksum is wrong, or the caller abandoned the download.
pub(crate) fn pull(
    store: &ModelStore,
    name: &str,
    report: ReportPull<'_>,
) -> Result<(), LibraryError> {
    let (source, model) = parse(name)?;
    let hub = match Hub::from_env() {
        Err(why) => return keep_present(store, &model, why),
        Ok(hub) => hub,
    };
    expect_continue(report(PullNews::Listing))?;
    let files = match hub.files(&source) {
        Err(why @ LibraryError::Failed(_)) => return keep_present(store, &model, why),
        files => files?,
    };
    let chosen = choose::choose(&files, &source)?;
    let folder = source.folder();
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

/// Whether a model of this name is on this machine, without a request to the hub.
///
/// # Errors
/// The name is invalid.
pub(crate) fn is_present(store: &ModelStore, name: &str) -> Result<bool, LibraryError> {
    let (_, model) = parse(name)?;
    Ok(store.find_local(model.as_str()).is_some())
}

fn parse(name: &str) -> Result<(HubSource, ModelName), LibraryError> {
    let source = HubSource::parse(name)?;
    let model = ModelName::parse(&source.name);
    let model = model.ok_or_else(|| LibraryError::Invalid(ModelName::rule()))?;
    Ok((source, model))
}

/// Success, if the model is on this machine; else why the hub was not asked.
fn keep_present(
    store: &ModelStore,
    model: &ModelName,
    why: LibraryError,
) -> Result<(), LibraryError> {
    if store.find_local(model.as_str()).is_none() {
        return Err(why);
    }
    tracing::warn!("{why}: {model} stays as it is on this machine");
    Ok(())
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
