//! The documentation, the dashboard and a running server speak of the same families.
//!
//! Promise (APIs): every exported metric is documented; every dashboard query names one, by labels that it has.

use crate::support::exported::{Exported, read_again, rig, used};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn project(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A row of the table in docs/metrics.md: name, kind, labels.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = project("docs/metrics.md");
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let labels = cells[3].split(',').map(|l| l.trim().trim_matches('`'));
        let labels = labels.filter(|l| !l.is_empty() && *l != "–");
        let labels = labels.map(str::to_owned).collect();
        name.starts_with("millrace_")
            .then(|| (name.to_owned(), (cells[2].to_owned(), labels)))
    });
    rows.collect()
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let rig = rig();
    used(&rig);
    read_again(&rig);
    let told = Exported::from(&rig);
    let documented = documented();
    let names = |of: &mut dyn Iterator<Item = &String>| of.cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&mut documented.keys()),
        names(&mut told.kinds.keys()),
        "documented / exported"
    );
    for (name, (kind, labels)) in &documented {
        assert_eq!(kind, &told.kinds[name], "{name}");
        assert_eq!(labels, &told.labels(name), "labels of {name}");
    }
}

/// All strings under a key, anywhere.
fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => strings(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, key, found)),
        _ => {}
    }
}

/// Words of a query that are our names.
fn used_names(query: &str) -> impl Iterator<Item = &str> {
    query
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("millrace_"))
}

/// The labels in a query's selectors: `{name="value",..}`.
fn selected(query: &str) -> Vec<&str> {
    let inside = query
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let matchers = inside.flat_map(|matchers| matchers.split(','));
    matchers
        .filter_map(|matcher| matcher.split(['=', '!']).next())
        .map(str::trim)
        .collect()
}

/// The labels a query groups by: `by (name, ..)`.
fn grouped(query: &str) -> Vec<&str> {
    let lists = query
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    lists
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect()
}

/// The labels in a legend: `{{name}}`.
fn in_legend(legend: &str) -> Vec<&str> {
    let names = legend
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split("}}").next());
    names.map(str::trim).collect()
}

/// All objects that ask for something, anywhere.
fn targets<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("expr") {
                found.push(value);
            }
            fields.values().for_each(|value| targets(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| targets(item, found)),
        _ => {}
    }
}

#[test]
fn dashboard_labels_are_exported() {
    // Whoever scrapes adds these to each sample.
    const SCRAPED: [&str; 2] = ["job", "instance"];
    // That these are what is exported, the test above says.
    let documented = documented();
    let labels = |name: &str| -> BTreeSet<String> {
        let parts = ["", "_bucket", "_sum", "_count"].iter();
        let mut families = parts.filter_map(|part| documented.get(name.strip_suffix(part)?));
        let (_, labels) = families
            .next()
            .unwrap_or_else(|| panic!("{name} is nobody's"));
        let bucket = name.ends_with("_bucket").then(|| "le".to_owned());
        labels.iter().cloned().chain(bucket).collect()
    };
    let dashboard: Value = serde_json::from_str(&project("deploy/grafana/millrace.json")).unwrap();
    let mut asked = Vec::new();
    targets(&dashboard, &mut asked);
    let mut named = BTreeSet::new();
    for target in asked {
        let query = target["expr"].as_str().unwrap();
        let groups = grouped(query);
        for name in used_names(query) {
            let has = labels(name);
            for label in groups.iter().chain(&selected(query)) {
                let known = has.contains(*label) || SCRAPED.contains(label);
                assert!(known, "{name} has no label {label}: {query}");
            }
            named.extend(groups.iter().map(|group| (*group).to_owned()));
        }
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        for label in in_legend(legend) {
            assert!(groups.contains(&label), "{legend} of {query}");
        }
    }
    assert!(
        named.len() > 8,
        "the dashboard groups by something: {named:?}"
    );
}

#[test]
fn dashboard_queries_name_exported_metrics() {
    let rig = rig();
    let names = Exported::from(&rig).names();
    let dashboard: Value = serde_json::from_str(&project("deploy/grafana/millrace.json")).unwrap();
    let mut queries = Vec::new();
    strings(&dashboard, "expr", &mut queries);
    strings(&dashboard, "query", &mut queries);
    strings(&dashboard, "definition", &mut queries);
    let used: BTreeSet<&str> = queries.iter().flat_map(|query| used_names(query)).collect();
    assert!(used.len() > 15, "the dashboard shows something: {used:?}");
    for name in used {
        assert!(
            names.contains(name),
            "{name} is in the dashboard and not exported"
        );
    }
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["id"])
        .collect();
    let distinct: BTreeSet<_> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(ids.len(), distinct.len(), "each panel has an id of its own");
}
