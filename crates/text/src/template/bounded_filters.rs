//! Bounds of filters and methods whose result may be larger than their arguments, and of the work of one rendering.
//!
//! | filter or method | grows by |
//! |---|---|
//! | `replace`, `join`, `indent` | text inserted in many places |
//! | `format` | a width, or an argument used many times |
//! | `batch`, `slice` | a count |
//! | `split`, `list` and similar | a value of 24 bytes for each character or item |
//!
//! An upper bound of the size is computed from the arguments; then minijinja's filter or method runs.
//!
//! Filters, methods and operators count what they read and write: one unit for each item of a list, and for 16 bytes of a text.
//! A rendering stays on one thread, which therefore holds the count.

use crate::tokenizer::TEXT_BYTES_MAX;
use minijinja::functions::Function;
use minijinja::value::{FunctionArgs, FunctionResult, Kwargs, Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};
use std::cell::Cell;
use std::fmt;
use std::fmt::Write;

/// Bytes of a text that a filter or method may produce.
pub const VALUE_BYTES_MAX: usize = 32 << 20;
/// Items of a list that a filter or method may produce.
pub const VALUE_ITEMS_MAX: usize = 1 << 20;

/// A value exceeds this number of bytes or items. Source of a minijinja error.
#[derive(Debug, thiserror::Error)]
#[error("more than {0} bytes or items")]
pub(super) struct TooLarge(pub(super) usize);

/// A check of a call's value and arguments.
type Check = fn(&Value, &[Value]) -> Result<(), Error>;

/// Registered name of minijinja's own filter, which the checked filter calls; not a valid name in a template.
fn behind(name: &str) -> String {
    format!("the engine's {name}")
}

/// Registers the checked filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    add_checked(environment, "replace", filters::replace, replaced);
    add_checked(environment, "join", filters::join, joined);
    add_checked(environment, "indent", filters::indent, indented);
    add_checked(environment, "format", filters::format, formatted);
    add_checked(environment, "batch", filters::batch, counted);
    add_checked(environment, "slice", filters::slice, counted);
    add_checked(environment, "split", filters::split, split);
    add_checked(environment, "lines", filters::lines, split_into_lines);
    add_checked(environment, "list", filters::list, listed);
    add_checked(environment, "sort", filters::sort, sorted);
    add_checked(environment, "dictsort", filters::dictsort, sorted);
    add_checked(environment, "groupby", filters::groupby, sorted);
    add_checked(environment, "unique", filters::unique, sorted);
    add_checked(environment, "map", filters::map, listed);
    add_checked(environment, "reverse", filters::reverse, listed);
    add_checked(environment, "string", filters::string, shown);
}

/// Registers a filter of minijinja behind a check of the value and the arguments.
fn add_checked<F, Rv, Args>(
    environment: &mut Environment<'static>,
    name: &'static str,
    filter: F,
    check: Check,
) where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let own = behind(name);
    environment.add_filter(own.clone(), filter);
    let checked = move |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        if let Some((value, args)) = args.split_first() {
            check(value, args)?;
        }
        state.apply_filter(&own, &args)
    };
    environment.add_filter(name, checked);
}

/// Checks a method call.
pub(super) fn method(value: &Value, method: &str, args: &[Value]) -> Result<(), Error> {
    spend_size(value)?;
    args.iter().try_for_each(spend_size)?;
    match (method, args) {
        ("replace", _) => replaced(value, args),
        // The separator is the value, the items are the argument.
        ("join", [items, ..]) => joined(items, std::slice::from_ref(value)),
        ("format", _) => formatted(value, args),
        ("split" | "rsplit", _) => split(value, args),
        ("splitlines", _) => split_into_lines(value, args),
        _ => Ok(()),
    }
}

/// Rejects a text larger than [`VALUE_BYTES_MAX`], and counts its bytes.
pub(super) fn bytes(bytes: usize) -> Result<(), Error> {
    at_most(bytes, VALUE_BYTES_MAX)?;
    spend_bytes(bytes)
}

/// Rejects a list longer than [`VALUE_ITEMS_MAX`], and counts its items.
pub(super) fn items(items: usize) -> Result<(), Error> {
    at_most(items, VALUE_ITEMS_MAX)?;
    spend(items)
}

pub(super) fn at_most(size: usize, most: usize) -> Result<(), Error> {
    if size <= most {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::InvalidOperation, "too large").with_source(TooLarge(most)))
    }
}

/// Size of `value` with each `args[0]` replaced by `args[1]`.
fn replaced(value: &Value, args: &[Value]) -> Result<(), Error> {
    let (Some(text), [from, to, ..]) = (value.as_str(), args) else {
        return Ok(());
    };
    let (from, to) = (from.as_str().unwrap_or_default(), length(to)?);
    let places = if from.is_empty() {
        text.len() + 1
    } else {
        text.len() / from.len()
    };
    // Occurrences are counted only where the text is long enough to matter.
    let most = text.len().saturating_add(places.saturating_mul(to));
    if most <= VALUE_BYTES_MAX / 16 {
        return spend_bytes(most);
    }
    let places = text.matches(from).count();
    bytes(text.len().saturating_add(places.saturating_mul(to)))
}

/// Size of the items of `value` with `args[0]` (or the keyword `d`) between them.
fn joined(value: &Value, args: &[Value]) -> Result<(), Error> {
    let between = match args.first() {
        Some(separator) if separator.as_str().is_some() => length(separator)?,
        Some(keywords) => separator_named(keywords)?,
        None => 0,
    };
    let Ok(parts) = value.try_iter() else {
        return Ok(());
    };
    let mut sum = 0_usize;
    for part in parts {
        spend(1)?;
        sum = sum.saturating_add(between).saturating_add(length(&part)?);
        at_most(sum, VALUE_BYTES_MAX)?;
    }
    bytes(sum)
}

fn separator_named(keywords: &Value) -> Result<usize, Error> {
    let named = Kwargs::try_from(keywords.clone()).ok();
    let separator = named.and_then(|keywords| keywords.get::<Value>("d").ok());
    separator.map_or(Ok(0), |separator| length(&separator))
}

/// Size of the lines of `value`, each indented by `args[0]`.
fn indented(value: &Value, args: &[Value]) -> Result<(), Error> {
    let width = |value: &Value| match Kwargs::try_from(value.clone()) {
        Ok(keywords) => keywords.get::<Option<usize>>("width").ok().flatten(),
        Err(_) => value.as_usize(),
    };
    let width = args.iter().find_map(width).unwrap_or(4);
    let text = value.as_str().unwrap_or_default();
    let lines = text.matches('\n').count() + 1;
    bytes(
        text.len()
            .saturating_add(lines.saturating_mul(width.saturating_add(1))),
    )
}

/// Size of the format `value` with `args`: each field may hold the longest argument, as wide as a number in
/// the format.
fn formatted(value: &Value, args: &[Value]) -> Result<(), Error> {
    let Some(format) = value.as_str() else {
        return Ok(());
    };
    let fields = format.matches(['%', '{']).count();
    let numbers = format.split(|c: char| !c.is_ascii_digit());
    let widest = numbers.map(|digits| match digits {
        "" => 0,
        digits => digits.parse().unwrap_or(usize::MAX),
    });
    let mut longest = widest.max().unwrap_or(0);
    for arg in args {
        longest = longest.max(length(arg)?);
    }
    bytes(format.len().saturating_add(fields.saturating_mul(longest)))
}

/// Number of items or lists for the count `args[0]`.
fn counted(value: &Value, args: &[Value]) -> Result<(), Error> {
    let count = args.first().and_then(Value::as_usize).unwrap_or(0);
    items(count.saturating_add(value.len().unwrap_or(0)))
}

/// Number of pieces of `value` between occurrences of `args[0]`.
fn split(value: &Value, args: &[Value]) -> Result<(), Error> {
    let Some(text) = value.as_str().filter(|text| text.len() > VALUE_ITEMS_MAX) else {
        return Ok(());
    };
    match args.first().and_then(Value::as_str) {
        Some("") => items(text.len()),
        Some(separator) => items(text.matches(separator).count()),
        None => items(text.split_whitespace().count()),
    }
}

fn split_into_lines(value: &Value, _: &[Value]) -> Result<(), Error> {
    let text = value.as_str().filter(|text| text.len() > VALUE_ITEMS_MAX);
    text.map_or(Ok(()), |text| items(text.matches('\n').count()))
}

/// Number of items of `value`, or of characters of a text.
fn listed(value: &Value, _: &[Value]) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if text.len() <= VALUE_ITEMS_MAX => Ok(()),
        Some(text) => items(text.chars().count()),
        None => items(value.len().unwrap_or(0)),
    }
}

/// Comparisons of the items of `value` in a sort, or in an ordered set.
fn sorted(value: &Value, args: &[Value]) -> Result<(), Error> {
    listed(value, args)?;
    let items = value.len().unwrap_or(0);
    spend(items * items.checked_ilog2().unwrap_or(0) as usize)
}

/// Size of `value` as text.
fn shown(value: &Value, _: &[Value]) -> Result<(), Error> {
    length(value).map(|_| ())
}

/// Size of a value as text, in bytes.
fn length(value: &Value) -> Result<usize, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.len());
    }
    // Some lists continue writing after a failed write.
    items(value.len().unwrap_or(0))?;
    let mut count = ByteCounter(0);
    // Writing fails where the size exceeds the bound.
    let _ = write!(count, "{value}");
    bytes(count.0)?;
    Ok(count.0)
}

/// Counts written bytes, and fails beyond the bound of a value.
struct ByteCounter(usize);

impl fmt::Write for ByteCounter {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(piece.len());
        if self.0 <= VALUE_BYTES_MAX {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Items of lists, or pieces of 16 bytes of texts, that one rendering may process.
pub const WORK_MAX: usize = 1 << 25;
/// Bytes of a text that count as one item.
const BYTES_PER_UNIT: usize = 16;

/// The filter that counts the size of a value. Templates do not use the name.
pub(super) const SIZE_FILTER: &str = "_w";
/// The filter that counts a factor of a repetition.
pub(super) const COUNT_FILTER: &str = "_n";

thread_local! {
    /// Units that are left to the rendering on this thread.
    static LEFT: Cell<usize> = const { Cell::new(WORK_MAX) };
}

/// The work exceeds [`WORK_MAX`]. Source of a minijinja error.
#[derive(Debug, thiserror::Error)]
#[error("it processes more than {WORK_MAX} items of lists, or {} bytes of texts (WORK_MAX)", WORK_MAX * BYTES_PER_UNIT)]
pub(super) struct TooMuchWork;

/// Begins a rendering on this thread.
pub(super) fn begin() {
    LEFT.set(WORK_MAX);
}

/// Counts items.
fn spend(items: usize) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(items);
    LEFT.set(left.unwrap_or(0));
    let too_much =
        || Error::new(ErrorKind::InvalidOperation, "too much work").with_source(TooMuchWork);
    left.map(|_| ()).ok_or_else(too_much)
}

/// Counts the bytes of a text.
pub(super) fn spend_bytes(bytes: usize) -> Result<(), Error> {
    spend(bytes / BYTES_PER_UNIT)
}

/// Counts the size of a value. A text longer than any prompt, and a list longer than any that a filter produces, are rejected.
fn spend_size(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => {
            at_most(text.len(), TEXT_BYTES_MAX)?;
            spend_bytes(text.len())
        }
        None => items(value.len().unwrap_or(0)),
    }
}

/// Registers the filters.
pub(super) fn add_counters(environment: &mut Environment<'static>) {
    environment.add_filter(SIZE_FILTER, |value: Value| {
        spend_size(&value).map(|()| value)
    });
    environment.add_filter(COUNT_FILTER, |value: Value| {
        let size = match value.as_str() {
            Some(text) => text.len(),
            None => value.as_usize().or_else(|| value.len()).unwrap_or(0),
        };
        at_most(size, VALUE_BYTES_MAX)?;
        spend(size).map(|()| value)
    });
}

#[cfg(test)]
mod tests {
    use crate::{ChatTemplate, Message, RenderInput, TemplateError};

    /// The text that a template renders for a message.
    fn rendered(source: &str, content: serde_json::Value) -> Result<String, TemplateError> {
        let message = Message {
            role: "user".to_owned(),
            content,
            rest: serde_json::Map::new(),
        };
        let template = ChatTemplate::new(source, "", "").expect("a template");
        template.render(&RenderInput {
            messages: &[message],
            ..RenderInput::default()
        })
    }

    #[test]
    fn small_values_are_unaffected_by_bounds() {
        for (source, want) in [
            (
                "{{ messages[0].content | replace('b', 'xyz') }}",
                "a xyz\nc",
            ),
            ("{{ messages[0].content.replace('b', 'xyz') }}", "a xyz\nc"),
            (
                "{{ [1, 'b'] | join(', ') }}{{ [1, 2] | join(d='-') }}",
                "1, b1-2",
            ),
            ("{{ '-'.join(['a', 'b']) }}", "a-b"),
            ("{{ messages[0].content | indent(2) }}", "a b\n  c"),
            (
                "{{ messages[0].content | indent(width=3, first=true) }}",
                "   a b\n   c",
            ),
            ("{{ '%s and %5d' | format('a', 7) }}", "a and     7"),
            ("{{ '{} {x}'.format(1, x=2) }}", "1 2"),
            ("{{ [1, 2, 3] | batch(2, 0) | list }}", "[[1, 2], [3, 0]]"),
            (
                "{{ 'a b'.split() }}{{ 'a-b' | split('-') }}",
                "['a', 'b']['a', 'b']",
            ),
            (
                "{{ 'ab' | list }}{{ [2, 1] | sort }}{{ 'ab' | reverse }}",
                "['a', 'b'][1, 2]ba",
            ),
            (
                "{{ [{'a': 1}] | map(attribute='a') | join }}{{ 5 | string }}",
                "15",
            ),
        ] {
            let got = rendered(source, "a b\nc".into());
            assert_eq!(got.as_deref(), Ok(want), "{source}");
        }
    }

    /// A million items take twenty million comparisons: a rendering may sort them once.
    #[test]
    fn sorts_count_their_comparisons() {
        for (list, filter) in [
            ("[1] * 1000000", "sort"),
            ("[1] * 1000000", "unique"),
            ("[{'a': 1}] * 1000000", "groupby('a')"),
        ] {
            let once = format!("{{% set l = {list} %}}{{% set x = l | {filter} | length %}}");
            let got = rendered(&once, "".into());
            assert_eq!(got.as_deref(), Ok(""), "{filter}");
            let twice = format!("{once}{{% set x = l | {filter} | length %}}");
            let error = rendered(&twice, "".into()).expect_err(filter);
            assert!(error.to_string().contains("WORK_MAX"), "{filter}: {error}");
        }
    }

    /// Without bounds, each template would produce gigabytes from a text of a megabyte.
    #[test]
    fn oversized_values_are_rejected_before_allocation() {
        let a = |times: usize| serde_json::Value::from("a".repeat(times));
        let lines = || serde_json::Value::from("a\n".repeat(1 << 19));
        let lists = serde_json::Value::Array(vec![serde_json::json!([[[[1]]]]); 1 << 18]);
        for (source, content) in [
            (
                "{{ messages[0].content | replace('a', messages[0].content) }}",
                lines(),
            ),
            (
                "{{ messages[0].content.replace('', 'a long piece of text that is put in') }}",
                a(1 << 20),
            ),
            (
                "{{ messages[0].content | list | join(messages[0].content) }}",
                a(1 << 19),
            ),
            ("{{ messages[0].content.join(range(90000)) }}", a(1 << 20)),
            ("{{ messages[0].content | indent(9000) }}", lines()),
            ("{{ messages[0].content | indent(width=9000) }}", lines()),
            ("{{ '%999999999d' | format(1) }}", a(0)),
            ("{{ '{:>999999999}'.format(1) }}", a(0)),
            (
                "{{ ('%s' * 100000) | format(messages[0].content) }}",
                a(1 << 20),
            ),
            ("{{ [1] | batch(900000000, 0) | list }}", a(0)),
            ("{{ [1] | slice(900000000) | list }}", a(0)),
            ("{{ messages[0].content.split('a') | length }}", a(1 << 21)),
            ("{{ messages[0].content | list | length }}", a(1 << 21)),
            ("{{ ([1] * 90000000) | list | length }}", a(0)),
            (
                "{{ ([messages[0].content] * 90000000) | string }}",
                a(1 << 20),
            ),
            ("{{ messages[0].content | tojson(indent=64) }}", lists),
        ] {
            let got = rendered(source, content);
            assert!(
                matches!(got, Err(TemplateError::TooLong(_))),
                "{source}: {got:?}"
            );
        }
    }

    #[test]
    fn oversized_prompt_is_rejected() {
        let source = "{% for i in range(100) %}{{ messages[0].content }}{% endfor %}";
        let template = ChatTemplate::new(source, "", "").expect("a template");
        let message = Message {
            role: "user".to_owned(),
            content: "a".repeat(1000).into(),
            rest: serde_json::Map::new(),
        };
        let render = |bytes_max| {
            template.render(&RenderInput {
                messages: std::slice::from_ref(&message),
                bytes_max,
                ..RenderInput::default()
            })
        };
        assert_eq!(render(Some(100_000)).map(|text| text.len()), Ok(100_000));
        assert_eq!(render(Some(99_999)), Err(TemplateError::TooLong(99_999)));
        assert_eq!(render(None).map(|text| text.len()), Ok(100_000));
    }
}
