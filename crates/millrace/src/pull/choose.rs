//! Which files of a repository are the model: GGUF files, or else safetensors and the files beside them.

use super::hub::HubFile;
use super::source::{HubSource, Pick};
use crate::model_files::is_tower_name;
use crate::terminal_text::printable;
use server::LibraryError;
use std::collections::BTreeMap;
use std::path::Path;
use weights::gguf::SplitName;
use weights::safetensors::{CONFIG, INDEX, ONE};

/// Tensor formats, the preferred one first.
const USUAL: [&str; 15] = [
    "Q4_K_M", "MXFP4", "Q4_K_S", "Q4_0", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "IQ4_XS", "IQ4_NL",
    "Q3_K_M", "Q3_K_L", "F16", "BF16", "F32",
];
/// Parts of the names of GGUF files that are no models.
const NOT_MODELS: [&str; 2] = ["mmproj", "imatrix"];
/// Tensor formats of towers, the preferred one first.
const OF_TOWERS: [&str; 4] = ["F16", "BF16", "Q8_0", "F32"];
/// Names that an error lists.
const LISTED_MAX: usize = 40;

/// Files beside safetensors: the first is required, the others may be missing.
const BESIDE: [&str; 10] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "modules.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "3_Dense/config.json",
    "3_Dense/model.safetensors",
];

/// The files to download. The first one identifies the model: the first part, or `config.json`.
pub(super) fn choose<'a>(
    files: &'a [HubFile],
    source: &HubSource,
) -> Result<Vec<&'a HubFile>, LibraryError> {
    let models = gguf_models(files);
    if models.is_empty() && source.pick == Pick::Usual {
        return safetensors_files(files, source);
    }
    let all = || models.keys().cloned().collect::<Vec<_>>();
    let found = match &source.pick {
        Pick::File(file) => {
            let stem = model_stem(file);
            let ends = |name: &&String| name.rsplit('/').next() == Some(stem.as_str());
            let exact = models.keys().find(|name| **name == stem);
            exact.or_else(|| models.keys().find(ends))
        }
        Pick::Quant(quant) => models.keys().find(|name| has_format(name, quant)),
        Pick::Usual if models.len() == 1 => models.keys().next(),
        Pick::Usual => USUAL
            .iter()
            .find_map(|quant| models.keys().find(|name| has_format(name, quant))),
    };
    let name = found.ok_or_else(|| no_model(source, &all()))?;
    let parts = &models[name];
    let count = SplitName::parse(Path::new(&parts[0].path)).map_or(1, |split| split.count);
    if parts.len() == usize::from(count) {
        Ok(parts.clone())
    } else {
        Err(LibraryError::Failed(format!(
            "{} has {count} parts, and the hub {} of them",
            printable(name),
            parts.len()
        )))
    }
}

/// The tower of the model with this first file, if the repository has one: of the model's folder before others, in the
/// preferred format. Models of safetensors have theirs among their weights.
pub(super) fn choose_tower<'a>(files: &'a [HubFile], model: &HubFile) -> Option<&'a HubFile> {
    let folder = |path: &str| {
        path.rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .to_owned()
    };
    if !model.path.to_ascii_lowercase().ends_with(".gguf") {
        return None;
    }
    let towers = files.iter().filter(|file| is_tower_name(&file.path));
    let rank = |file: &&HubFile| {
        let stem = model_stem(&file.path);
        let format = OF_TOWERS.iter().position(|quant| has_format(&stem, quant));
        let is_elsewhere = folder(&file.path) != folder(&model.path);
        (
            is_elsewhere,
            format.unwrap_or(OF_TOWERS.len()),
            file.path.clone(),
        )
    };
    towers.min_by_key(rank)
}

/// The models of a repository by name without ending and number, with the parts of each in order.
fn gguf_models(files: &[HubFile]) -> BTreeMap<String, Vec<&HubFile>> {
    let mut models: BTreeMap<String, Vec<&HubFile>> = BTreeMap::new();
    for file in files {
        let lower = file.path.to_ascii_lowercase();
        if lower.ends_with(".gguf") && !NOT_MODELS.iter().any(|no| lower.contains(no)) {
            models.entry(model_stem(&file.path)).or_default().push(file);
        }
    }
    for parts in models.values_mut() {
        parts.sort_by(|a, b| a.path.cmp(&b.path));
    }
    models
}

fn model_stem(path: &str) -> String {
    let parts = match SplitName::parse(Path::new(path)) {
        Some(_) => 4,
        None => 1,
    };
    let whole = path.get(..path.len().saturating_sub(".gguf".len()));
    let whole = whole.unwrap_or_default();
    whole
        .rsplitn(parts, '-')
        .last()
        .unwrap_or_default()
        .to_owned()
}

/// Whether a name ends with this tensor format.
fn has_format(name: &str, quant: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let before = name.strip_suffix(quant);
    before.is_some_and(|before| before.is_empty() || before.ends_with(['-', '.', '_', '/']))
}

/// The files of a model of safetensors, which are in the repository's root folder.
fn safetensors_files<'a>(
    files: &'a [HubFile],
    source: &HubSource,
) -> Result<Vec<&'a HubFile>, LibraryError> {
    let named = |name: &str| files.iter().find(|file| file.path == name);
    let is_part = |file: &&HubFile| {
        let numbered = file.path.starts_with("model-") && file.path.contains("-of-");
        numbered && file.path.ends_with(".safetensors") && !file.path.contains('/')
    };
    let weights: Vec<&HubFile> = match (named(ONE), named(INDEX)) {
        (Some(one), _) => vec![one],
        (None, Some(_)) => files.iter().filter(is_part).collect(),
        (None, None) => Vec::new(),
    };
    let (Some(config), false) = (named(CONFIG), weights.is_empty()) else {
        return Err(no_model(source, &[]));
    };
    if named(BESIDE[0]).is_none() {
        let (owner, repository) = (&source.owner, &source.repository);
        return Err(LibraryError::Invalid(format!(
            "{owner}/{repository} has safetensors and no {}, without which they cannot be used",
            BESIDE[0]
        )));
    }
    // The file that makes a folder a model comes last, so that an interrupted download is no model.
    let beside = BESIDE.iter().filter_map(|name| named(name));
    let index = named(INDEX).filter(|_| named(ONE).is_none());
    let first = [config].into_iter().chain(beside);
    Ok(first.chain(weights).chain(index).collect())
}

fn no_model(source: &HubSource, all: &[String]) -> LibraryError {
    let repository = format!("{}/{}", source.owner, source.repository);
    if all.is_empty() {
        return LibraryError::Invalid(format!(
            "{repository} has no GGUF files with sums, and no safetensors with their {CONFIG}"
        ));
    }
    let names: Vec<_> = all
        .iter()
        .take(LISTED_MAX)
        .map(|name| printable(name))
        .collect();
    LibraryError::Invalid(format!(
        "{repository} has no such file; name one of these as {repository}:FILE.gguf: {}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::sum::Sum;
    use super::*;

    fn chosen(files: &[&str], typed: &str) -> Result<Vec<String>, String> {
        let file = |path: &&str| HubFile {
            path: (*path).to_owned(),
            bytes: 1,
            sum: Sum::Git(String::new()),
        };
        let files: Vec<_> = files.iter().map(file).collect();
        let source = HubSource::parse(typed).unwrap();
        let found = choose(&files, &source).map_err(|why| why.to_string())?;
        Ok(found.into_iter().map(|file| file.path.clone()).collect())
    }

    #[test]
    fn safetensors_where_there_is_no_gguf() {
        let beside = [
            "README.md",
            "config.json",
            "tokenizer.json",
            "pytorch_model.bin",
        ];
        let with = |more: &[&str]| chosen(&[&beside, more].concat(), "a/b");
        assert_eq!(
            with(&["model.safetensors", "consolidated.safetensors"]).unwrap(),
            ["config.json", "tokenizer.json", "model.safetensors"]
        );
        let parts = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "onnx/model-00001-of-00002.safetensors",
            "model.safetensors.index.json",
            "chat_template.jinja",
        ];
        assert_eq!(
            with(&parts).unwrap(),
            [
                "config.json",
                "tokenizer.json",
                "chat_template.jinja",
                parts[0],
                parts[1],
                "model.safetensors.index.json",
            ]
        );
        assert_eq!(with(&["model.safetensors", "x.gguf"]).unwrap(), ["x.gguf"]);
        assert!(with(&[]).unwrap_err().contains("no safetensors"));
        let bare = chosen(&["config.json", "model.safetensors"], "a/b").unwrap_err();
        assert!(bare.contains("no tokenizer.json"), "{bare}");
    }

    #[test]
    fn tower_of_the_preferred_format_is_taken_along() {
        let tower = |files: &[&str], model: &str| {
            let file = |path: &str| HubFile {
                path: path.to_owned(),
                bytes: 1,
                sum: Sum::Git(String::new()),
            };
            let files: Vec<_> = files.iter().map(|path| file(path)).collect();
            choose_tower(&files, &file(model)).map(|file| file.path.clone())
        };
        let all = [
            "M-Q8_0.gguf",
            "mmproj-M-f32.gguf",
            "mmproj-M-Q8_0.gguf",
            "mmproj-M-bf16.gguf",
            "mmproj-M-F16.gguf",
        ];
        for (have, want) in [(5, all[4]), (4, all[3]), (3, all[2]), (2, all[1])] {
            let found = tower(&all[..have], "M-Q8_0.gguf");
            assert_eq!(found.as_deref(), Some(want), "{have}");
        }
        assert_eq!(tower(&all[..1], "M-Q8_0.gguf"), None);
        let odd = tower(&["mmproj.gguf"], "M-Q8_0.gguf");
        assert_eq!(odd.as_deref(), Some("mmproj.gguf"));
        let sizes = ["a/mmproj-F16.gguf", "b/mmproj-Q8_0.gguf"];
        assert_eq!(tower(&sizes, "b/M.gguf").as_deref(), Some(sizes[1]));
        assert_eq!(tower(&sizes, "model.safetensors"), None);
    }

    #[test]
    fn file_of_the_requested_quantization_is_chosen() {
        let many = [
            "M-Q8_0.gguf",
            "M-Q4_K_M.gguf",
            "M-IQ4_K_M.gguf",
            "mmproj-M-F16.gguf",
            "README.md",
            "big/M-F16-00002-of-00002.gguf",
            "big/M-F16-00001-of-00002.gguf",
        ];
        let rows: [(&str, &str, &[&str]); 6] = [
            ("usual", "a/b", &["M-Q4_K_M.gguf"]),
            ("kind", "a/b:q8_0", &["M-Q8_0.gguf"]),
            ("file", "a/b:M-IQ4_K_M.gguf", &["M-IQ4_K_M.gguf"]),
            (
                "parts",
                "a/b:F16",
                &[
                    "big/M-F16-00001-of-00002.gguf",
                    "big/M-F16-00002-of-00002.gguf",
                ],
            ),
            (
                "a part's name",
                "a/b:big/M-F16-00001-of-00002.gguf",
                &[
                    "big/M-F16-00001-of-00002.gguf",
                    "big/M-F16-00002-of-00002.gguf",
                ],
            ),
            (
                "no path",
                "a/b:M-F16-00001-of-00002.gguf",
                &[
                    "big/M-F16-00001-of-00002.gguf",
                    "big/M-F16-00002-of-00002.gguf",
                ],
            ),
        ];
        for (label, typed, want) in rows {
            assert_eq!(chosen(&many, typed).unwrap(), want, "{label}");
        }
        assert_eq!(chosen(&["x.gguf"], "a/b").unwrap(), ["x.gguf"]);
        let refused = chosen(&many, "a/b:Q2_K").unwrap_err();
        assert!(refused.contains("M-Q8_0"), "{refused}");
        assert!(
            chosen(&["x.bin"], "a/b")
                .unwrap_err()
                .contains("no GGUF files")
        );
        let cut = chosen(&["M-F16-00001-of-00002.gguf"], "a/b").unwrap_err();
        assert!(cut.contains("2 parts"), "{cut}");
    }
}
