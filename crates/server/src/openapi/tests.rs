//! The description says what there is, all of it, and nothing else.

use super::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

type Routes = BTreeSet<(String, String)>;

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            all.push(path);
        }
    }
}

/// The value of a constant in this text.
fn constant<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text
        .split_once(&format!("const {name}: &str = \""))
        .expect("a constant");
    rest.split('"').next().expect("its end")
}

/// What a file adds to routers: every `.route(PATH, METHODS)`.
fn routes_of(text: &str, all: &mut Routes) {
    for part in text.split(".route(").skip(1) {
        let part = part.trim_start();
        let path = match part.strip_prefix('"') {
            Some(rest) => rest.split('"').next().expect("its end"),
            None => constant(text, part.split(',').next().expect("a name").trim()),
        };
        // Wildcards are plain parameters in OpenAPI.
        let path = path.replace("{*", "{");
        let (_, methods) = part.split_once(',').expect("its methods");
        let end = methods.find(".route(").unwrap_or(methods.len());
        let methods = methods[..end]
            .split(['\n', ';'])
            .take_while(|line| !line.trim().starts_with(".merge"));
        let methods: String = methods.take(3).collect();
        let named = |name: &str| methods.contains(&format!("{name}("));
        for (name, method) in [
            ("get", "get"),
            ("post", "post"),
            ("delete", "delete"),
            ("any", "post"),
            ("route", "post"),
        ] {
            // The closest only: a handler's name is no method.
            let first = methods.trim_start().starts_with(&format!("{name}("));
            let chained = matches!(name, "delete" | "post") && named(&format!(").{name}"));
            if first || chained {
                all.insert((method.to_owned(), path.clone()));
            }
        }
    }
}

fn in_the_sources() -> Routes {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let mut all = Routes::new();
    for file in files
        .iter()
        .filter(|file| !file.ends_with("openapi/tests.rs"))
    {
        routes_of(&fs::read_to_string(file).expect("a source"), &mut all);
    }
    all
}

#[test]
fn every_route_is_described_and_no_other() {
    let described: Routes = operations::all()
        .map(|operation| (operation.method.to_owned(), operation.path.to_owned()))
        .collect();
    let there = in_the_sources();
    assert!(there.len() > 50, "they were found: {there:?}");
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
    for kind in ["schemas", "parameters", "responses"] {
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
