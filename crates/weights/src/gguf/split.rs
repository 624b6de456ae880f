//! Models in several files: `NAME-00001-of-00003.gguf`, each with `split.*` keys.

use super::header::Part;
use super::limits::{SPLIT_PARTS_MAX, TENSORS_MAX};
use super::{FromValue, GgufError, Source};
use std::path::{Path, PathBuf};

/// The parsed file name of one part of a split model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitName {
    /// The path before `-00001-of-00003.gguf`.
    stem: PathBuf,
    /// Number of this part, from 0.
    pub part: u16,
    /// Number of parts.
    pub count: u16,
}

impl SplitName {
    /// Parses a path; `None` if the file name is not that of a part.
    pub fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (head, count) = name.rsplit_once("-of-")?;
        let (stem, part) = head.rsplit_once('-')?;
        let number = |digits: &str| {
            let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse::<u16>().ok()).flatten()
        };
        let (part, count) = (number(part)?, number(count)?);
        (1..=count).contains(&part).then(|| Self {
            stem: path.with_file_name(stem),
            part: part - 1,
            count,
        })
    }

    /// The path of part `part`, from 0.
    pub fn path(&self, part: u16) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(format!("-{:05}-of-{:05}.gguf", part + 1, self.count));
        name.into()
    }
}

/// A part's `split.*` keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitKeys {
    pub(super) part: u16,
    pub(super) count: u16,
    pub(super) tensors: Option<u64>,
}

impl SplitKeys {
    /// `None` for a file that is not split.
    pub(super) fn of(part: &Part) -> Result<Option<Self>, GgufError> {
        let Some(count) = get::<u16>(part, "split.count")?.filter(|&count| count > 1) else {
            return Ok(None);
        };
        if count > SPLIT_PARTS_MAX {
            let why = format!("`split.count` is {count}, at most {SPLIT_PARTS_MAX} is possible");
            return Err(GgufError::Split { why });
        }
        let key = "split.no".to_owned();
        let number = get::<u16>(part, &key)?.ok_or(GgufError::MissingKey { key })?;
        Ok(Some(Self {
            part: number,
            count,
            tensors: get(part, "split.tensors.count")?,
        }))
    }
}

/// Opens all parts of the model to which `given`, read from `path`, belongs. The other parts are expected in
/// the same folder.
pub(super) fn open_all(path: &Path, given: Part, keys: SplitKeys) -> Result<Vec<Part>, GgufError> {
    let name = SplitName::parse(path).ok_or_else(|| GgufError::Split {
        why: format!(
            "is one of {} parts, but not named like one (NAME-00001-of-{:05}.gguf), so the others \
             cannot be found",
            keys.count, keys.count
        ),
    })?;
    check(&name, name.part, keys, &keys)?;
    let mut given = Some(given);
    let mut parts: Vec<Part> = Vec::with_capacity(keys.count.into());
    let mut tensors = 0;
    for number in 0..keys.count {
        let part = if number == name.part {
            given.take()
        } else {
            None
        };
        let mut part = part.map_or_else(|| open_one(&name, number, &keys), Ok)?;
        if number > 0 {
            part.forget_metadata(); // only the split keys of further parts are used
        }
        tensors += part.tensors.len() as u64;
        parts.push(part);
        check_count(tensors)?;
    }
    check_total(&parts, keys)?;
    Ok(parts)
}

fn open_one(name: &SplitName, number: u16, whole: &SplitKeys) -> Result<Part, GgufError> {
    let path = name.path(number);
    let open = || {
        let part = Part::read(Source::map(&path)?)?;
        let keys = SplitKeys::of(&part)?.ok_or_else(|| GgufError::Split {
            why: format!(
                "is a whole model, not part {} of {}",
                number + 1,
                name.count
            ),
        })?;
        check(name, number, keys, whole)?;
        Ok(part)
    };
    open().map_err(|error: GgufError| error.in_file(&path))
}

/// Compares a part's keys with its name and with the given part.
fn check(
    name: &SplitName,
    number: u16,
    keys: SplitKeys,
    whole: &SplitKeys,
) -> Result<(), GgufError> {
    let wanted = SplitKeys {
        part: number,
        count: name.count,
        tensors: whole.tensors,
    };
    if keys == wanted {
        return Ok(());
    }
    let tensors = |keys: SplitKeys| {
        keys.tensors
            .map_or("-".to_owned(), |count| count.to_string())
    };
    Err(GgufError::Split {
        why: format!(
            "says it is part {} of {} (tensors in all: {}), expected part {} of {} (tensors: {})",
            u32::from(keys.part) + 1,
            keys.count,
            tensors(keys),
            wanted.part + 1,
            wanted.count,
            tensors(wanted)
        ),
    })
}

/// Checked after each part, so that the index never holds more than the bound plus one part.
fn check_count(tensors: u64) -> Result<(), GgufError> {
    if tensors > TENSORS_MAX {
        let why = format!("the parts have {tensors} tensors, at most {TENSORS_MAX} is possible");
        return Err(GgufError::Split { why });
    }
    Ok(())
}

fn check_total(parts: &[Part], keys: SplitKeys) -> Result<(), GgufError> {
    let found: u64 = parts.iter().map(|part| part.tensors.len() as u64).sum();
    match keys.tensors {
        Some(promised) if promised != found => Err(GgufError::Split {
            why: format!("`split.tensors.count` is {promised}, the parts have {found}"),
        }),
        _ => Ok(()),
    }
}

fn get<T: for<'a> FromValue<'a>>(part: &Part, key: &str) -> Result<Option<T>, GgufError> {
    let Some((value, _)) = part.metadata.get(part.bytes(), key) else {
        return Ok(None);
    };
    T::from_value(&value)
        .map(Some)
        .map_err(|mismatch| mismatch.at(key, T::EXPECTED, &value))
}
