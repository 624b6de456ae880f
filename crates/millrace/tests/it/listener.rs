//! TLS and Unix sockets, as clients see them.
//!
//! Promise (Settings and operation): a stream over TLS has the bytes of a plain one; the certificate is read again on
//! SIGHUP; a Unix socket answers next to the address.
//!
//! Promise (Settings and operation): the Unix socket's file has the mode of the setting; keys that root creates are
//! readable for the users of the folder, before and after an edit.
//! Also held by `millrace/src/operator_file.rs`.

use crate::support::{Folder, Serving, millrace, millrace_with, stdout};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use testing::wait::wait_until;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const ASK: &str =
    r#"{"prompt":"Once upon a time","max_tokens":40,"stream":true,"ignore_eos":true,"seed":1}"#;

/// Writes a certificate of this machine and its key, and returns the certificate.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

struct Rig {
    folder: Folder,
    serving: Serving,
    url: String,
}

impl Rig {
    fn start(name: &str) -> (Self, CertificateDer<'static>) {
        let folder = Folder::new(name);
        let certificate = certify(&folder.0);
        let path = |name: &str| folder.0.join(name).display().to_string();
        let (cert, key) = (path("cert.pem"), path("key.pem"));
        let args = [
            "serve",
            "--port",
            "0",
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
        ];
        let log = std::fs::File::create(folder.0.join("log")).unwrap();
        let mut serving = Serving::early(&args, &[], log);
        let ready = serving.line();
        let port = ready.trim().rsplit(':').next().unwrap().to_owned();
        assert!(ready.contains(" at https://127.0.0.1:"), "{ready}");
        let url = format!("https://localhost:{port}");
        (
            Self {
                folder,
                serving,
                url,
            },
            certificate,
        )
    }

    /// The answer to a client that trusts this certificate alone, in the form of HTTP/1.0: without chunks.
    fn ask(&self, trusted: &CertificateDer<'static>) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let authority = self.url.trim_start_matches("https://");
        let mut stream = StreamOwned::new(connection, TcpStream::connect(authority)?);
        write!(
            stream,
            "POST /v1/completions HTTP/1.0\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ASK}",
            ASK.len()
        )?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }
}

/// The text of an answer, without ids and times.
fn text_of(events: &str) -> String {
    let lines = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let texts = lines.filter_map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(event["choices"][0]["text"].as_str()?.to_owned())
    });
    texts.collect()
}

#[test]
fn stream_over_tls_is_that_in_the_clear() {
    let (rig, trusted) = Rig::start("tls");
    let plain = Serving::start(&["serve", "--port", "0"]);
    let want = text_of(&plain.post("/v1/completions", ASK));
    for _ in 0..2 {
        let events = rig.ask(&trusted).unwrap();
        assert!(events.ends_with("data: [DONE]\n\n"), "{events}");
        assert_eq!(text_of(&events), want);
    }
    let port = rig.url.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP"), "nothing in the clear");
    assert!(rig.serving.terminate().success());
}

#[test]
fn certificate_is_read_again_on_sighup() {
    let (rig, first) = Rig::start("tls-reload");
    let second = certify(&rig.folder.0);
    let log = || std::fs::read_to_string(rig.folder.0.join("log")).unwrap();
    rig.serving.signal("HUP");
    wait_until("it is reloaded", || {
        log().contains("the settings were reloaded")
    });
    assert!(rig.ask(&second).is_ok(), "the new certificate");
    assert!(rig.ask(&first).is_err(), "not the old one");
    std::fs::write(rig.folder.0.join("key.pem"), "no key").unwrap();
    rig.serving.signal("HUP");
    wait_until("it is refused", || log().contains("no private key in PEM"));
    assert!(rig.ask(&second).is_ok(), "the last good one stays");
    assert!(rig.serving.terminate().success());
}

#[test]
fn health_verifies_certificates_of_others_only() {
    let (rig, _) = Rig::start("tls-health");
    let port = rig.url.rsplit(':').next().unwrap();
    let path = |name: &str| rig.folder.0.join(name).display().to_string();
    let (bind, cert, key) = (format!("0.0.0.0:{port}"), path("cert.pem"), path("key.pem"));
    let own = [
        ("MILLRACE_SERVER_BIND", bind.as_str()),
        ("MILLRACE_LISTENER_TLS_CERT", &cert),
        ("MILLRACE_LISTENER_TLS_KEY", &key),
    ];
    let healthy = stdout(&millrace_with(&["health"], &own));
    assert_eq!(healthy, format!("https://127.0.0.1:{port}: ready\n"));
    let other = millrace_with(&["health", "--url", &rig.url], &own);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && said.contains("certificate"),
        "{said}"
    );
    assert!(rig.serving.terminate().success());
}

#[test]
fn certificate_needs_its_key() {
    let folder = Folder::new("tls-wrong");
    certify(&folder.0);
    let path = |name: &str| folder.0.join(name).display().to_string();
    std::fs::copy(folder.0.join("key.pem"), folder.0.join("old.pem")).unwrap();
    certify(&folder.0);
    std::fs::write(folder.0.join("empty.pem"), "").unwrap();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let rows: [(&[&str], &str); 5] = [
        (
            &["--tls-cert", &cert],
            "listener.tls_cert (flag): needs listener.tls_key",
        ),
        (
            &["--tls-key", &key],
            "listener.tls_key (flag): needs listener.tls_cert",
        ),
        (
            &["--tls-cert", &cert, "--tls-key", &path("old.pem")],
            "old.pem: ",
        ),
        (
            &["--tls-cert", &path("empty.pem"), "--tls-key", &key],
            "has no certificate in PEM",
        ),
        (
            &["--tls-cert", &path("absent.pem"), "--tls-key", &key],
            "absent.pem: No such file",
        ),
    ];
    for (flags, words) in rows {
        let refused = millrace(&[&["serve", "--port", "0"], flags].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains(words),
            "{flags:?}: {said}"
        );
    }
}

#[test]
fn unix_socket_answers_beside_the_address() {
    let folder = Folder::new("unix");
    let path = folder.0.join("millrace.sock");
    let socket = path.display().to_string();
    let args = ["serve", "--port", "0", "--unix-socket", &socket];
    let mode = [("MILLRACE_LISTENER_UNIX_SOCKET_MODE", "620")];
    let serving = Serving::start_with(&args, &mode, Stdio::null());
    let permissions = std::fs::metadata(&path).unwrap().permissions();
    assert_eq!(
        permissions.mode() & 0o777,
        0o620,
        "of the setting, not of the umask"
    );
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        write!(
            stream,
            "{request}\r\nhost: localhost\r\nconnection: close\r\n"
        )
        .unwrap();
        write!(
            stream,
            "content-type: application/json\r\ncontent-length: {}\r\n\r\n{ASK}",
            ASK.len()
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = ask("POST /v1/completions HTTP/1.1");
    assert_eq!(
        text_of(&reply),
        text_of(&serving.post("/v1/completions", ASK))
    );
    let second = millrace(&args);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("a server listens there"), "{said}");
    assert!(serving.terminate().success());
    assert!(!path.exists(), "the file goes with the server");
    // As after `kill -9`.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(Serving::start(&args).terminate().success());
    std::fs::write(&path, "a file").unwrap();
    let refused = millrace(&args);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("listener.unix_socket") && said.contains("no socket"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    let help = stdout(&millrace(&["serve", "--help"]));
    assert!(
        help.contains("--unix-socket") && help.contains("--ssl-certfile"),
        "{help}"
    );
}
