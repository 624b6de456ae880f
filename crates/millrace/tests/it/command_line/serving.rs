//! Where `millrace serve` listens and whom it lets in, as llama.cpp's and vLLM's users say it.
//!
//! Promise (Settings and operation): `server.bind`, `--bind`, `--host` and `--port` mean the same in every spelling;
//! a key on the command line is required like any other.
//! Also held by `millrace/src/config/bind.rs`.

use super::refusal;
use crate::support::{Folder, Serving, millrace, millrace_with, stdout, synth};
use std::process::Stdio;

/// A line of `millrace config`.
fn bind(args: &[&str], vars: &[(&str, &str)]) -> String {
    let shown = stdout(&millrace_with(&[&["config"], args].concat(), vars));
    let line = shown
        .lines()
        .find_map(|line| line.trim().strip_prefix("bind: "));
    line.unwrap().split(" #").next().unwrap().trim().to_owned()
}

#[test]
fn address_flags_override_lower_layers() {
    let key = ["--api-key", "0123456789abcdef"];
    let rows: [(&[&str], &str); 7] = [
        (&["--bind", "8605"], "127.0.0.1:8605"),
        (&["--bind", ":8605"], "127.0.0.1:8605"),
        (&["--bind", "localhost:8605"], "127.0.0.1:8605"),
        (&["--bind", "0.0.0.0"], "0.0.0.0:8420"),
        (&["--port", "8605"], "127.0.0.1:8605"),
        (&["--host", "0.0.0.0"], "0.0.0.0:8420"),
        (&["--host", "::1", "--port", "1"], "[::1]:1"),
    ];
    for (args, want) in rows {
        let args = [args, &key[..]].concat();
        assert_eq!(bind(&args, &[]), format!("{want:?}"), "{args:?}");
    }
    let below = [("MILLRACE_SERVER_BIND", "127.0.0.2:9")];
    assert_eq!(bind(&["--port", "7"], &below), "\"127.0.0.2:7\"");
    assert_eq!(bind(&["--host", "localhost"], &below), "\"127.0.0.1:9\"");
    assert_eq!(
        bind(&[], &[("MILLRACE_SERVER_BIND", "8605")]),
        "\"127.0.0.1:8605\""
    );
    let two = millrace(&["serve", "--bind", "1", "--port", "2"]);
    let said = String::from_utf8_lossy(&two.stderr).into_owned();
    assert!(
        said.contains("--bind <ADDR:PORT>' cannot be used with '--port"),
        "{said}"
    );
}

#[test]
fn unknown_names_get_the_one_that_was_meant() {
    /// Arguments, variables, and what the error has.
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let rows: [Row<'_>; 5] = [
        (&["serve", "--prot", "1"], &[], "'--port'"),
        (&["--prot", "1"], &[], "'--port'"),
        (&["srve"], &[], "'serve'"),
        (
            &["config"],
            &[("MILLRACE_MODEL_CONTXT", "1")],
            "did you mean MILLRACE_MODEL_CONTEXT?",
        ),
        (
            &["config"],
            &[("MILLRACE_MODEL_CONTEXT", "many")],
            "must be a whole number from 0 on",
        ),
    ];
    for (args, vars, words) in rows {
        let output = millrace_with(args, vars);
        assert!(!output.status.success(), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(!said.contains("usize"), "{said}");
    }
    let folder = Folder::new("misspelled");
    let file = folder.0.join("settings.yaml");
    std::fs::write(&file, "sever: {bind: '8605'}\nthreads: 2\n").unwrap();
    let said = refusal(&millrace(&["config", "--config", file.to_str().unwrap()]));
    for words in ["did you mean server.bind?", "did you mean model.threads?"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn serve_is_the_default_command() {
    let folder = Folder::new("unsaid");
    let model = synth(&folder);
    for args in [
        &["--port", "0"][..],
        &["-m", &model, "--port", "0"],
        &[&model, "--port", "0"],
    ] {
        let serving = Serving::start(args);
        assert!(
            serving.get("/health").starts_with("HTTP/1.1 200"),
            "{args:?}"
        );
        assert!(serving.terminate().success());
    }
}

#[test]
fn page_has_a_line_of_its_own() {
    let rows: [(&[(&str, &str)], &str); 3] = [
        (&[], "/"),
        (&[("MILLRACE_SERVER_API_PREFIX", "/llm")], "/llm/"),
        (&[("MILLRACE_SERVER_PAGE", "false")], ""),
    ];
    for (vars, path) in rows {
        let mut serving = Serving::early(&["serve", "--port", "0"], vars, Stdio::null());
        let url = serving.url();
        let ready = serving.line();
        assert!(
            ready.ends_with(&format!(" serves millrace-mini at {url}\n")),
            "{ready}"
        );
        let (origin, _) = url.split_at(url.rfind(':').unwrap() + 1);
        serving.signal("TERM");
        let line = serving.line();
        match path {
            "" => assert_eq!(line, ""),
            path => assert!(
                line.starts_with(&format!("for a browser: {origin}"))
                    && line.ends_with(&format!("{path}\n")),
                "{line}"
            ),
        }
        assert!(serving.left().success());
    }
}

#[test]
fn key_from_the_command_line_is_required() {
    let key = "0123456789abcdef";
    let ask = r#"{"prompt":"A","max_tokens":2}"#;
    let with = |key: &str| format!("authorization: Bearer {key}\r\n");
    /// Flags, variables, and the keys that are good.
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: [Row<'_>; 2] = [
        (
            &["--api-key", "0123456789abcdef,fedcba9876543210"],
            &[],
            &[key, "fedcba9876543210"],
        ),
        (&[], &[("MILLRACE_API_KEY", key)], &[key]),
    ];
    for (flags, vars, keys) in rows {
        let args = [&["serve", "--port", "0"], flags].concat();
        let serving = Serving::start_with(&args, vars, Stdio::null());
        let post = |fields: &str| serving.post_with(fields, "/v1/completions", ask);
        assert!(post("").starts_with("HTTP/1.1 401"));
        assert!(post(&with("another-key-of-16")).starts_with("HTTP/1.1 401"));
        for key in keys {
            assert!(post(&with(key)).starts_with("HTTP/1.1 200"), "{key}");
        }
        let ps = |vars| millrace_with(&["ps", "--url", &serving.url()], vars);
        assert!(refusal(&ps(&[])).contains("requires an API key"));
        assert!(stdout(&ps(&[("MILLRACE_API_KEY", key)])).contains("millrace-mini"));
        assert!(serving.terminate().success());
    }
    let short = refusal(&millrace(&["serve", "--port", "0", "--api-key", "sesame"]));
    assert!(
        short.contains("at least 16 characters") && !short.contains("sesame"),
        "{short}"
    );
    let open = refusal(&millrace(&["serve", "--host", "0.0.0.0", "--port", "0"]));
    assert!(
        open.contains("--api-key") && open.contains("--no-auth"),
        "{open}"
    );
}

#[test]
fn invalid_model_file_fails_before_listening() {
    let folder = Folder::new("bad-file");
    let cut = folder.0.join("cut.gguf");
    std::fs::write(&cut, &std::fs::read(synth(&folder)).unwrap()[..5000]).unwrap();
    let text = folder.0.join("text.gguf");
    std::fs::write(&text, "this is a text\n").unwrap();
    for path in [cut, text] {
        let path = path.display().to_string();
        let output = millrace(&["serve", &path, "--port", "0"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{path}");
        let said = refusal(&output);
        assert_eq!(said.matches(&path).count(), 1, "{said}");
    }
}
