//! Fetching models from a hub of Hugging Face's kind.
//!
//! ```text
//! source    the repository and file of a name         known  short names and their repositories
//! hub       a repository's files and their content    choose the files of a model
//! fetch     download: resumed, verified, renamed      sum    checksums
//! progress  reports to the caller, and the bound     space  free space of the disk
//! error     why a pull failed                     attempts  how often and when a request is repeated
//! ```
//!
//! A file is downloaded into `NAME.SUM.part` beside the final path. After an interruption the partial file stays, and
//! the next pull resumes. A file with the hub's checksum is renamed atomically.

mod attempts;
mod choose;
mod error;
mod fetch;
mod hub;
mod known;
mod progress;
mod source;
mod space;
mod sum;

use crate::model_files::pulled_tower;
use crate::model_store::{ModelName, ModelStore};
use attempts::Attempts;
pub(crate) use error::PullError;
use error::Unreachable;
use fetch::Fetch;
use hub::{Hub, HubFile, NoContent};
pub(crate) use known::all as known_models;
use progress::{ReportPull, expect_continue};
use server::{LibraryError, PullNews};
use source::HubSource;
use std::path::{Component, Path};
use sum::Sum;

/// Downloads the model of this name into the first model directory, and stores the name. While the hub cannot be asked, a
/// model that is on this machine stays as it is.
///
/// # Errors
/// The name is invalid, the hub lacks the model, the disk has no room, a checksum is wrong, or the caller abandoned the
/// download.
pub(crate) fn pull(
    store: &ModelStore,
    name: &str,
    report: ReportPull<'_>,
) -> Result<(), PullError> {
    let (source, model) = parse(name)?;
    let hub = match Hub::from_env() {
        Err(why) => return keep_present(store, &model, why.into()),
        Ok(hub) => hub,
    };
    expect_continue(report(PullNews::Listing))?;
    let folder = source.folder();
    let directory = store.download_directory();
    let home = || directory.as_ref().ok().map(|home| home.join(&folder));
    let files = match list_files(&hub, &source, report) {
        Ok(files) => files,
        Err(NoContent::Never(why @ LibraryError::Failed(_))) => {
            return keep_present(store, &model, why.into());
        }
        Err(NoContent::Never(why)) => return Err(why.into()),
        Err(why) => {
            let problem = match why {
                NoContent::Busy(..) => {
                    format!("the hub {} cannot be used: {why}", hub.shown_endpoint())
                }
                _ => format!("the hub cannot be reached: {why}"),
            };
            let why = Unreachable::error(problem, (&hub, &source), None, home());
            return keep_present(store, &model, why);
        }
    };
    let chosen = choose::choose(&files, &source)?;
    let directory = store.download_directory()?;
    let fetch = |file, target| Fetch {
        hub: &hub,
        source: &source,
        file,
        target,
    };
    let mut fetches = Vec::with_capacity(chosen.len() + 1);
    for &file in &chosen {
        let target = directory.join(expect_plain(&folder, &file.path)?);
        fetches.push(fetch(file, target));
    }
    if let (Some(tower), Some(first)) = (choose_tower(store, &files, &chosen), fetches.first()) {
        let target = pulled_tower(&first.target);
        fetches.push(fetch(tower, target));
    }
    let missing = fetches.iter().map(Fetch::missing_bytes).sum();
    space::expect_space(directory, missing)?;
    for fetch in &fetches {
        fetch.run(report)?;
    }
    expect_continue(report(PullNews::Naming))?;
    let first = chosen
        .first()
        .ok_or_else(|| LibraryError::Unknown(source.name.clone()))?;
    let place = expect_plain(&folder, &first.path)?;
    store.name_file(&model, &place, first_sha256(&chosen))?;
    Ok(())
}

/// The first checksum that names the content.
fn first_sha256<'a>(files: &[&'a HubFile]) -> Option<&'a str> {
    files.iter().find_map(|file| match &file.sum {
        Sum::Sha256(digits) => Some(digits.as_str()),
        Sum::Git(_) => None,
    })
}

/// The tower that is taken along with these files of a model.
fn choose_tower<'a>(
    store: &ModelStore,
    files: &'a [HubFile],
    chosen: &[&HubFile],
) -> Option<&'a HubFile> {
    let first = chosen.first().filter(|_| store.takes_towers())?;
    choose::choose_tower(files, first)
}

/// The files of a repository. A hub that has no time is asked again.
fn list_files(
    hub: &Hub,
    source: &HubSource,
    report: ReportPull<'_>,
) -> Result<Vec<HubFile>, NoContent> {
    let mut attempts = Attempts::default();
    loop {
        let why = match hub.files(source) {
            Err(why @ NoContent::Busy(..)) => why,
            listed => return listed,
        };
        let look = || expect_continue(report(PullNews::Listing)).map_err(NoContent::Never);
        if !attempts.pause(why.asked_pause(), look)? {
            return Err(why);
        }
    }
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
fn keep_present(store: &ModelStore, model: &ModelName, why: PullError) -> Result<(), PullError> {
    if store.find_local(model.as_str()).is_none() {
        return Err(why);
    }
    let why = LibraryError::from(why);
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
    let why = if !right {
        "leaves the repository"
    } else if path.contains(char::is_control) {
        "has control characters"
    } else {
        return Ok(format!("{folder}/{path}"));
    };
    Err(LibraryError::Failed(format!(
        "the hub lists a file whose path {why}"
    )))
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
            "a\u{1b}b.gguf",
            "a\nb.gguf",
        ] {
            assert!(expect_plain("a/b", path).is_err(), "{path:?}");
        }
    }
}
