//! Chat templates against what Python's jinja2 renders (`tools/goldens/templates.py`).
//!
//! Promise (Text): chat templates render as Python's jinja2 does.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testing::program::note_skipped_test;
use text::{ChatTemplate, Message, RenderInput, SOURCE_BYTES_MAX, TemplateError};

/// As in `tools/goldens/templates.py`.
const BOS: &str = "<s>";
const EOS: &str = "</s>";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    name: String,
    messages: Vec<Message>,
    now_unix_s: i64,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    kwargs: Map<String, Value>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
}

fn yes() -> bool {
    true
}

/// Result of rendering a template for a conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Text(String),
    Refused(String),
    /// Python's exception; the message here differs.
    Broken(String),
    /// Python only: rendering fails without `tools`; this is the text for an empty list. This crate treats a
    /// missing list as empty in loops.
    Lenient(String),
}

impl Outcome {
    fn of(template: &ChatTemplate, conversation: &Conversation) -> Self {
        let input = RenderInput {
            messages: &conversation.messages,
            tools: &conversation.tools,
            add_generation_prompt: conversation.add_generation_prompt,
            kwargs: Some(&conversation.kwargs),
            now_unix_s: conversation.now_unix_s,
            bytes_max: None,
            marks_stay: false,
        };
        match template.render(&input) {
            Ok(text) => Self::Text(text),
            Err(TemplateError::Refused(why)) => Self::Refused(why),
            Err(TemplateError::Broken(why)) => Self::Broken(why),
            Err(why) => Self::Broken(why.to_string()),
        }
    }

    fn is_as(&self, golden: &Self) -> bool {
        match (self, golden) {
            (Self::Broken(_), Self::Broken(_)) => true,
            (Self::Broken(_), Self::Lenient(_)) => true,
            (Self::Text(ours), Self::Lenient(theirs)) => ours == theirs,
            _ => self == golden,
        }
    }
}

/// Outcomes by template and conversation.
type Goldens = BTreeMap<String, BTreeMap<String, Outcome>>;

/// Renders every golden's template over every conversation, and returns the number of comparisons.
fn check(goldens: &Goldens, sources: &Path) -> usize {
    let conversations: Vec<Conversation> = read_json("tests/conversations.json");
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (file, by_conversation) in goldens {
        let source = std::fs::read_to_string(sources.join(file)).unwrap();
        let template = ChatTemplate::new(&source, BOS, EOS).unwrap();
        for conversation in &conversations {
            let ours = Outcome::of(&template, conversation);
            let golden = &by_conversation[&conversation.name];
            // Definitions on which the template fails are completed here.
            let is_completed = !conversation.tools.is_empty()
                && matches!((&ours, golden), (Outcome::Text(_), Outcome::Broken(_)));
            if !is_completed && !ours.is_as(golden) {
                wrong.push(format!(
                    "{file}: {}\n  {ours:?}\n  {golden:?}",
                    conversation.name
                ));
            }
            compared += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    compared
}

#[test]
fn own_templates_equal_python() {
    let goldens: Goldens = read_json("tests/goldens/own_templates.json");
    assert_eq!(goldens.len(), 3);
    check(&goldens, &crate_path("tests/templates"));
}

#[test]
fn fallback_template_equals_python() {
    let goldens: Goldens = read_json("tests/goldens/fallback.json");
    assert_eq!(goldens.len(), 1);
    check(&goldens, &crate_path("src/template"));
    let fallback = ChatTemplate::fallback(BOS, EOS);
    for conversation in read_json::<Vec<Conversation>>("tests/conversations.json") {
        let golden = &goldens["fallback.jinja"][&conversation.name];
        assert_eq!(
            &Outcome::of(&fallback, &conversation),
            golden,
            "{}",
            conversation.name
        );
    }
}

/// The templates of public models are not part of the project; their goldens are.
#[test]
fn public_templates_equal_python() {
    let sources = crate_path("../../../shared/testdata/templates");
    if !sources.is_dir() {
        note_skipped_test("there is no ../shared/testdata/templates beside the project");
        return;
    }
    let goldens: Goldens = read_json("tests/goldens/public_templates.json");
    assert_eq!(goldens.len(), 15);
    check(&goldens, &sources);
}

/// One template for each construct of the language.
#[test]
fn snippets_equal_python() {
    let goldens: BTreeMap<String, Outcome> = read_json("tests/goldens/snippets.json");
    let snippets: Vec<String> = read_json("tests/snippets.json");
    let mut wrong = Vec::new();
    for snippet in &snippets {
        let golden = &goldens[snippet];
        let ours = snippet_outcome(snippet);
        if !ours.is_as(golden) {
            wrong.push(format!("{snippet}\n  {ours:?}\n  {golden:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A deliberate difference: Python fails.
#[test]
fn none_loops_as_empty_list() {
    let looped = snippet_outcome("{% for x in none %}a{% endfor %}{{ none | list }}");
    assert_eq!(looped, Outcome::Text("[]".to_owned()));
}

#[test]
fn kwargs_cannot_replace_the_conversation() {
    let template = ChatTemplate::new("{{ messages | length }}{{ bos_token }}{{ x }}", BOS, EOS);
    let kwargs = serde_json::json!({ "messages": "none", "bos_token": "[B]", "x": 1 });
    let input = RenderInput {
        kwargs: kwargs.as_object(),
        ..RenderInput::default()
    };
    assert_eq!(template.unwrap().render(&input), Ok("0[B]1".to_owned()));
}

/// A panic of minijinja caused by a message must only fail that request.
#[test]
fn engine_panic_becomes_error() {
    let outcome = snippet_outcome("{{ ''[::-1] }}");
    assert!(matches!(outcome, Outcome::Broken(_)) || outcome == Outcome::Text(String::new()));
}

#[test]
fn hostile_templates_are_rejected() {
    let check = |label: &str, source: &str| {
        let outcome = snippet_outcome(source);
        assert!(
            matches!(outcome, Outcome::Broken(_)),
            "{label}: {outcome:?}"
        );
    };
    let loops = "{% for a in range(9999) %}".repeat(3) + &"{% endfor %}".repeat(3);
    check("fuel", &loops);
    let long = "a".repeat(10_000);
    let printing = "{% for a in range(9999) %}".to_owned() + &long + "{% endfor %}";
    check("output", &printing);
    check(
        "recursion",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    );
    check("source", &" ".repeat(SOURCE_BYTES_MAX + 1));
    check("syntax", "{% if %}");
    let chain = |head: &str, link: &str| head.to_owned() + &link.repeat(5000) + " }}{{";
    check("brackets", &chain("{{ ", "("));
    check("blocks", &chain("", "{% if true %}"));
    check("signs", &chain("{{ ", "-"));
    check("sums", &chain("{{ 1", "+1"));
    check(
        "sums beyond a tag's bound",
        &format!("{{{{ 1{} }}}}", "+1".repeat(100_000)),
    );
    check("else-ifs", &chain("{% if 1 %}", "{%elif 1%}"));
}

/// Fuel counts each of these instructions once; without a further bound the templates would take minutes, or all memory.
#[test]
fn work_of_single_instructions_is_bounded() {
    let looped = |before: &str, body: &str| {
        format!("{before}{{% for i in range(99999) %}}{body}{{% endfor %}}")
    };
    let space = "{% set ns = namespace(x='a', l=[1]) %}";
    let big = "{% set s = 'a' * 3000000 %}{% set l = [1] * 900000 %}";
    for source in [
        looped("", "{% set x = range(99999) | join %}"),
        looped("", "{% set x = 'a' * 30000000 %}"),
        looped(space, "{% set ns.x = ns.x ~ ns.x %}"),
        looped(space, "{% set ns.l = ns.l + ns.l %}"),
        looped(space, "{% set ns.l = ns.l + [i] %}"),
        looped(
            space,
            "{% set ns.l = [ns.l, ns.l] %}{% set ns.x = ns.l | string %}",
        ),
        looped(big, "{% set x = i in l %}"),
        looped(big, "{% set x = s[1:2] %}"),
        looped(big, "{% set x = s == s ~ 'a' %}"),
        looped(big, "{% set x = s.upper() | length %}"),
        looped(big, "{% set x = l | sort %}"),
        format!("{big}{{% set x %}}{}{{% endset %}}", looped("", "{{ s }}")),
        "{% set x = 'a' %}".to_owned() + &"{% set x = x ~ x %}".repeat(200),
        "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('a') }}".to_owned(),
    ] {
        let template = ChatTemplate::new(&source, BOS, EOS).expect("a template");
        let outcome = template.render(&RenderInput::default());
        let is_bounded = match &outcome {
            Err(TemplateError::TooLong(_)) => true,
            Err(TemplateError::Broken(why)) => why.contains("WORK_MAX"),
            _ => false,
        };
        assert!(is_bounded, "{source}: {outcome:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// Any template and any message give text or an error.
    #[test]
    fn random_templates_do_not_panic(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 1..12),
        text in any::<String>(),
    ) {
        if let Ok(template) = ChatTemplate::new(&pieces.concat(), BOS, EOS) {
            let messages = [
                Message { role: text.clone(), content: Value::from(text), rest: Map::new() },
                Message { role: "user".to_owned(), content: Value::Null, rest: Map::new() },
            ];
            let _ = template.render(&RenderInput { messages: &messages, ..RenderInput::default() });
        }
    }
}

const PIECES: &[&str] = &[
    "{%",
    "%}",
    "{{",
    "}}",
    "{#",
    "#}",
    "-",
    "+",
    " generation ",
    " endgeneration ",
    "{% generation %}",
    "{%- endgeneration -%}",
    "{% for m in messages %}",
    "{% endfor %}",
    "{% if m.content %}",
    "{% else %}",
    "{% endif %}",
    "{{ m }}",
    "{{ m.content }}",
    "{{ messages | tojson(indent=3) }}",
    "{{ m.content[::-1] }}",
    "{{ m.content.split(m.role) }}",
    "{{ m.role.rsplit('', 1) }}",
    "{{ m.role.partition('') }}",
    "{{ strftime_now(m.role) }}",
    "{{ strftime_now('%') }}",
    "{{ raise_exception(m) }}",
    "{{ m.role * 3 }}",
    "{{ m.role.index('') }}",
    "{{ m.role | int }}",
    "{{ loop }}",
    "{% break %}",
    "{% set m = messages[0] %}",
    "{% set x %}",
    "{% endset %}",
    "é",
    "\n",
];

fn snippet_outcome(snippet: &str) -> Outcome {
    let nothing = Conversation {
        name: String::new(),
        messages: Vec::new(),
        now_unix_s: 1_753_600_000,
        tools: Vec::new(),
        kwargs: Map::new(),
        add_generation_prompt: true,
    };
    match ChatTemplate::new(snippet, BOS, EOS) {
        Ok(template) => Outcome::of(&template, &nothing),
        Err(error) => Outcome::Broken(error.to_string()),
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &str) -> T {
    let text = std::fs::read_to_string(crate_path(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
