//! Cases asked of a server that says what a script says.

use crate::support::{Scripted, refusal, whole};
use bench::eval::{self, Wish};
use serde_json::json;
use std::time::Duration;

fn wish(server: &Scripted) -> Wish {
    Wish {
        target: server.url().parse().unwrap(),
        model: Some("m".to_owned()),
        api_key: Some("k".to_owned()),
        clients: 3,
        timeout: Duration::from_secs(20),
    }
}

#[test]
fn answers_are_counted_by_skill_and_refusals_are_wrong() {
    let server = Scripted::start(|asked| {
        let said = asked.body["messages"][0]["content"].as_str().unwrap();
        match said {
            "refuse" => refusal(400),
            said => whole(&json!({"role": "assistant", "content": said.to_uppercase()})),
        }
    });
    let line = |skill: &str, said: &str, wanted: &str| {
        let messages = json!([{"role": "user", "content": said}]);
        json!({"skill": skill, "request": {"messages": messages, "top_k": 1}, "check": {"equals": wanted}})
            .to_string()
    };
    let text = [
        line("capitals", "one", "ONE"),
        line("capitals", "two", "two"),
        line("refusals", "refuse", "REFUSE"),
    ]
    .join("\n");
    let report = eval::run(eval::parse(&text).unwrap(), wish(&server)).unwrap();
    let counts: Vec<_> = report
        .rows
        .iter()
        .map(|row| (&*row.skill, row.cases, row.right))
        .collect();
    assert_eq!(
        counts,
        [("capitals", 2, 1), ("refusals", 1, 0), ("all", 3, 1)]
    );
    assert!(
        report.wrong[0].why.contains("\"TWO\": wanted \"two\""),
        "{report:?}"
    );
    assert!(report.wrong[1].why.contains("status 400"), "{report:?}");
    for asked in server.asked() {
        assert_eq!(asked.path, "/v1/chat/completions");
        assert_eq!(asked.authorization.as_deref(), Some("Bearer k"));
        assert_eq!(
            (&asked.body["model"], &asked.body["top_k"]),
            (&json!("m"), &json!(1))
        );
        assert_eq!(asked.body["temperature"], 0);
    }
}

#[test]
fn a_wish_out_of_bounds_is_refused() {
    let server = Scripted::start(|_| refusal(500));
    let cases = r#"{"skill":"a","request":{"messages":[]},"check":{"equals":"x"}}"#;
    for clients in [0, eval::CLIENTS_MAX + 1] {
        let mut wish = wish(&server);
        wish.clients = clients;
        let error = eval::run(eval::parse(cases).unwrap(), wish).unwrap_err();
        assert!(error.to_string().contains("clients is"), "{error}");
    }
    assert!(server.asked().is_empty());
}
