//! A look at a log that is not a reader.

use crate::End;
use crate::log::{AttachError, Log};
use crate::reader::Reader;
use crate::sync::Arc;

/// A look at a log that keeps its items but does not keep it from being abandoned.
pub struct Tap<T> {
    log: Arc<Log<T>>,
}

impl<T: Copy + Send + Sync + 'static> Tap<T> {
    pub(crate) fn new(log: &Arc<Log<T>>) -> Self {
        Self {
            log: Arc::clone(log),
        }
    }

    /// Items appended so far.
    pub fn len(&self) -> u64 {
        self.log.len()
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The end, if there is one.
    pub fn end(&self) -> Option<End> {
        self.log.end()
    }

    /// A reader from `index`; it makes an abandoned but open log not abandoned again.
    pub fn attach(&self, index: u64) -> Result<Reader<T>, AttachError> {
        self.log.check_index(index)?;
        Ok(Reader::start(&self.log, index))
    }
}

impl<T> Clone for Tap<T> {
    fn clone(&self) -> Self {
        Self {
            log: Arc::clone(&self.log),
        }
    }
}
