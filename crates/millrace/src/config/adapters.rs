//! Adapters of the settings: `[NAME=]PATH[:SCALE]`.

use super::Settings;
use engine::{ADAPTER_SCALE_MAX, ADAPTERS_MAX, SEQUENCE_ADAPTERS_MAX};
use std::path::{Path, PathBuf};

/// Bytes of an adapter's name.
const NAME_BYTES_MAX: usize = 200;

/// One adapter of the settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdapterSetting {
    /// Name in requests.
    pub(crate) name: String,
    /// A GGUF, or a folder of PEFT.
    pub(crate) path: PathBuf,
    /// Scale of requests that say nothing about adapters.
    pub(crate) scale: f32,
}

impl AdapterSetting {
    /// The adapter that a text describes. Without a name, the file's name without its extension is the name; without a
    /// scale, the scale is 1.
    ///
    /// # Errors
    /// The name is none, the path is empty, or the scale is out of bounds.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if !name.contains('/') => (Some(name), rest),
            _ => (None, text),
        };
        let scaled = rest.rsplit_once(':');
        let scaled = scaled.and_then(|(path, scale)| Some((path, scale.parse::<f32>().ok()?)));
        let (path, scale) = scaled.unwrap_or((rest, 1.0));
        if !(-ADAPTER_SCALE_MAX..=ADAPTER_SCALE_MAX).contains(&scale) {
            return Err(format!(
                "{text:?}: the scale is {scale}, must be -{ADAPTER_SCALE_MAX} to {ADAPTER_SCALE_MAX}"
            ));
        }
        if path.is_empty() {
            return Err(format!("{text:?} has no path; it is [NAME=]PATH[:SCALE]"));
        }
        let path = PathBuf::from(path);
        let name = match name {
            Some(name) => name.to_owned(),
            None => stem(&path),
        };
        if !is_name(&name) {
            return Err(format!(
                "{text:?}: {name:?} is no name: 1 to {NAME_BYTES_MAX} letters, digits, dots, underscores and hyphens, \
                 not beginning with a dot"
            ));
        }
        Ok(Self { name, path, scale })
    }
}

impl Settings {
    /// The adapters of the model that the server is started with.
    ///
    /// # Errors
    /// One is not valid, a name is there twice, or there are too many.
    pub(crate) fn adapters(&self) -> Result<Vec<AdapterSetting>, String> {
        parse_adapters(&self.model.adapters)
    }
}

/// The adapters of one model.
///
/// # Errors
/// One is not valid, a name is there twice, or there are too many.
pub(super) fn parse_adapters(texts: &[String]) -> Result<Vec<AdapterSetting>, String> {
    if texts.len() > ADAPTERS_MAX {
        return Err(format!("{} adapters; at most {ADAPTERS_MAX}", texts.len()));
    }
    let mut all: Vec<AdapterSetting> = Vec::with_capacity(texts.len());
    for text in texts {
        let adapter = AdapterSetting::parse(text)?;
        if all.iter().any(|known| known.name == adapter.name) {
            return Err(format!("two adapters have the name {:?}", adapter.name));
        }
        all.push(adapter);
    }
    let used = all.iter().filter(|adapter| adapter.scale != 0.0).count();
    if used > SEQUENCE_ADAPTERS_MAX {
        return Err(format!(
            "{used} adapters have a scale, and a request uses at most {SEQUENCE_ADAPTERS_MAX}: give others the scale 0 (PATH:0)"
        ));
    }
    Ok(all)
}

/// Whether the adapters of the settings are valid, and can be used with the other settings.
pub(super) fn problem(settings: &Settings) -> Option<(&'static str, String)> {
    const KEY: &str = "model.adapters";
    if let Err(why) = settings.adapters() {
        return Some((KEY, why));
    }
    let is_used = !settings.model.adapters.is_empty();
    (is_used && settings.upstream.is_used()).then(|| {
        let why = "set, but the servers of upstream.addresses compute the tokens: they have adapters of their own";
        (KEY, why.to_owned())
    })
}

fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    stem.to_owned()
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_have_name_path_and_scale() {
        for (text, name, path, scale) in [
            ("a.gguf", "a", "a.gguf", 1.0),
            ("x/y/a.b.gguf:0.5", "a.b", "x/y/a.b.gguf", 0.5),
            ("sql=x/y", "sql", "x/y", 1.0),
            ("sql=x/y/:0", "sql", "x/y/", 0.0),
            ("a:-2", "a", "a", -2.0),
            ("dir=1/a.gguf", "dir", "1/a.gguf", 1.0),
            ("x/dir=1/a.gguf", "a", "x/dir=1/a.gguf", 1.0),
            ("n=a:b", "n", "a:b", 1.0),
        ] {
            let expected = AdapterSetting {
                name: name.into(),
                path: path.into(),
                scale,
            };
            assert_eq!(AdapterSetting::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_adapters_are_named() {
        for (texts, expected) in [
            (vec!["=a"], "is no name"),
            (vec!["a b=c"], "is no name"),
            (vec!["a="], "has no path"),
            (vec!["a:NaN"], "the scale is NaN, must be -1000 to 1000"),
            (vec!["a:1e9"], "the scale is 1000000000"),
            (vec!["a", "x/a.gguf"], "two adapters have the name \"a\""),
            (vec!["a", "b", "c", "d", "e"], "5 adapters have a scale"),
        ] {
            let mut settings = Settings::default();
            settings.model.adapters = texts.iter().map(|text| (*text).to_owned()).collect();
            let why = settings.adapters().unwrap_err();
            assert!(why.contains(expected), "{texts:?}: {why}");
        }
    }
}
