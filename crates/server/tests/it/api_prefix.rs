//! A prefix of all paths (`server.api_prefix`).
//!
//! Promise (APIs): with `server.api_prefix` every route answers below the prefix and nowhere else; the page's links
//! stay below it.
//! Also held by `server/src/request/paths.rs`.

use crate::support::client::{Client, Reply, get, post};
use crate::support::{Rig, config, fake};
use serde_json::json;
use server::ServerConfig;

fn rig() -> Rig {
    let config = ServerConfig {
        api_prefix: "/llm/one".to_owned(),
        ..config()
    };
    Rig::with(fake(), config)
}

fn page(rig: &Rig, path: &str) -> Reply {
    let mut client = Client::connect(rig.addr);
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/html\r\n\r\n");
    client.send(head.as_bytes());
    client.reply()
}

#[test]
fn every_route_is_below_the_prefix_only() {
    let rig = rig();
    for path in [
        "/v1/models",
        "/models",
        "/health",
        "/metrics",
        "/api/tags",
        "/props",
        "/openapi.json",
    ] {
        let below = get(rig.addr, &format!("/llm/one{path}"));
        assert_eq!(below.head.status, 200, "{path}");
        for outside in [
            path.to_owned(),
            format!("/llm{path}"),
            format!("/llm/one1{path}"),
        ] {
            let reply = get(rig.addr, &outside);
            assert_eq!(reply.head.status, 404, "{outside}");
            assert!(reply.body.contains("begin with /llm/one"), "{}", reply.body);
        }
    }
    let body = json!({"prompt": "a", "max_tokens": 1});
    let reply = post(rig.addr, "/llm/one/v1/completions?x=y", &body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    assert_eq!(post(rig.addr, "/v1/completions", &body).head.status, 404);
    let described = get(rig.addr, "/llm/one/openapi.json").json();
    assert_eq!(described["servers"], json!([{"url": "/llm/one"}]));
}

#[test]
fn links_of_the_page_are_below_the_prefix() {
    let rig = rig();
    let moved = page(&rig, "/llm/one");
    let target = moved.head.get("location").expect("a location");
    assert_eq!((moved.head.status, target), (308, "/llm/one/"));
    let document = page(&rig, "/llm/one/");
    assert_eq!(document.head.status, 200);
    let links = document
        .body
        .split('"')
        .filter(|part| part.starts_with("page/"));
    let links: Vec<&str> = links.collect();
    assert!(links.len() > 20, "{links:?}");
    for link in links {
        assert_eq!(
            page(&rig, &format!("/llm/one/{link}")).head.status,
            200,
            "{link}"
        );
    }
    let absolute = ["href=\"/", "src=\"/"];
    assert!(absolute.iter().all(|link| !document.body.contains(link)));
}
