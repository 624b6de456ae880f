//! Models with settings of their own (`models.named`), over the models of this machine.

use super::change::derive_from;
use super::{LATEST, ModelStore};
use crate::config::NamedModel;
use crate::failure::Failure;
use server::{DerivedModel, LocalModel, ModelTask};
use std::sync::Arc;

impl ModelStore {
    /// All models: those of this machine, and further names of the settings for them.
    pub(crate) fn all(&self) -> Vec<LocalModel> {
        let mut all = self.all_local();
        for (name, named) in self.named.iter().filter(|row| !self.is_taken(row)) {
            let Some(model) = self.find_as(name, named) else {
                continue;
            };
            match all.iter_mut().find(|local| local.name == model.name) {
                Some(listed) => *listed = model,
                None => all.push(model),
            }
        }
        all
    }

    /// The model of this name, with or without the tag `:latest`.
    pub(crate) fn find(&self, name: &str) -> Option<LocalModel> {
        if let Some((name, named)) = self.named_model(name) {
            return self.find_as(name, named);
        }
        let local = self.find_local(name)?;
        match self.named_model(&local.name) {
            Some((name, named)) if named.from.is_none() => self.find_as(name, named),
            _ => Some(local),
        }
    }

    /// Whether another model would describe images for this one.
    pub(crate) fn has_vision_proxy(&self, model: &LocalModel) -> bool {
        let named = self.named_model(&model.name);
        let has_proxy = match named.and_then(|(_, named)| named.vision_proxy.as_deref()) {
            Some(proxy) => proxy != "off",
            None => self.has_vision_proxy,
        };
        let reads_text = model.facts.task == ModelTask::Generation && model.facts.tower.is_none();
        has_proxy && reads_text
    }

    /// The model of this name, which describes images for others. `key`: the setting that names it.
    ///
    /// # Errors
    /// There is no such model here, or it reads text only.
    pub(crate) fn find_vision_proxy(&self, key: &str, name: &str) -> Result<LocalModel, Failure> {
        let Some(found) = self.find(name) else {
            return Err(Failure::user(format!(
                "{key}: there is no model {name:?} here"
            )));
        };
        if found.facts.tower.is_none() {
            return Err(Failure::user(format!(
                "{key}: {name:?} reads text only: it has no tower (docs/images.md)"
            )));
        }
        Ok(found)
    }

    /// Defaults of requests for the started model.
    pub(crate) fn started_defaults(&self) -> Option<Arc<DerivedModel>> {
        let (_, named) = self.named_model(self.started_name()?)?;
        named.defaults().map(Arc::new)
    }

    /// Names of the settings without effect: the model is not on this machine, or the name is the started model's.
    pub(crate) fn missing_named(&self) -> impl Iterator<Item = &str> {
        let names = self.named.iter();
        let missing =
            names.filter(|row| self.is_taken(row) || self.find_as(row.0, row.1).is_none());
        missing.map(|(name, _)| name.as_str())
    }

    /// Settings about loading the model with these weights. Names of one file share the settings of the first name.
    pub(super) fn named_for_load(&self, weights: Option<&str>) -> Option<&NamedModel> {
        let all = self.named.iter();
        let mut loading = all.filter(|(_, named)| named.changes_load());
        let has_weights = |name: &str| {
            let local = self.find_local(name);
            local.is_some_and(|local| local.weights.as_deref() == weights)
        };
        loading.find(|(name, _)| has_weights(name)).map(|row| row.1)
    }

    /// The settings' entry of a name, with or without the tag `:latest`.
    pub(super) fn named_model(&self, name: &str) -> Option<(&String, &NamedModel)> {
        let bare = without_tag(name);
        let tagged = format!("{bare}{LATEST}");
        let names = [name, bare, &tagged].into_iter();
        let mut found = names.filter_map(|name| self.named.get_key_value(name));
        found.find(|row| !self.is_taken(row))
    }

    /// Whether the entry would give the started model's name to another model.
    fn is_taken(&self, (name, named): &(&String, &NamedModel)) -> bool {
        let started = self.started_name().map(without_tag);
        named.from.is_some() && started == Some(without_tag(name))
    }

    /// The model of a name with its settings; `None`: the model is not on this machine.
    fn find_as(&self, name: &str, named: &NamedModel) -> Option<LocalModel> {
        let base = self.find_local(named.from.as_deref().unwrap_or(name))?;
        let below = base.made.as_deref().cloned().unwrap_or_default();
        let renamed = named.from.is_some();
        let made = match named.defaults() {
            Some(defaults) => Some(Arc::new(DerivedModel {
                adapter: below.adapter,
                parent: if renamed {
                    base.name.clone()
                } else {
                    below.parent
                },
                ..derive_from(base.clone(), defaults)
            })),
            None => base.made.clone(),
        };
        Some(LocalModel {
            name: if renamed { name.to_owned() } else { base.name },
            made,
            ..base
        })
    }
}

fn without_tag(name: &str) -> &str {
    name.strip_suffix(LATEST).unwrap_or(name)
}
