//! Numbers of heads, and their sizes.

use super::keys::Keys;
use super::{COLUMN_GROUP, ConfigError, limits};

const QUERIES: &str = "attention.head_count";
const KEYS: &str = "attention.head_count_kv";

/// Numbers of heads, and their sizes.
pub(crate) struct HeadSizes {
    pub(crate) queries: usize,
    /// Key and value heads of a layer without a window.
    pub(crate) keys: usize,
    /// Elements of a head of a layer without a window.
    pub(crate) dim: usize,
    /// Elements of a head of a layer with a window.
    pub(crate) local_dim: usize,
}

impl HeadSizes {
    /// No heads: a model without attention.
    pub(super) const NONE: Self = Self {
        queries: 0,
        keys: 0,
        dim: 0,
        local_dim: 0,
    };

    /// The heads of a model whose layers are all alike.
    pub(crate) fn read(keys: &Keys<'_>, dim: usize) -> Result<Self, ConfigError> {
        let queries = keys.required(QUERIES, 1, limits::HEADS)?;
        let kv = keys.size(KEYS, 1, queries)?.unwrap_or(queries);
        check_share(keys, queries, kv)?;
        let head_dim = read_dim(keys, dim, queries)?;
        for name in ["attention.key_length_swa", "attention.value_length_swa"] {
            if keys
                .size(name, 1, limits::HEAD_DIM)?
                .is_some_and(|other| other != head_dim)
            {
                return Err(keys.unsupported(name, "another head size in windowed layers"));
            }
        }
        Ok(Self {
            queries,
            keys: kv,
            dim: head_dim,
            local_dim: head_dim,
        })
    }

    /// The heads of a model whose layers differ, and the key and value heads of each layer, at least `least`.
    pub(super) fn read_each(
        keys: &Keys<'_>,
        dim: usize,
        windows: &[Option<usize>],
        least: usize,
    ) -> Result<(Self, Vec<usize>), ConfigError> {
        let queries = keys.required(QUERIES, 1, limits::HEADS)?;
        let each = keys.sizes(KEYS, windows.len(), least, queries)?;
        let each = each.unwrap_or_else(|| vec![queries; windows.len()]);
        for &kv in each.iter().filter(|kv| **kv > 0) {
            check_share(keys, queries, kv)?;
        }
        let head_dim = read_dim(keys, dim, queries)?;
        const LOCAL: &str = "attention.key_length_swa";
        let local_dim = keys.size(LOCAL, 2, limits::HEAD_DIM)?.unwrap_or(head_dim);
        check_dim(keys, LOCAL, queries, local_dim)?;
        check_values(keys, "attention.value_length_swa", local_dim)?;
        let attends = |layer: &usize| windows[*layer].is_none() && each[*layer] > 0;
        let global = (0..windows.len()).find(attends).unwrap_or(0);
        let heads = Self {
            queries,
            keys: each[global],
            dim: head_dim,
            local_dim,
        };
        Ok((heads, each))
    }
}

/// The size of heads, which is checked.
fn read_dim(keys: &Keys<'_>, dim: usize, queries: usize) -> Result<usize, ConfigError> {
    const NAME: &str = "attention.key_length";
    let head_dim = match keys.size(NAME, 2, limits::HEAD_DIM)? {
        Some(head_dim) => head_dim,
        None if dim.is_multiple_of(queries) && dim / queries <= limits::HEAD_DIM => dim / queries,
        None => {
            let bound = format!("a divisor of {dim}, or {NAME} be given");
            return Err(keys.range(QUERIES, queries, bound));
        }
    };
    check_dim(keys, NAME, queries, head_dim)?;
    check_values(keys, "attention.value_length", head_dim)?;
    Ok(head_dim)
}

fn check_share(keys: &Keys<'_>, queries: usize, kv: usize) -> Result<(), ConfigError> {
    if queries.is_multiple_of(kv) {
        Ok(())
    } else {
        Err(keys.range(
            KEYS,
            kv,
            format!("a divisor of {queries}, the number of query heads"),
        ))
    }
}

fn check_dim(keys: &Keys<'_>, name: &str, queries: usize, dim: usize) -> Result<(), ConfigError> {
    if dim.is_multiple_of(2) && (queries * dim).is_multiple_of(COLUMN_GROUP) {
        return Ok(());
    }
    let bound = format!("even, and times the heads a multiple of {COLUMN_GROUP}");
    Err(keys.range(name, dim, bound))
}

fn check_values(keys: &Keys<'_>, name: &str, dim: usize) -> Result<(), ConfigError> {
    let values = keys.size(name, 1, limits::HEAD_DIM)?.unwrap_or(dim);
    if values == dim {
        Ok(())
    } else {
        Err(keys.range(name, values, format!("{dim}, the length of keys")))
    }
}
