use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn bounds_are_inclusive_and_exact() {
    let max = EXACT_INTEGER_MAX;
    let rows = [
        (json!({"minimum": 5}), json!({"minimum": 5})),
        (
            json!({"exclusiveMinimum": 0, "type": "integer"}),
            json!({"type": "integer", "minimum": 1}),
        ),
        (
            json!({"exclusiveMaximum": 7.5, "type": "integer"}),
            json!({"type": "integer", "maximum": 7}),
        ),
        (json!({"exclusiveMinimum": 0}), json!({"minimum": 1e-30})),
        (json!({"exclusiveMaximum": 0}), json!({"maximum": -1e-30})),
        (
            json!({"exclusiveMinimum": 1}),
            json!({"minimum": 1.0_f64.next_up()}),
        ),
        (
            json!({"minimum": 3, "exclusiveMinimum": 1}),
            json!({"minimum": 3}),
        ),
        (
            json!({"exclusiveMinimum": 1.2, "exclusiveMaximum": 2}),
            json!({"exclusiveMinimum": 1.2, "exclusiveMaximum": 2}),
        ),
        (
            json!({"exclusiveMinimum": -2, "minimum": -3}),
            json!({"exclusiveMinimum": -2, "minimum": -3}),
        ),
        (
            json!({"exclusiveMaximum": true, "maximum": 3}),
            json!({"exclusiveMaximum": true, "maximum": 3}),
        ),
        (
            json!({"exclusiveMinimum": 5e-324}),
            json!({"minimum": 1e-30}),
        ),
        (
            json!({"minimum": 1, "exclusiveMinimum": true}),
            json!({"minimum": 1.0_f64.next_up()}),
        ),
        (
            json!({"maximum": 1, "exclusiveMaximum": false}),
            json!({"maximum": 1}),
        ),
        (
            json!({"minimum": 5e-324, "maximum": 5e-324}),
            json!({"minimum": 1e-30, "maximum": 0}),
        ),
        (json!({"minimum": -5e-324}), json!({"minimum": 0})),
        (
            json!({"exclusiveMinimum": max}),
            json!({"minimum": max + 1}),
        ),
        (
            json!({"exclusiveMaximum": -max - 5}),
            json!({"maximum": -max - 6}),
        ),
        (
            json!({"exclusiveMaximum": u64::MAX}),
            json!({"maximum": u64::MAX - 1}),
        ),
        (
            json!({"exclusiveMaximum": 1e300}),
            json!({"maximum": 1e300_f64.next_down()}),
        ),
        (
            json!({"exclusiveMinimum": "1", "minimum": 3}),
            json!({"exclusiveMinimum": "1", "minimum": 3}),
        ),
    ];
    for (schema, expected) in rows {
        let mut ours = schema.as_object().cloned().expect("an object");
        make_exact(&mut ours);
        ours.retain(|_, value| *value != false);
        let mut expected = expected.as_object().cloned().expect("an object");
        expected.retain(|_, value| *value != false);
        assert_eq!(ours, expected, "{schema}");
    }
}

#[test]
fn multiples_are_found_as_written() {
    for text in [
        "0.07", "0.29", "0.1", "0.001", "1e-8", "0.33", "2.675", "5", "100000", "1e5", "0.5",
        "1.1", "-3",
    ] {
        let number: Number = serde_json::from_str(text).expect("a number");
        let exact = Multiple::of(&number).expect("a decimal");
        let start = exact.loop_start(&number);
        assert!(
            start.is_some_and(|start| exact.is_found(start)),
            "{text}: {exact:?}"
        );
    }
    for text in [
        "0",
        "0.0",
        "1e-9",
        "1e10",
        "0.123456789",
        "4294967295",
        "1e400",
    ] {
        let read = serde_json::from_str::<Number>(text).ok();
        assert_eq!(
            read.and_then(|number| Multiple::of(&number)),
            None,
            "{text}"
        );
    }
    let of = |text: &str| {
        Multiple::of(&serde_json::from_str(text).expect("a number")).expect("a decimal")
    };
    assert!(Multiple::product_fits(&[of("0.01"), of("5"), of("12")]));
    assert!(!Multiple::product_fits(&[of("100000"), of("99999")]));
    assert!(!Multiple::product_fits(&[of("100000"), of("100000")]));
}

#[test]
fn numbers_without_exact_form_are_rejected_with_path() {
    let rows = [
        (
            json!({"properties": {"const": {"minimum": 1e38}}}),
            "properties.const.minimum",
        ),
        (
            json!({"anyOf": [{}, {"exclusiveMaximum": -1e300}]}),
            "anyOf[1].exclusiveMaximum",
        ),
        (
            json!({"components": {"a": {"multipleOf": 0}}}),
            "components.a.multipleOf",
        ),
        (
            json!({"x": [[{"items": {"multipleOf": 1e-9}}]]}),
            "x[0][0].items.multipleOf",
        ),
        (
            json!({"allOf": [{"multipleOf": 100_000}, {"multipleOf": 99_999}]}),
            "",
        ),
        (
            json!({"$ref": "#/$defs/a", "multipleOf": 100_000, "$defs": {"a": {"multipleOf": 99_999}}}),
            "",
        ),
        (
            json!({"items": {"allOf": [{"$ref": "#/x/y"}, {"$ref": "#/x/y"}]}, "x": {"y": {"multipleOf": 100_000}}}),
            "",
        ),
        (
            json!({"anyOf": [{"properties": {"a": {"multipleOf": 100_000}}}], "properties": {"a": {"multipleOf": 99_999}}}),
            "",
        ),
    ];
    for (schema, place) in rows {
        let error = check(schema.as_object().expect("an object"));
        assert_eq!(error.expect_err("a number").place, place, "{schema}");
    }
    for text in [
        "18446744073709551616",
        "-18446744073709551617",
        "-9223372036854775809",
        "[1, {\"a\": 123456789012345678901234567890}]",
    ] {
        let value: Value = serde_json::from_str(text).expect("a value");
        let schema = json!({"properties": {"a": {"const": value}}});
        let error = check(schema.as_object().expect("an object")).expect_err(text);
        assert_eq!(error.place, "properties.a.const", "{error}");
    }
    let written: Value = serde_json::from_str(
        r#"{"const": 1e20, "enum": [18446744073709551615, -9223372036854775808, 1.5e30], "maximum": 1.7976931348623157e308}"#,
    )
    .expect("a schema");
    assert_eq!(check(written.as_object().expect("an object")), Ok(()));
    let kept = json!({"const": {"minimum": 1e300}, "enum": [0.1, 1e300, i64::MIN], "minimum": i64::MIN,
        "default": {"multipleOf": 0}, "maximum": 1e308,
        "properties": {"a": {"multipleOf": 100_000}, "b": {"multipleOf": 99_999}, "minimum": {"type": "null"}}});
    assert_eq!(check(kept.as_object().expect("an object")), Ok(()));
}
#[test]
fn multiples_that_never_meet_are_accepted() {
    let (price, amount) = (json!({"multipleOf": 0.01}), json!({"multipleOf": 100_000}));
    for schema in [
        json!({"properties": {"price": {"anyOf": [price, {"type": "null"}], "title": "Price"}, "amount": amount}}),
        json!({"properties": {"price": price, "if": amount, "not": amount, "allOf": amount}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"price": price, "amount": amount}}}, "type": "object"}),
        json!({"properties": {"a": {"allOf": [{"$ref": "#/$defs/a"}], "title": "A", "minimum": 3}, "b": price}, "$defs": {"a": amount}}),
        json!({"allOf": [{"properties": {"price": price, "amount": amount}}, {"required": ["price"], "minProperties": 1}]}),
        json!({"$defs": {"tree": {"anyOf": [{"items": {"$ref": "#/$defs/tree"}}, amount], "title": "Tree"}}, "$ref": "#/$defs/tree", "default": price}),
    ] {
        assert_eq!(
            check(schema.as_object().expect("an object")),
            Ok(()),
            "{schema}"
        );
    }
}

#[test]
fn search_for_common_multiples_is_bounded() {
    let refers = json!({"$ref": "#/$defs/a", "items": {"multipleOf": 3}});
    let schema = json!({"prefixItems": vec![refers; 1000], "$defs": {"b": {"multipleOf": 100_000}, "a": {"prefixItems": vec![json!({}); 1000]}}});
    let error = check(schema.as_object().expect("an object")).expect_err("too many steps");
    assert!(error.why.contains("SCHEMA_COPIES_MAX"), "{error}");
}
