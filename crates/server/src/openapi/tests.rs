//! The description says what there is, all of it, and nothing else.
//!
//! Promise (APIs): every route of the sources is described in `/openapi.json`, and no other.

use super::*;
use crate::router::{ROUTES, Route};
use std::collections::BTreeSet;

type Routes = BTreeSet<(String, String)>;

/// Method and path of every route.
fn routes() -> Routes {
    let each = |route: &Route| {
        // Wildcards are plain parameters in OpenAPI; a route for any method is described as POST.
        let path = route.path.replace("{*", "{");
        let methods = route.methods.iter().map(|&method| match method {
            "any" => "post",
            method => method,
        });
        let rows: Vec<_> = methods
            .map(|method| (method.to_owned(), path.clone()))
            .collect();
        rows
    };
    ROUTES.iter().flat_map(each).collect()
}

#[test]
fn every_route_is_described_and_no_other() {
    let described: Routes = OPERATIONS
        .iter()
        .map(|&(method, path, ..)| (method.to_owned(), path.to_owned()))
        .collect();
    let there = routes();
    assert!(there.len() > 50, "{there:?}");
    let missing: Vec<_> = there.difference(&described).collect();
    let invented: Vec<_> = described.difference(&there).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing {missing:?}, invented {invented:?}"
    );
}

/// All references in a value.
fn references(value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            all.extend(
                object
                    .get("$ref")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            object.values().for_each(|value| references(value, all));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, all)),
        _ => {}
    }
}

#[test]
fn all_that_is_referred_to_is_there_and_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    references(&document, &mut used);
    for reference in &used {
        let place = reference.strip_prefix('#').expect("in the document");
        assert!(document.pointer(place).is_some(), "{reference}");
    }
    for kind in ["schemas", "parameters"] {
        let there = document["components"][kind]
            .as_object()
            .expect("components");
        for name in there.keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.contains(&reference), "nobody uses {reference}");
        }
    }
}

#[test]
fn operations_have_names_of_their_own() {
    let document = document();
    let mut names = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let name = operation["operationId"].as_str().expect("a name");
            assert!(
                names.insert(name.to_owned()),
                "{method} {path}: {name} twice"
            );
            let given = operation["parameters"].as_array().expect("a list").iter();
            let given = given.filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(given, path.matches('{').count(), "{path}");
        }
    }
}

#[test]
fn the_page_asks_nobody_else() {
    for word in ["http://", "https://", "//cdn", "@import", "src=\"//"] {
        assert!(!PAGE.contains(word), "{word}");
    }
    assert!(PAGE.contains("openapi.json"));
}
