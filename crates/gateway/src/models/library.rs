//! The interface of the model store: find, load, pull, copy and delete models.

use super::{LoadProgress, ModelFacts, ServedModel};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use wire::derived_model::DerivedModel;

/// Models that a server may load beside the initial model, and operations on them.
///
/// Every call may block: the server runs the calls on blocking threads.
pub trait Library: Send + Sync + 'static {
    /// All models, including the model that the server was started with, in the order of lists.
    fn all(&self) -> Vec<LocalModel>;
    /// The model of this name, which a client sent. No name reaches a file outside the operator's directories.
    fn find(&self, name: &str) -> Option<LocalModel>;
    /// Whether the model that the server was started with is known: a gateway without one gets it from its engines. Until
    /// then a name may be found that is another model's later. Does not block.
    fn is_started(&self) -> bool {
        true
    }
    /// Why a request has to name its model; `None`: without a name it is for the model that the server was started with.
    /// Does not block.
    fn unnamed(&self) -> Option<&str> {
        None
    }
    /// Defaults of requests for the model that the server was started with. Does not block.
    fn started_defaults(&self) -> Option<Arc<DerivedModel>> {
        None
    }
    /// Bytes of memory that the loaded model takes, by the file's header.
    ///
    /// # Errors
    /// The file cannot be read; the message is for the log.
    fn bytes_needed(&self, weights: Option<&str>) -> Result<u64, String>;
    /// Loads the model and starts the engine. `tell` receives the progress.
    ///
    /// # Errors
    /// The model cannot be loaded.
    fn load(
        &self,
        weights: Option<&str>,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, LoadError>;
    /// Why the model, requested by this name, cannot be loaded now, where that is known before the load; the message is for
    /// the client.
    fn obstacle(&self, _name: &str, _weights: Option<&str>) -> Option<String> {
        None
    }
    /// Why there is no model of this name although other processes have one; the message is for the client.
    fn absence(&self, _name: &str) -> Option<String> {
        None
    }
    /// Downloads a model. `tell` receives the progress, and returns whether a client still waits.
    ///
    /// # Errors
    /// The download failed, or no client waits; received bytes stay, and the next pull continues.
    fn pull(
        &self,
        name: &str,
        tell: &mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>,
    ) -> Result<(), LibraryError>;
    /// Gives a model another name.
    ///
    /// # Errors
    /// The model is unknown, or the new name is invalid.
    fn copy(&self, from: &str, to: &str) -> Result<(), LibraryError>;
    /// Removes a name, and the file with the last name.
    ///
    /// # Errors
    /// The name is unknown, or the file is not managed by the model store.
    fn delete(&self, name: &str) -> Result<(), LibraryError>;
    /// Creates a derived model: other defaults for the weights of a model.
    ///
    /// # Errors
    /// The base model is unknown, or the new name is invalid.
    fn make(&self, name: &str, made: DerivedModel) -> Result<(), LibraryError>;
}

/// A model that is there, loaded or not.
#[derive(Clone, Debug)]
pub struct LocalModel {
    /// Name in requests.
    pub name: String,
    /// Source of the weights, by the model store's name; models with equal weights are loaded once. `None`: the
    /// model that the server was started with.
    pub weights: Option<String>,
    /// Metadata of the file.
    pub facts: Arc<ModelFacts>,
    /// Defaults of a derived model.
    pub made: Option<Arc<DerivedModel>>,
    /// Engines of other processes that compute for the model now; `None`: the engine is in this process.
    pub engines: Option<usize>,
}

/// A model that was loaded.
pub struct LoadedModel {
    /// The loaded model.
    pub model: Arc<ServedModel>,
    /// Bytes of memory that the model takes.
    pub bytes: u64,
    /// Ends the engine and returns when the memory is free; may block.
    pub close: Box<dyn FnOnce() + Send>,
}

/// Why a model was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The message is for the log.
    Failed(String),
    /// No engine of another process computes for the model; the message is for the client.
    NoEngine(String),
}

impl From<String> for LoadError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullNews<'a> {
    /// The repository's files are being listed.
    Listing,
    /// A file is being fetched.
    Fetching {
        /// Expected hash of the content: `sha256:` or `git:`, and hexadecimal digits.
        digest: &'a str,
        /// Size in bytes.
        total: u64,
        /// Bytes received.
        completed: u64,
    },
    /// The checksum is being verified.
    Verifying,
    /// The name is being recorded.
    Naming,
}

/// Why something could not be done to a model. The words name no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// There is no model of that name.
    Unknown(String),
    /// The caller can correct the request.
    Invalid(String),
    /// Another party failed: the hub, the disk.
    Failed(String),
    /// No client waited any more.
    Abandoned,
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "model '{name}' not found"),
            Self::Invalid(why) | Self::Failed(why) => f.write_str(why),
            Self::Abandoned => {
                f.write_str("the load was cancelled: no request waits for the model")
            }
        }
    }
}

impl std::error::Error for LibraryError {}
