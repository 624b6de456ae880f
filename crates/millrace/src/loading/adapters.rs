//! The adapters of the model that the server was started with: opened, and compared with the model's tensors.

use crate::config::Settings;
use crate::failure::Failure;
use generate::model_handle::{ModelAdapter, ModelAdapters};
use weights::encoder::EncoderKind;
use weights::{Adapter, ModelFiles};

/// Opened adapters, by number.
#[derive(Default)]
pub(crate) struct OpenedAdapters {
    pub(crate) adapters: Vec<Adapter>,
    pub(super) named: ModelAdapters,
}

impl OpenedAdapters {
    /// Opens the adapters of the settings for a model.
    ///
    /// # Errors
    /// A file is no adapter of the model; the message names file, tensor and bound.
    pub(crate) fn open(files: &ModelFiles, settings: &Settings) -> Result<Self, Failure> {
        let given = settings.adapters().map_err(Failure::user)?;
        if given.is_empty() {
            return Ok(Self::default());
        }
        if let Some(kind) = EncoderKind::of(files.metadata()) {
            return Err(Failure::user(format!(
                "model.adapters: the model is an encoder ({}), for which adapters are not supported",
                kind.name()
            )));
        }
        let config = files.config(settings.model.context);
        let config = config.map_err(Failure::user)?;
        let mut adapters = Vec::with_capacity(given.len());
        let mut named = Vec::with_capacity(given.len());
        for adapter in given {
            let opened = Adapter::open(&adapter.path, files, &config).map_err(Failure::user)?;
            tracing::info!(
                name = adapter.name,
                rank = opened.rank(),
                kib = opened.bytes() >> 10,
                scale = adapter.scale,
                "adapter opened"
            );
            adapters.push(opened);
            let file = adapter.path.file_name().unwrap_or(adapter.path.as_os_str());
            let file = file.to_string_lossy().into_owned();
            named.push(ModelAdapter::new(adapter.name, file, adapter.scale));
        }
        Ok(Self {
            adapters,
            named: ModelAdapters::new(named),
        })
    }

    /// Names and contents, for the identity of the model.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (&str, &Adapter)> {
        let names = self.named.all().iter().map(|adapter| adapter.name.as_str());
        names.zip(&self.adapters)
    }
}
