//! Evaluation against a scripted server.

use crate::support::{ScriptedServer, collected_response, error_response};
use bench::eval::{self, EvalOptions};
use serde_json::json;
use std::time::Duration;

fn options(server: &ScriptedServer) -> EvalOptions {
    EvalOptions {
        target: server.url().parse().unwrap(),
        model: Some("m".to_owned()),
        api_key: Some("k".to_owned()),
        clients: 3,
        timeout: Duration::from_secs(20),
    }
}

#[test]
fn answers_are_counted_by_skill_and_error_responses_are_wrong() {
    let server = ScriptedServer::start(|request| {
        let said = request.body["messages"][0]["content"].as_str().unwrap();
        match said {
            "refuse" => error_response(400),
            said => {
                collected_response(&json!({"role": "assistant", "content": said.to_uppercase()}))
            }
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
    let report = eval::run(eval::parse(&text).unwrap(), options(&server)).unwrap();
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
    for request in server.received() {
        assert_eq!(request.path, "/v1/chat/completions");
        assert_eq!(request.authorization.as_deref(), Some("Bearer k"));
        assert_eq!(
            (&request.body["model"], &request.body["top_k"]),
            (&json!("m"), &json!(1))
        );
        assert_eq!(request.body["temperature"], 0);
    }
}

#[test]
fn eval_options_out_of_bounds_are_rejected() {
    let server = ScriptedServer::start(|_| error_response(500));
    let cases = r#"{"skill":"a","request":{"messages":[]},"check":{"equals":"x"}}"#;
    for clients in [0, eval::CLIENTS_MAX + 1] {
        let mut options = options(&server);
        options.clients = clients;
        let error = eval::run(eval::parse(cases).unwrap(), options).unwrap_err();
        assert!(error.to_string().contains("clients is"), "{error}");
    }
    assert!(server.received().is_empty());
}
