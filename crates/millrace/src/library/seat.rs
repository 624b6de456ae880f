//! Engines that run, and the settings they follow.

use crate::bounds::tuning;
use crate::config::{Settings, Speculation};
use crate::failure::Failure;
use crate::loading::{self, Loaded, Place};
use engine::Handle;
use server::{LoadProgress, LoadedModel, ModelHandle, ServedModel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them. An engine is in it from when it is loaded until it is closed.
pub(super) struct Seats(Arc<Mutex<Inside>>);

struct Inside {
    settings: Settings,
    engines: Vec<(u64, Handle)>,
    next: u64,
}

impl Seats {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(Inside {
            settings,
            engines: Vec::new(),
            next: 0,
        })))
    }

    /// From now on these hold: for who runs, as far as they can change, and for who is loaded.
    pub(super) fn follow(&self, settings: Settings) {
        let mut inside = lock(&self.0);
        for (_, engine) in &inside.engines {
            engine.tune(tuning(&settings));
        }
        inside.settings = settings;
    }

    /// Bytes of memory that loading it takes.
    pub(super) fn needed(&self, place: &Place) -> Result<u64, Failure> {
        loading::bytes_needed(place, &self.settings(place))
    }

    /// Loads it and starts its engine.
    pub(super) fn load(
        &self,
        place: &Place,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, Failure> {
        let loaded = loading::load_from(place, &self.settings(place), tell)?;
        let mut inside = lock(&self.0);
        // They may have changed meanwhile.
        loaded.engine.tune(tuning(&inside.settings));
        let seat = inside.next;
        inside.next += 1;
        inside.engines.push((seat, loaded.engine.clone()));
        drop(inside);
        let seats = Arc::clone(&self.0);
        Ok(LoadedModel {
            model: Arc::new(served(&loaded)),
            bytes: loaded.bytes,
            close: Box::new(move || {
                lock(&seats).engines.retain(|(id, _)| *id != seat);
                loaded.close();
            }),
        })
    }

    /// Those for a model: a draft model, a context and a name are for the one that the server is started with.
    fn settings(&self, place: &Place) -> Settings {
        let mut settings = lock(&self.0).settings.clone();
        if !place.is_started() {
            settings.model.context = None;
            if settings.engine.speculation == Speculation::Draft {
                settings.engine.speculation = Speculation::Off;
                settings.engine.draft_model = None;
            }
        }
        settings
    }
}

fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

fn served(loaded: &Loaded) -> ServedModel {
    ServedModel {
        id: loaded.name.clone(),
        created_unix_s: loading::now_unix_s(),
        facts: loaded.facts.clone(),
        steps: Arc::clone(&loaded.steps),
        handle: ModelHandle {
            tokenizer: Arc::clone(&loaded.tokenizer),
            template: Arc::clone(&loaded.template),
            answers: loaded.answers,
            capabilities: loaded.capabilities,
            engine: loaded.engine.clone(),
            context_max: loaded.context_max,
            eos: loaded.tokenizer.eos_ids().into(),
            token_pool: loaded.tokens.clone(),
            top_pool: loaded.tops.clone(),
        },
    }
}
