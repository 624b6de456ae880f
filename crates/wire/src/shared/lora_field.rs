//! The request field `lora`, as in llama.cpp's server: a list of adapters by number (`id`) or by name, each with a scale.

use crate::fields::{self, Fields, JsonObject, RawJson};
use engine::{ADAPTER_SCALE_MAX, ADAPTERS_MAX, AdapterSet, SEQUENCE_ADAPTERS_MAX};
use generate::error::{ApiError, Problem};
use generate::model_handle::{AdapterUse, ModelAdapters};
use serde::Deserialize;
use serde_json::json;
use std::borrow::Cow;

/// An item of the list.
#[derive(Deserialize)]
struct LoraItem<'a> {
    id: Option<RawNumber>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    scale: Option<f64>,
}

/// A number of an adapter; negative and broken numbers are no adapter's.
type RawNumber = serde_json::Number;

/// Parses `lora`. Adapters that the list does not name are not used; an empty list is the model without adapters.
pub(crate) fn lora(fields: &mut Fields<'_>, adapters: &ModelAdapters) -> Option<Vec<AdapterUse>> {
    fields.record("lora", || {
        let scale =
            json!({"type": "number", "minimum": -ADAPTER_SCALE_MAX, "maximum": ADAPTER_SCALE_MAX});
        json!({
            "items": {"type": "object", "properties": {
                "id": {"type": "integer", "minimum": 0}, "name": {"type": "string"}, "scale": scale,
            }, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
            "description": "adapters of this request, by number or name (as in /lora-adapters), each with a scale (default 1)",
        })
    });
    let items = fields.array("lora", ADAPTERS_MAX)?;
    let mut numbered = Vec::with_capacity(items.len());
    for (i, raw) in items.into_iter().enumerate() {
        match item(i, raw, adapters) {
            Ok(used) => numbered.push(used),
            Err(problem) => fields.reject(problem.field, problem.constraint),
        }
    }
    if AdapterSet::new(numbered.iter().copied()).is_none() {
        let constraint = format!(
            "must name at most {SEQUENCE_ADAPTERS_MAX} adapters with a scale other than 0, each once"
        );
        fields.reject("lora", constraint);
    }
    let used = |(number, scale): (usize, f32)| AdapterUse {
        name: adapters.all()[number].name.as_str().into(),
        scale,
    };
    Some(numbered.into_iter().map(used).collect())
}

/// Parses the body of `POST /lora-adapters`, which is the list alone.
///
/// # Errors
/// All invalid items at once.
pub fn parse_scales(body: &[u8], adapters: &ModelAdapters) -> Result<Vec<AdapterUse>, ApiError> {
    let text = str::from_utf8(body).map_err(Fields::invalid_utf8)?;
    let list: RawJson<'_> = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = format!("the body is not JSON: see line {line}, column {column}");
        ApiError::bad_request("invalid_json", message)
    })?;
    let mut fields = Fields::of_object(JsonObject::new(vec![("lora".into(), list)]));
    let uses = lora(&mut fields, adapters);
    fields.finish()?;
    uses.ok_or_else(|| {
        let message = "the body must be a list of adapters, each with id and scale";
        ApiError::bad_request("invalid_value", message)
    })
}

/// The number of an item's adapter, and the scale.
fn item(i: usize, raw: RawJson<'_>, adapters: &ModelAdapters) -> Result<(usize, f32), Problem> {
    let wrong =
        |part: &str, constraint: String| Problem::new(format!("lora[{i}]{part}"), constraint);
    let item: Option<LoraItem<'_>> = fields::parse_value(raw);
    let item = item.ok_or_else(|| {
        let constraint = "must be an object with id (a number) or name, and scale (a number)";
        wrong("", constraint.to_owned())
    })?;
    let all = adapters.all();
    let number = match (&item.id, &item.name) {
        (Some(id), None) => {
            let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
            id.filter(|id| *id < all.len()).ok_or_else(|| {
                let constraint = match all.len() {
                    0 => "names no adapter: the model has none".to_owned(),
                    count => format!("must be the number of an adapter, from 0 to {}", count - 1),
                };
                wrong(".id", constraint)
            })?
        }
        (None, Some(name)) => {
            let found = all.iter().position(|adapter| adapter.name == **name);
            found.ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|adapter| adapter.name.as_str()).collect();
                let constraint = if names.is_empty() {
                    "names no adapter: the model has none".to_owned()
                } else {
                    format!("must be the name of an adapter ({})", names.join(", "))
                };
                wrong(".name", constraint)
            })?
        }
        _ => return Err(wrong("", "must have id or name, and not both".to_owned())),
    };
    let scale = item.scale.unwrap_or(1.0);
    let most = f64::from(ADAPTER_SCALE_MAX);
    if !(-most..=most).contains(&scale) {
        return Err(wrong(
            ".scale",
            format!("must be a number from -{most} to {most}"),
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the engine computes in f32"
    )]
    Ok((number, scale as f32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use generate::model_handle::{ModelAdapter, NO_ADAPTERS};

    fn adapters() -> ModelAdapters {
        let adapter = |name: &str| ModelAdapter::new(name.into(), format!("{name}.gguf"), 0.0);
        ModelAdapters::new(["one", "two", "three", "four", "five"].map(adapter).into())
    }

    fn parsed(body: &str, adapters: &ModelAdapters) -> (Option<Vec<AdapterUse>>, Vec<String>) {
        let mut fields = Fields::parse(body.as_bytes()).expect("an object");
        let uses = lora(&mut fields, adapters);
        let problems = fields.finish().err().map(|error| error.problems);
        let problems = problems.into_iter().flatten();
        let lines = problems.map(|problem| format!("{} {}", problem.field, problem.constraint));
        (uses, lines.collect())
    }

    #[test]
    fn adapters_are_named_by_number_or_name() {
        let body = r#"{"lora":[{"id":1,"scale":0.5},{"name":"three"},{"id":0,"scale":0}]}"#;
        let (uses, problems) = parsed(body, &adapters());
        let used = |name: &str, scale| AdapterUse {
            name: name.into(),
            scale,
        };
        let expected = vec![used("two", 0.5), used("three", 1.0), used("one", 0.0)];
        assert_eq!((uses, problems.len()), (Some(expected), 0));
        assert_eq!(parsed(r#"{"lora":[]}"#, &adapters()).0, Some(Vec::new()));
        assert_eq!(parsed(r#"{}"#, &adapters()).0, None);
    }

    #[test]
    fn body_of_scales_is_one_list() {
        let scales = |body: &str| parse_scales(body.as_bytes(), &adapters());
        let used = |name: &str, scale| AdapterUse {
            name: name.into(),
            scale,
        };
        let given = scales(r#" [{"id":0,"scale":0.5}] "#).ok();
        assert_eq!(given, Some(vec![used("one", 0.5)]));
        for body in [
            "",
            "[",
            "null",
            "{}",
            "[],\"more\":1",
            "[] []",
            "[{\"id\":9}]",
        ] {
            assert!(scales(body).is_err(), "{body}");
        }
    }

    #[test]
    fn invalid_items_are_named_with_their_bounds() {
        let rows = [
            (
                r#"[{"id":5}]"#,
                "lora[0].id must be the number of an adapter, from 0 to 4",
            ),
            (r#"[{"id":-1}]"#, "lora[0].id must be"),
            (r#"[{"id":0.5}]"#, "lora[0].id must be"),
            (
                r#"[{"name":"six"}]"#,
                "lora[0].name must be the name of an adapter (one, two, three",
            ),
            (
                r#"[{"id":0,"name":"one"}]"#,
                "lora[0] must have id or name, and not both",
            ),
            (r#"[{"scale":1}]"#, "lora[0] must have id or name"),
            (
                r#"[{"id":0},{"id":1,"scale":1001}]"#,
                "lora[1].scale must be a number from -1000 to 1000",
            ),
            (r#"[{"id":0,"scale":"1"}]"#, "lora[0] must be an object"),
            (r#"[7]"#, "lora[0] must be an object"),
            (
                r#"[{"id":0},{"name":"one"}]"#,
                "lora must name at most 4 adapters",
            ),
            (
                r#"[{"id":0},{"id":1},{"id":2},{"id":3},{"id":4}]"#,
                "lora must name at most 4",
            ),
            (r#"{"id":0}"#, "lora must be"),
        ];
        for (value, expected) in rows {
            let (_, problems) = parsed(&format!("{{\"lora\":{value}}}"), &adapters());
            assert_eq!(problems.len(), 1, "{value}: {problems:?}");
            assert!(problems[0].starts_with(expected), "{value}: {problems:?}");
        }
        let (_, problems) = parsed(r#"{"lora":[{"id":0}]}"#, &NO_ADAPTERS);
        assert_eq!(
            problems,
            ["lora[0].id names no adapter: the model has none"]
        );
    }
}
