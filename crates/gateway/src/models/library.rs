//! What the server may ask of who keeps its models: which there are, and to load one.

use super::{LoadProgress, ModelFacts, ServedModel};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use wire::derived_model::DerivedModel;

/// Models that a server may load, beside the one it was started with, and what may be done to them.
///
/// Every call may block: the server makes them on threads where that holds nobody up.
pub trait Library: Send + Sync + 'static {
    /// All models, the one that the server was started with among them, in the order they are listed in.
    fn all(&self) -> Vec<LocalModel>;
    /// The model of this name, which a client typed. Whatever it is, nothing outside the operator's
    /// directories is reached by it.
    fn find(&self, name: &str) -> Option<LocalModel>;
    /// Bytes of memory that loading it takes, as its file says.
    ///
    /// # Errors
    /// The file cannot be read, in words for the log.
    fn bytes_needed(&self, weights: Option<&str>) -> Result<u64, String>;
    /// Loads it and starts its engine. `tell` hears how far it is.
    ///
    /// # Errors
    /// It cannot be loaded, in words for the log.
    fn load(
        &self,
        weights: Option<&str>,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, String>;
    /// Fetches a model. `tell` hears how far it is, and may say that nobody waits for it any more.
    ///
    /// # Errors
    /// It could not be had, or nobody waits; what came stays, and is gone on from the next time.
    fn pull(
        &self,
        name: &str,
        tell: &mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>,
    ) -> Result<(), LibraryError>;
    /// Gives a model another name beside its own.
    ///
    /// # Errors
    /// There is no such model, or the new name cannot be one.
    fn copy(&self, from: &str, to: &str) -> Result<(), LibraryError>;
    /// Takes a name away, and its file with the last name for it.
    ///
    /// # Errors
    /// There is no such name, or it is not the library's to take away.
    fn delete(&self, name: &str) -> Result<(), LibraryError>;
    /// Makes a model of another one: the same weights, asked differently.
    ///
    /// # Errors
    /// There is no such model to make it of, or the new name cannot be one.
    fn make(&self, name: &str, made: DerivedModel) -> Result<(), LibraryError>;
}

/// A model that is there, loaded or not.
#[derive(Clone, Debug)]
pub struct LocalModel {
    /// The name clients ask for.
    pub name: String,
    /// What it is loaded from, as the library knows it; models of the same weights are loaded once.
    /// `None`: what the server was started with.
    pub weights: Option<String>,
    /// What its file says of it.
    pub facts: Arc<ModelFacts>,
    /// How it is asked differently from its weights' own model.
    pub made: Option<Arc<DerivedModel>>,
}

/// A model that was loaded.
pub struct LoadedModel {
    /// The loaded model.
    pub model: Arc<ServedModel>,
    /// Bytes of memory it has.
    pub bytes: u64,
    /// Ends its engine and returns when its memory is free; may block.
    pub close: Box<dyn FnOnce() + Send>,
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullNews<'a> {
    /// The repository's files are being listed.
    Listing,
    /// A file is being fetched.
    Fetching {
        /// What its content must hash to: `sha256:` or `git:`, and hexadecimal digits.
        digest: &'a str,
        /// Size in bytes.
        total: u64,
        /// Those that are there.
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
    /// The caller can mend it.
    Invalid(String),
    /// Somebody else could not do his part: the hub, the disk.
    Failed(String),
    /// Nobody waited for it any more.
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
