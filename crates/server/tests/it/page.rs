//! The web page: who gets it, in which form, with which rights.
//!
//! Promise (The web page): the page has a strict policy (one inline style and one inline script, by their hashes),
//! entity tags and a compressed form, needs no key, and is absent when it is off; programs get Ollama's text.

use crate::support::client::{Client, Head, Reply};
use crate::support::{Rig, config, fake};
use server::{Keys, ServerConfig};
use std::sync::Arc;

const BROWSER: &str = "host: localhost\r\naccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

fn get(rig: &Rig, path: &str, fields: &str) -> Reply {
    let mut client = Client::connect(rig.addr);
    client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n").as_bytes());
    client.reply()
}

/// The addresses of the files in the document.
fn addresses(document: &str) -> Vec<String> {
    let parts = document.split('"').filter(|part| part.starts_with("page/"));
    parts.map(|part| format!("/{part}")).collect()
}

fn header<'a>(head: &'a Head, name: &str) -> &'a str {
    head.get(name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn browser_gets_the_page_without_a_key_and_programs_get_the_text() {
    let rig = Rig::keyed(config(), &Arc::new(Keys::new(&[]).unwrap()));
    let page = get(&rig, "/", BROWSER);
    assert_eq!(page.head.status, 200);
    assert!(header(&page.head, "content-type").starts_with("text/html"));
    assert!(page.body.contains("<title>Millrace</title>"));
    let addresses = addresses(&page.body);
    assert!(addresses.len() > 20, "{addresses:?}");
    for address in addresses {
        let file = get(&rig, &address, "host: localhost\r\n");
        assert_eq!(file.head.status, 200, "{address}");
        assert!(header(&file.head, "cache-control").contains("immutable"));
    }
    let text = get(&rig, "/", "host: localhost\r\naccept: */*\r\n");
    assert!(text.body.starts_with("Ollama is running"));
    assert_eq!(header(&text.head, "vary"), "accept");
    let elsewhere = get(&rig, "/", "host: evil.example\r\naccept: text/html\r\n");
    assert_eq!(
        elsewhere.head.status, 421,
        "the host is checked as everywhere"
    );
    assert_eq!(get(&rig, "/v1/models", BROWSER).head.status, 401);
}

#[test]
fn files_have_strict_rights_a_tag_and_a_compressed_form() {
    let rig = Rig::start();
    let document = get(&rig, "/", BROWSER);
    let address = addresses(&document.body).pop().unwrap();
    for path in ["/", &address] {
        let plain = get(&rig, path, BROWSER);
        let policy = header(&plain.head, "content-security-policy");
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert!(policy.contains("img-src 'self' blob:;"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header(&plain.head, "x-content-type-options"), "nosniff");
        assert_eq!(header(&plain.head, "referrer-policy"), "no-referrer");
        assert_eq!(header(&plain.head, "vary"), "accept, accept-encoding");
        assert!(plain.head.get("content-encoding").is_none());
        let zipped = format!("{BROWSER}accept-encoding: br, gzip\r\n");
        let mut client = Client::connect(rig.addr);
        client.send(format!("HEAD {path} HTTP/1.1\r\n{zipped}\r\n").as_bytes());
        let head = client.head();
        assert_eq!(header(&head, "content-encoding"), "gzip");
        let length = |head: &Head| header(head, "content-length").parse::<usize>().unwrap();
        assert!(length(&head) < length(&plain.head));
        let tags = [header(&plain.head, "etag"), header(&head, "etag")];
        assert_ne!(tags[0], tags[1], "the forms have other bytes");
        for (tag, form, status) in [
            (tags[0], BROWSER, 304),
            (tags[1], &zipped, 304),
            (tags[0], &zipped, 200),
        ] {
            let mut client = Client::connect(rig.addr);
            let request =
                format!("GET {path} HTTP/1.1\r\n{form}if-none-match: \"x\", W/{tag}\r\n\r\n");
            client.send(request.as_bytes());
            let head = client.head();
            assert_eq!(head.status, status, "{path} {tag}");
            assert_eq!(header(&head, "etag") == tag, status == 304);
        }
    }
    assert_eq!(header(&document.head, "cache-control"), "no-cache");
}

#[test]
fn unknown_files_and_versions_are_not_found() {
    let rig = Rig::start();
    let document = get(&rig, "/", BROWSER).body;
    let address = addresses(&document).pop().unwrap();
    let (folder, _) = address.rsplit_once('/').unwrap();
    for path in [
        format!("{folder}/nothing.js"),
        format!("{folder}/..%2findex.html"),
        address.replace(folder, "/page/0123456789abcdef"),
        "/page".to_owned(),
        folder.to_owned(),
    ] {
        assert_eq!(get(&rig, &path, BROWSER).head.status, 404, "{path}");
    }
}

#[test]
fn page_that_is_off_is_not_there() {
    let rig = Rig::start();
    let document = get(&rig, "/", BROWSER).body;
    let off = ServerConfig {
        page: false,
        ..config()
    };
    let rig = Rig::with(fake(), off);
    for address in addresses(&document) {
        assert_eq!(get(&rig, &address, BROWSER).head.status, 404, "{address}");
    }
    let root = get(&rig, "/", BROWSER);
    assert!(root.body.starts_with("Ollama is running"), "{}", root.body);
}
