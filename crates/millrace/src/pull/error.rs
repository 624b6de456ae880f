//! Why a pull failed, and what a person can do without the hub.

use super::hub::Hub;
use super::source::{HubSource, Pick};
use server::LibraryError;
use std::fmt;
use std::path::PathBuf;

/// Why a model was not downloaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// As clients of a server see it.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The hub cannot be reached, or the connection was interrupted.
    #[error("{0}")]
    Unreachable(Box<Unreachable>),
}

/// A hub that cannot be reached, and another way to get the file.
#[derive(Debug)]
pub(crate) struct Unreachable {
    problem: String,
    hub: String,
    proxy: Option<String>,
    /// Where the file is, and which one where this is a page of files.
    address: String,
    /// The folder for the file.
    folder: Option<PathBuf>,
}

impl Unreachable {
    /// The hub did not answer; `file` is known where its list of files came.
    pub(super) fn error(
        problem: String,
        (hub, source): (&Hub, &HubSource),
        file: Option<&str>,
        folder: Option<PathBuf>,
    ) -> PullError {
        let address = match (file, &source.pick) {
            (Some(file), _) => hub.file_address(source, file),
            (None, Pick::File(file)) => hub.file_address(source, file),
            (None, Pick::Quant(quant)) => {
                let page = hub.page_address(source);
                format!("the .gguf file with {quant} in its name, of {page},")
            }
            (None, Pick::Usual) => format!("the model's files, of {},", hub.page_address(source)),
        };
        PullError::Unreachable(Box::new(Self {
            problem,
            hub: hub.shown_endpoint(),
            proxy: hub.proxy(),
            address,
            folder,
        }))
    }
}

/// Clients of a server get no paths and no proxies.
impl From<PullError> for LibraryError {
    fn from(why: PullError) -> Self {
        match why {
            PullError::Library(why) => why,
            PullError::Unreachable(why) => Self::Failed(why.problem),
        }
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxy = match &self.proxy {
            Some(proxy) => format!("through the proxy {proxy}"),
            None => "without a proxy".to_owned(),
        };
        write!(
            f,
            "{}\n  hub: {} (HF_ENDPOINT names another one), {proxy} (HTTPS_PROXY names one)",
            self.problem, self.hub
        )?;
        match &self.folder {
            None => Ok(()),
            Some(folder) => write!(
                f,
                "\n  by another way: put {} into {}; `millrace list` then shows its name",
                self.address,
                folder.display()
            ),
        }
    }
}
