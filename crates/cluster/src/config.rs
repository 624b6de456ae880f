//! Configuration of a process in a cluster.

use crate::names::ClusterName;
use async_nats::ServerAddr;
use std::path::PathBuf;

/// Addresses of NATS servers.
pub const SERVERS_MAX: usize = 32;

/// How NATS is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsConfig {
    /// Addresses of servers of one NATS cluster, such as `nats://10.0.0.1:4222` or `tls://host`; 1 to [`SERVERS_MAX`].
    pub servers: Vec<String>,
    /// Name of the connection in the server's monitoring.
    pub connection_name: String,
    /// How the process logs in.
    pub login: LoginFiles,
    /// Files of TLS.
    pub tls: TlsFiles,
}

/// Login at the NATS server: an nkey, a user with a password, a token, or none. Secrets are in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginFiles {
    /// File with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// User name.
    pub user: Option<String>,
    /// File with the password of `user`.
    pub password: Option<PathBuf>,
    /// File with a token.
    pub token: Option<PathBuf>,
}

/// PEM files of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of authorities that sign servers' certificates; without one, those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate of this process.
    pub cert: Option<PathBuf>,
    /// Private key of this process.
    pub key: Option<PathBuf>,
}

/// Checks the name of a cluster.
///
/// # Errors
/// The name cannot be part of a subject.
pub fn check_name(name: &str) -> Result<(), String> {
    ClusterName::new(name).map(drop)
}

/// Checks the address of a NATS server.
///
/// # Errors
/// The address is no URL of a NATS server, or contains a user or password, which settings would show.
pub fn check_server(server: &str) -> Result<(), String> {
    parse_server(server).map(drop)
}

/// The address of a NATS server.
pub(crate) fn parse_server(server: &str) -> Result<ServerAddr, String> {
    let has_login = server.contains('@');
    if has_login {
        return Err(
            "a server's address has no user, password or token: use cluster.nkey_file, cluster.user or cluster.token_file"
                .to_owned(),
        );
    }
    let address: ServerAddr = server
        .parse()
        .map_err(|why: std::io::Error| format!("{server:?}: {why}"))?;
    if !matches!(address.scheme(), "nats" | "tls") || address.host().is_empty() {
        return Err(format!(
            "{server:?} is not nats://HOST:PORT or tls://HOST:PORT"
        ));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_no_login() {
        for good in [
            "127.0.0.1",
            "nats://127.0.0.1:4222",
            "tls://nats.example.com",
            "[::1]:4222",
        ] {
            assert_eq!(check_server(good), Ok(()), "{good}");
        }
        for bad in ["", "http://a", "ws://a", "nats://", "nats://a:70000", "a b"] {
            let why = check_server(bad).expect_err(bad);
            assert!(!why.is_empty(), "{bad}");
        }
        let why = check_server("nats://me:sesame@host").unwrap_err();
        assert!(why.contains("cluster.nkey_file") && !why.contains("sesame"));
    }
}
