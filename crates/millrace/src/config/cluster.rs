//! Settings of a process in a cluster, and what of them contradicts each other.

use super::Settings;
use cluster::config::{LoginFiles, NatsConfig, SERVERS_MAX, TlsFiles, check_name, check_server};
use cluster::instances::MembershipConfig;
use cluster::names::{ClusterName, InstanceId};
use cluster::placement::PlacementPolicy;
use cluster::records::RecordsConfig;
use cluster::secret::ClusterSecret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of `cluster.address`.
const ADDRESS_BYTES_MAX: usize = 256;

/// Several instances over NATS: gateways with engines behind them (docs/cluster.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cluster {
    /// Part of this process. `gateway` and `engine` need `cluster.servers`.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "one process needs no NATS"))]
    pub(crate) role: Role,
    /// Name of the cluster: 1 to 32 of `a`-`z`, `0`-`9` and `-`. Clusters of different names can share NATS servers.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "one cluster per NATS account is usual"))]
    pub(crate) name: String,
    /// NATS servers of one NATS cluster, such as `nats://10.0.0.1:4222` or `tls://nats.example.com`, at most 32. Without one the process opens no connection.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a single process opens no connection"))]
    pub(crate) servers: Vec<String>,
    /// File with the seed of an nkey (`nk -gen user`), to log in at the NATS servers.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a NATS server on the same machine often has no login"))]
    pub(crate) nkey_file: Option<PathBuf>,
    /// User name at the NATS servers.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the same"))]
    pub(crate) user: Option<String>,
    /// File with the password of `user`.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the same"))]
    pub(crate) password_file: Option<PathBuf>,
    /// File with a token for the NATS servers.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the same"))]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the authorities that sign the NATS servers' certificates; default: those of the system.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "certificates of public authorities need no configuration"))]
    pub(crate) tls_ca: Option<PathBuf>,
    /// PEM file with the certificate of this process for the NATS servers.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "NATS servers ask for one only if configured"))]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of `tls_cert`.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the same"))]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with a random secret of at least 32 characters, the same for all gateways. They trust each other's addresses and requests by it. Engines must not have it, and do not read it.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "one gateway asks no other; several do not trust each other's addresses without it"))]
    pub(crate) secret_file: Option<PathBuf>,
    /// Id of this process: 16 hexadecimal digits, different in each process. Empty: random at each start.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "two processes never have the same random id"))]
    pub(crate) instance_id: String,
    /// Host and port at which other instances reach the HTTP interface of this process. Default: `server.bind`, unless that is an address of all interfaces.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "on one machine the listening address is the right one"))]
    pub(crate) address: Option<String>,
    /// Time between two heartbeats, the same in all processes of a cluster. A process is silent after 3 without one, and gone after 12.
    #[schemars(
        range(min = 50, max = 10_000),
        extend("x-reload" = "restart", "x-reason" = "an engine that died is noticed within a second, at the cost of four small messages a second")
    )]
    pub(crate) heartbeat_ms: u64,
    /// Which engine gets a request of this gateway.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "finds the most cached prefixes"))]
    pub(crate) placement: Placement,
    /// How many NATS servers store each record of a stream: 1, 3 or 5. Default: 3 where `servers` has three or more, else 1. The last process that was started decides for all.
    #[schemars(
        range(min = 1, max = 5),
        extend("x-reload" = "restart", "x-reason" = "three survive the loss of one")
    )]
    pub(crate) replicas: Option<usize>,
    /// Maximum bytes of all streams' records in JetStream. The last process that was started decides for all.
    #[schemars(
        range(min = 16_u64 << 20, max = 1_u64 << 50),
        extend("x-reload" = "restart", "x-reason" = "the records of some ten thousand streams with long prompts")
    )]
    pub(crate) store_bytes: u64,
    /// Age at which JetStream removes records that no gateway has removed; running streams are stored anew at half of it.
    #[schemars(
        range(min = 60, max = 31_536_000),
        extend("x-reload" = "restart", "x-reason" = "longer than any retention; only records of gateways that never came back are left to it")
    )]
    pub(crate) records_age_max_s: u64,
    /// Time that requests of a gateway wait for an engine of their model. Where there was none for longer, new requests are rejected at once.
    #[schemars(
        range(min = 1000, max = 600_000),
        extend("x-reload" = "restart", "x-reason" = "an engine can be restarted")
    )]
    pub(crate) engine_wait_ms: u64,
}

/// Rule by which one of several engines gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Placement {
    /// Where the first token is predicted soonest, by load and cached prefixes.
    #[default]
    Predicted,
    /// Where the fewest requests are.
    LeastLoaded,
    /// One engine after the other.
    RoundRobin,
}

/// Part of a process in a cluster.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Clients and model in one process. With `cluster.servers`, the model also computes for gateways.
    #[default]
    All,
    /// Serves clients, and has no weights: engines of other processes compute the tokens.
    Gateway,
    /// Computes tokens for gateways, and serves no clients.
    Engine,
}

impl Default for Cluster {
    fn default() -> Self {
        let records = RecordsConfig::default();
        Self {
            role: Role::All,
            name: "millrace".to_owned(),
            servers: Vec::new(),
            nkey_file: None,
            user: None,
            password_file: None,
            token_file: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            secret_file: None,
            instance_id: String::new(),
            address: None,
            heartbeat_ms: 250,
            placement: Placement::default(),
            replicas: None,
            store_bytes: records.store_bytes,
            records_age_max_s: records.age_max.as_secs(),
            engine_wait_ms: 60_000,
        }
    }
}

impl From<Role> for cluster::messages::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::All => Self::All,
            Role::Gateway => Self::Gateway,
            Role::Engine => Self::Engine,
        }
    }
}

impl From<Placement> for PlacementPolicy {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Predicted => Self::Predicted,
            Placement::LeastLoaded => Self::LeastLoaded,
            Placement::RoundRobin => Self::RoundRobin,
        }
    }
}

impl Cluster {
    /// Whether the process takes part in a cluster.
    pub(crate) fn is_joined(&self) -> bool {
        !self.servers.is_empty()
    }

    /// How NATS is reached.
    pub(crate) fn nats(&self) -> NatsConfig {
        NatsConfig {
            servers: self.servers.clone(),
            connection_name: format!(
                "millrace {}",
                cluster::messages::Role::from(self.role).name()
            ),
            login: LoginFiles {
                nkey: self.nkey_file.clone(),
                user: self.user.clone(),
                password: self.password_file.clone(),
                token: self.token_file.clone(),
            },
            tls: TlsFiles {
                ca: self.tls_ca.clone(),
                cert: self.tls_cert.clone(),
                key: self.tls_key.clone(),
            },
        }
    }

    /// Bounds of the records in JetStream.
    pub(crate) fn records(&self) -> RecordsConfig {
        RecordsConfig {
            replicas: self.replicas.unwrap_or(match self.servers.len() {
                3.. => 3,
                _ => 1,
            }),
            store_bytes: self.store_bytes,
            age_max: Duration::from_secs(self.records_age_max_s),
            ..RecordsConfig::default()
        }
    }

    /// Name and id of the process.
    ///
    /// # Errors
    /// The system has no random numbers, or the secret's file cannot be used.
    pub(crate) fn membership(&self) -> Result<MembershipConfig, String> {
        Ok(MembershipConfig {
            name: ClusterName::new(&self.name)?,
            id: match self.instance_id.as_str() {
                "" => InstanceId::random()?,
                id => id.parse()?,
            },
            heartbeat: Duration::from_millis(self.heartbeat_ms),
            secret: match (&self.secret_file, self.role) {
                (Some(path), Role::All | Role::Gateway) => Some(ClusterSecret::read(path)?),
                _ => None,
            },
        })
    }
}

/// All problems of the section beside bounds of numbers.
pub(super) fn problems(settings: &Settings) -> Vec<(&'static str, String)> {
    let cluster = &settings.cluster;
    let mut found = Vec::new();
    let mut check =
        |key, outcome: Result<(), String>| found.extend(outcome.err().map(|why| (key, why)));
    check("cluster.name", check_name(&cluster.name));
    let servers = cluster.servers.iter().map(|server| check_server(server));
    check("cluster.servers", servers.collect());
    check("cluster.servers", number_of_servers(cluster));
    let parsed = cluster.instance_id.parse::<InstanceId>().map(drop);
    check(
        "cluster.instance_id",
        parsed.or_else(|why| {
            if cluster.instance_id.is_empty() {
                Ok(())
            } else {
                Err(why)
            }
        }),
    );
    check("cluster.address", check_address(cluster.address.as_deref()));
    check(
        "cluster.password_file",
        both("cluster.user", &cluster.user, &cluster.password_file),
    );
    check(
        "cluster.tls_key",
        both("cluster.tls_cert", &cluster.tls_cert, &cluster.tls_key),
    );
    check("cluster.nkey_file", one_login(cluster));
    check("cluster.replicas", check_replicas(cluster.replicas));
    found
}

fn number_of_servers(cluster: &Cluster) -> Result<(), String> {
    match (cluster.role, cluster.servers.len()) {
        (Role::Gateway | Role::Engine, 0) => {
            let role = cluster::messages::Role::from(cluster.role).name();
            Err(format!(
                "not set; cluster.role is {role}, which needs a NATS server, such as nats://127.0.0.1:4222"
            ))
        }
        (_, count) if count > SERVERS_MAX => Err(format!("{count} servers; at most {SERVERS_MAX}")),
        _ => Ok(()),
    }
}

fn check_replicas(replicas: Option<usize>) -> Result<(), String> {
    match replicas {
        None | Some(1 | 3 | 5) => Ok(()),
        Some(count) => Err(format!("{count}; 1, 3 or 5")),
    }
}

fn check_address(address: Option<&str>) -> Result<(), String> {
    let Some(address) = address else {
        return Ok(());
    };
    let port = address
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty());
    let is_valid = port.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if is_valid && address.len() <= ADDRESS_BYTES_MAX {
        Ok(())
    } else {
        Err(format!(
            "{address:?} is not HOST:PORT of at most {ADDRESS_BYTES_MAX} bytes"
        ))
    }
}

fn both<A, B>(other: &str, first: &Option<A>, second: &Option<B>) -> Result<(), String> {
    match (first.is_some(), second.is_some()) {
        (true, false) => Err(format!("not set; {other} is")),
        (false, true) => Err(format!("set, but {other} is not")),
        _ => Ok(()),
    }
}

fn one_login(cluster: &Cluster) -> Result<(), String> {
    let ways = [
        cluster.nkey_file.is_some(),
        cluster.user.is_some(),
        cluster.token_file.is_some(),
    ];
    match ways.into_iter().filter(|is_set| *is_set).count() {
        0 | 1 => Ok(()),
        _ => Err(
            "only one of cluster.nkey_file, cluster.user and cluster.token_file can be set"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    //! Promise (Cluster): a role without NATS servers, and settings of a cluster that contradict each other, are
    //! errors that name the setting.

    use crate::config::layers::problem;
    use serde_json::json;

    #[test]
    fn role_without_servers_is_rejected() {
        for role in ["gateway", "engine"] {
            let why = problem(&[("cluster.role", json!(role))]).unwrap();
            assert!(
                why.contains("cluster.servers") && why.contains(role),
                "{why}"
            );
            let servers = ("cluster.servers", json!(["nats://127.0.0.1:4222"]));
            assert_eq!(problem(&[("cluster.role", json!(role)), servers]), None);
        }
        assert_eq!(problem(&[("cluster.role", json!("all"))]), None);
    }

    #[test]
    fn three_servers_store_three_replicas() {
        let of = |servers: usize, replicas| {
            let servers = vec!["nats://a".to_owned(); servers];
            let cluster = super::Cluster {
                servers,
                replicas,
                ..super::Cluster::default()
            };
            cluster.records().replicas
        };
        assert_eq!([of(1, None), of(2, None), of(3, None)], [1, 1, 3]);
        assert_eq!([of(1, Some(3)), of(3, Some(1))], [3, 1]);
    }

    #[test]
    fn contradictions_are_named() {
        let rows = [
            ("cluster.name", json!("Mine")),
            ("cluster.servers", json!(["http://a"])),
            ("cluster.servers", json!(vec!["nats://a"; 33])),
            ("cluster.instance_id", json!("7")),
            ("cluster.address", json!("host")),
            ("cluster.address", json!(":80")),
            ("cluster.password_file", json!("secret")),
            ("cluster.tls_key", json!("key.pem")),
            ("cluster.replicas", json!(2)),
            ("cluster.store_bytes", json!(0)),
            ("cluster.records_age_max_s", json!(1)),
        ];
        for (key, value) in rows {
            let why = problem(&[(key, value.clone())]).unwrap_or_default();
            assert!(why.contains(key), "{key}: {value}: {why}");
        }
        let why = problem(&[("cluster.user", json!("me"))]).unwrap();
        assert!(why.contains("cluster.password_file"), "{why}");
        let two = [
            ("cluster.nkey_file", json!("a")),
            ("cluster.token_file", json!("b")),
        ];
        assert!(problem(&two).unwrap().contains("only one"));
        for good in [json!("host:80"), json!("[::1]:8420")] {
            assert_eq!(problem(&[("cluster.address", good)]), None);
        }
    }
}
