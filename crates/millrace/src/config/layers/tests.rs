//! Promise (Settings and operation): a setting that prevents only a server (an address without keys, TLS, the
//! cluster, webhooks) prevents no other command: in an image, `run` and `health` need no key.
//! Also held by `millrace/tests/it/command_line/installed.rs`.

use super::*;
use std::io::Write;

fn laid(file: &str, vars: &[(&str, &str)], context: Option<usize>) -> Result<Config, ConfigError> {
    layers(file, vars, context).finish()
}

fn layers(file: &str, vars: &[(&str, &str)], context: Option<usize>) -> Layers {
    let dir = std::env::temp_dir();
    let path = dir.join(format!(
        "millrace-config-{}-{:p}.yaml",
        std::process::id(),
        &file
    ));
    let mut handle = std::fs::File::create(&path).unwrap();
    handle.write_all(file.as_bytes()).unwrap();
    let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let layers = Layers::defaults()
        .file(&path)
        .environment(vars)
        .flag("model.context", context.as_ref());
    std::fs::remove_file(&path).unwrap();
    layers
}

#[test]
fn higher_layer_overrides_and_is_named() {
    let file = "model: {context: 100, threads: 3}\nserver: {bind: '127.0.0.1:1'}\n";
    let vars = [
        ("MILLRACE_MODEL_CONTEXT", "200"),
        ("MILLRACE_SERVER_IO_THREADS", "7"),
    ];
    let config = laid(file, &vars, Some(300)).unwrap();
    assert_eq!(config.settings.model.context, Some(300));
    assert_eq!(config.settings.model.threads, Some(3));
    assert_eq!(config.settings.server.io_threads, 7);
    assert_eq!(config.settings.engine, super::super::Engine::default());
    assert_eq!(config.origins["model.context"], Origin::Flag);
    assert!(matches!(config.origins["model.threads"], Origin::File(_)));
    let variable = Origin::Environment("MILLRACE_SERVER_IO_THREADS".to_owned());
    assert_eq!(config.origins["server.io_threads"], variable);
    assert_eq!(config.origins["log.json"], Origin::Default);
}

/// Label, file, environment, and what the error must name.
type Bad = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

#[test]
fn invalid_setting_of_each_kind_is_named() {
    let rows: [Bad; 10] = [
        ("unknown key", "server: {prot: 1}", &[], "server.prot"),
        (
            "no filter",
            "log: {filter: 'a=b=c'}",
            &[],
            "log.filter (file",
        ),
        ("unknown section", "sever: {port: 1}", &[], "sever.port"),
        ("section is no map", "server: 3", &[], "server"),
        ("file is no map", "- 1\n- 2\n", &[], "map of sections"),
        ("broken file", "server: {bind: ", &[], "yaml"),
        (
            "wrong type",
            "server: {io_threads: many}",
            &[],
            "server.io_threads",
        ),
        (
            "out of bounds",
            "server: {io_threads: 0}",
            &[],
            "must be 1 to 256, not 0",
        ),
        (
            "unknown variable",
            "",
            &[("MILLRACE_SERVR_BIND", "x")],
            "MILLRACE_SERVR_BIND",
        ),
        (
            "open bind",
            "server: {bind: '0.0.0.0:80'}",
            &[],
            "--no-auth",
        ),
    ];
    for (label, file, vars, named) in rows {
        let error = laid(file, vars, None).expect_err(label).to_string();
        assert!(error.contains(named), "{label}: {error}");
    }
}

#[test]
fn lists_in_variables_are_plain_words_or_json() {
    let rows: [(&str, &[&str]); 6] = [
        ("host.docker.internal", &["host.docker.internal"]),
        ("a.lan, b.lan", &["a.lan", "b.lan"]),
        ("*", &["*"]),
        ("", &[]),
        (" [\"a.lan\", \"b.lan\"]", &["a.lan", "b.lan"]),
        ("[]", &[]),
    ];
    for (text, want) in rows {
        let config = laid("", &[("MILLRACE_SERVER_HOSTS", text)], None).unwrap();
        assert_eq!(config.settings.server.hosts, want, "{text:?}");
    }
    let vars = [(
        "MILLRACE_SERVER_ORIGINS",
        "https://a.example,http://b.lan:*",
    )];
    let config = laid("", &vars, None).unwrap();
    let want = ["https://a.example", "http://b.lan:*"];
    assert_eq!(config.settings.server.origins, want);
    let vars = [("MILLRACE_SERVER_ORIGINS", "a.example")];
    let error = laid("", &vars, None).unwrap_err().to_string();
    assert!(
        error.contains("server.origins") && error.contains("a.example"),
        "{error}"
    );
    let broken = laid("", &[("MILLRACE_SERVER_HOSTS", "[\"a")], None);
    assert!(broken.unwrap_err().to_string().contains("server.hosts"));
}

#[test]
fn empty_text_is_no_value_and_an_empty_variable_is_absent() {
    let file = "server: {io_threads: 3}\n";
    let vars = [
        ("MILLRACE_SERVER_IO_THREADS", ""),
        ("MILLRACE_MODEL_PATH", ""),
        ("MILLRACE_LOG_FILTER", ""),
        ("MILLRACE_KEYS_FILE", ""),
        ("MILLRACE_WEBHOOK_SECRET", ""),
        ("MILLRACE_API_KEYS", ""),
        ("MILLRACE_JOURNAL_DIRECTORY", ""),
        ("MILLRACE_SERVER_API_PREFIX", ""),
    ];
    let settings = laid(file, &vars, None).unwrap().settings;
    assert_eq!(settings.server.io_threads, 3);
    assert_eq!((settings.model.path, settings.keys.file), (None, None));
    assert_eq!(settings.log.filter, "info");
    assert_eq!(
        settings.journal.directory.as_deref(),
        Some(Path::new("")),
        "off"
    );
    for (file, named) in [
        ("model: {name: ''}", "model.name"),
        ("model: {path: ''}", "model.path"),
        ("keys: {file: ''}", "keys.file"),
        ("log: {filter: ''}", "log.filter"),
        ("models: {directories: ['']}", "no empty entries"),
    ] {
        let error = laid(file, &[], None).expect_err(file).to_string();
        assert!(error.contains(named) && error.contains("empty"), "{error}");
    }
}

#[test]
fn public_address_with_keys_is_accepted() {
    let bind = "server: {bind: '0.0.0.0:80'}\n";
    let file = laid(&format!("{bind}keys: {{file: keys.yaml}}"), &[], None).unwrap();
    assert_eq!(file.settings.keys.file, Some("keys.yaml".into()));
    let vars = [("MILLRACE_API_KEYS", "me=0123456789abcdef")];
    let config = laid(bind, &vars, None).unwrap();
    assert_eq!(config.api_keys[0].name, "me");
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
    let vars = [("MILLRACE_API_KEYS", "me=sesame")];
    let error = laid("", &vars, None).unwrap_err().to_string();
    assert!(
        error.contains("MILLRACE_API_KEYS") && !error.contains("sesame"),
        "{error}"
    );
}

#[test]
fn problem_of_a_server_prevents_no_other_command() {
    let rows: [(&str, &[(&str, &str)]); 8] = [
        ("server: {bind: '0.0.0.0:80'}", &[]),
        ("server: {api_prefix: 'llm/'}", &[]),
        ("server: {origins: ['a.example']}", &[]),
        ("listener: {tls_cert: chain.pem}", &[]),
        ("cluster: {name: 'a b'}", &[]),
        ("upstream: {model: chat}", &[]),
        ("webhooks: {allowed_hosts: ['a b']}", &[]),
        ("", &[("MILLRACE_API_KEYS", "me=sesame")]),
    ];
    for (file, vars) in rows {
        assert!(laid(file, vars, None).is_err(), "a server: {file}");
        let config = layers(file, vars, None).finish_without_server();
        assert!(config.is_ok(), "{file}: {config:?}");
    }
    for file in ["model: {context: many}", "engine: {sequences_max: 0}"] {
        let config = layers(file, &[], None).finish_without_server();
        assert!(config.is_err(), "{file}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let error = laid(
        "server: {io_threads: 0, nonsense: 1}",
        &[("MILLRACE_NO", "1")],
        None,
    );
    assert_eq!(error.unwrap_err().0.len(), 3);
}

#[test]
fn empty_file_sets_nothing() {
    let config = laid("# only a comment\n\n", &[], None).unwrap();
    assert_eq!(config.settings, Settings::default());
}
