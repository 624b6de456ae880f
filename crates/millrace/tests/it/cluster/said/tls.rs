//! TLS to NATS with certificates of both sides, and nkeys.
//!
//! Promise (Cluster): TLS to NATS with certificates of both sides and nkeys works; a wrong authority and a missing
//! certificate are named with their setting.

use super::super::conversation::SETTINGS;
use super::super::nats_server;
use super::super::processes::Cluster;
use super::Logged;
use crate::support::{Folder, millrace, stdout};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// An authority, whose certificate is in this file.
fn authority(folder: &Folder, name: &str) -> (CertifiedIssuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let file = write(folder, name, &issuer.pem());
    (issuer, file)
}

/// Files with a certificate and its key.
fn certificate(
    folder: &Folder,
    name: &str,
    issuer: &CertifiedIssuer<'static, KeyPair>,
) -> [String; 2] {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, issuer).unwrap();
    [
        write(folder, &format!("{name}.pem"), &signed.pem()),
        write(folder, &format!("{name}-key.pem"), &key.serialize_pem()),
    ]
}

fn write(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.0.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn tls_with_certificates_of_both_sides_and_nkeys() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("said-tls");
    let (issuer, ca) = authority(&folder, "ca.pem");
    let (_, wrong_ca) = authority(&folder, "wrong-ca.pem");
    let [server, server_key] = certificate(&folder, "server", &issuer);
    let [cert, key] = certificate(&folder, "client", &issuer);
    let users = ["gateway", "engine"].map(|role| {
        let made = millrace(&["nkey", &folder.0.join(role).display().to_string()]);
        format!("{{ nkey: {} }}", stdout(&made).trim())
    });
    let lines = format!(
        "tls {{ cert_file: {server:?}, key_file: {server_key:?}, ca_file: {ca:?}, verify: true }}\n\
         authorization {{ users: [{}] }}",
        users.join(", ")
    );
    let mut cluster = Cluster::new(program, "said-tls-nats", &lines, &SETTINGS);
    cluster.nkeys = Some(folder.0.clone());
    let with = |ca: &str, has_certificate: bool| {
        let own = |path: &str| {
            if has_certificate {
                path.to_owned()
            } else {
                String::new()
            }
        };
        [
            ("MILLRACE_CLUSTER_TLS_CA", ca.to_owned()),
            ("MILLRACE_CLUSTER_TLS_CERT", own(&cert)),
            ("MILLRACE_CLUSTER_TLS_KEY", own(&key)),
        ]
    };
    let launch = |name: &str, role: &str, vars: &[(&str, String)]| {
        let vars = vars.iter().filter(|(_, value)| !value.is_empty());
        let vars: Vec<_> = vars.map(|(name, value)| (*name, value.as_str())).collect();
        Logged::launch(&cluster, (&folder, name), role, &vars, &[])
    };
    let engine = launch("engine-log", "engine", &with(&ca, true));
    let gateway = launch("gateway-log", "gateway", &with(&ca, true));
    let wrong = launch("wrong-log", "gateway", &with(&wrong_ca, true));
    let bare = launch("bare-log", "gateway", &with(&ca, false));
    gateway.wait_ready();
    engine.wait_ready();
    let body = r#"{"prompt": "A", "max_tokens": 3}"#;
    let reply = gateway.serving.post("/v1/completions", body);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    wrong.wait_refused(&[
        "NATS is not reachable",
        "invalid peer certificate",
        "cluster.tls_ca",
    ]);
    bare.wait_refused(&["NATS is not reachable", "cluster.tls_cert"]);
    // A gateway without an engine ends orderly.
    assert!(bare.serving.terminate().success() && !bare.log.text().contains("panicked"));
}
