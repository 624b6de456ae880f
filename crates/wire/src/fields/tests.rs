//! Invalid values in errors.

use super::Fields;

#[test]
fn invalid_value_is_repeated_if_it_is_short_and_a_double() {
    for (value, shown) in [
        ("7", Some("7")),
        ("-1.5e3", Some("-1.5e3")),
        ("true", Some("true")),
        ("2e308", None),
        ("0.12345678901234567890123456789012345", None),
        ("\"text\"", None),
        ("[7]", None),
    ] {
        let body = format!("{{\"stop\": {value}}}");
        let mut fields = Fields::parse(body.as_bytes()).expect("an object");
        fields.reject("stop", "must be something else");
        let error = fields.finish().expect_err("a problem");
        assert_eq!(error.problems[0].value.as_deref(), shown, "{value}");
    }
}
