//! Names that a model can be given, and models with settings of their own (`models.named`), over the models of this
//! machine.

use super::change::derive_from;
use super::{LATEST, ModelStore};
use crate::config::NamedModel;
use server::{DerivedModel, LocalModel};
use std::fmt;
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

/// Bytes of a name.
pub(crate) const NAME_BYTES_MAX: usize = 200;
/// Ending of a record's file name.
const RECORD: &str = ".json";

/// A valid name of a model: parts of letters, digits, `.`, `_`, `-` and `@`, none beginning with a dot, with `/` between
/// them, and a tag after `:`. No such name is a path out of its directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelName(String);

impl ModelName {
    /// The name, if the text is a valid one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_part = |part: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
        };
        let (path, tag) = match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (text, None),
        };
        // A host may have a port.
        let path_is = |(i, part): (usize, &str)| match part.split_once(':') {
            Some((host, port)) if i == 0 && path.contains('/') => {
                is_part(host) && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
            }
            _ => is_part(part),
        };
        let right = text.len() <= NAME_BYTES_MAX
            && path.split('/').enumerate().all(path_is)
            && tag.is_none_or(is_part);
        right.then(|| Self(text.to_owned()))
    }

    /// The error message for an invalid name.
    pub(crate) fn rule() -> String {
        format!(
            "a model's name has at most {NAME_BYTES_MAX} letters, digits, dots, underscores, hyphens and `@`, with `/` between \
             parts (none of which begins with a dot), and may end with a tag after `:`"
        )
    }

    /// The name encoded as a file name.
    pub(super) fn file_name(&self) -> String {
        let name = self.0.replace('/', "%2F").replace(':', "%3A");
        format!("{name}{RECORD}")
    }

    /// The name of the record with this file name.
    pub(super) fn of_file_name(file: &str) -> Option<Self> {
        let name = file.strip_suffix(RECORD)?;
        let parsed = Self::parse(&name.replace("%2F", "/").replace("%3A", ":"))?;
        (parsed.file_name() == file).then_some(parsed)
    }

    /// The name as the user typed it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere() {
        let right = [
            "tiny",
            "tiny:1b",
            "qwen3:0.6b",
            "hf.co/org/repo-GGUF:Q4_K_M",
            "org/repo@v1.0:Q8_0",
            "org/repo:file.gguf",
            "localhost:8080/org/tiny:latest",
        ];
        for text in right {
            let name = ModelName::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(ModelName::of_file_name(&name.file_name()), Some(name));
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        let wrong = [
            "",
            ".",
            "..",
            "../tiny",
            "a/../b",
            "a/./b",
            "/etc/passwd",
            "a//b",
            "a/",
            ".hidden",
            "a/.b",
            "%2e%2e/x",
            "..%2Fx",
            "a\\b",
            "a b",
            "a\0b",
            "a\nb",
            "a:",
            ":a",
            "a:b:c",
            "a:..",
            "a:../b",
            "ä",
            &long,
        ];
        for text in wrong {
            assert_eq!(ModelName::parse(text), None, "{text:?}");
        }
        for file in ["a", "..json", "a%2f.json", "a%2F..%2Fb.json", "a b.json"] {
            assert_eq!(ModelName::of_file_name(file), None, "{file}");
        }
    }
}
