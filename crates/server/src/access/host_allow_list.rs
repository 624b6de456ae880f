//! The host allow-list, against DNS rebinding.
//!
//! A web page can point a domain at 127.0.0.1 and let the browser send requests to this server as if the server
//! belonged to the page. Such a request carries the page's host name, which is not in the list.

use std::net::{IpAddr, SocketAddr};

/// Accepts every host name.
const ANY: &str = "*";
/// Names of the host machine inside containers. The top-level domain `internal` is reserved, so no web page can have
/// such a name.
const CONTAINER_HOSTS: [&str; 3] = [
    "gateway.docker.internal",
    "host.containers.internal",
    "host.docker.internal",
];

/// Host names that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostAllowList {
    /// Every name.
    Any,
    /// The names of this machine, the listening address, and these names (lower case).
    Listed(Vec<String>, IpAddr),
}

impl HostAllowList {
    /// The accepted names of a server that listens on `bind`. If `names` is empty, a server on loopback accepts the
    /// names of this machine, and any other server accepts all names.
    pub(crate) fn new(bind: SocketAddr, names: &[String]) -> Self {
        let open = names.is_empty() && !bind.ip().is_loopback();
        if open || names.iter().any(|name| name == ANY) {
            return Self::Any;
        }
        let names = names
            .iter()
            .map(|name| strip_port(name).to_ascii_lowercase());
        Self::Listed(names.collect(), bind.ip())
    }

    /// Whether the name in a `Host` field (or in the authority of a request target) is accepted. The port is ignored:
    /// a page can forge only the name.
    pub(crate) fn allows_host(&self, authority: &str) -> bool {
        let Self::Listed(names, bound) = self else {
            return true;
        };
        let name = strip_port(authority).to_ascii_lowercase();
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = literal.parse::<IpAddr>() {
            return ip.to_canonical().is_loopback() || ip == *bound || names.contains(&name);
        }
        let is_this_machine = name == "localhost"
            || name.ends_with(".localhost")
            || CONTAINER_HOSTS.contains(&name.as_str());
        is_this_machine || names.contains(&name)
    }
}

/// The authority without the port and without the dot of the DNS root.
fn strip_port(authority: &str) -> &str {
    let port = authority
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = port.map_or(authority, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::HostAllowList;

    /// Listening address, configured names, a requested name, and whether the name is accepted.
    const ROWS: &[(&str, &[&str], &str, bool)] = &[
        ("127.0.0.1:80", &[], "localhost", true),
        ("127.0.0.1:80", &[], "LocalHost:8420", true),
        ("127.0.0.1:80", &[], "localhost.:80", true),
        ("127.0.0.1:80", &[], "chat.localhost", true),
        ("127.0.0.1:80", &[], "127.0.0.1:9", true),
        ("127.0.0.1:80", &[], "127.8.8.8", true),
        ("127.0.0.1:80", &[], "[::1]:80", true),
        ("[::1]:80", &[], "[::1]", true),
        ("[::1]:80", &[], "[::ffff:127.0.0.1]:80", true),
        ("127.0.0.1:80", &[], "Host.Docker.internal:8420", true),
        ("127.0.0.1:80", &[], "host.containers.internal", true),
        ("127.0.0.1:80", &[], "other.docker.internal", false),
        (
            "127.0.0.1:80",
            &[],
            "host.docker.internal.evil.example",
            false,
        ),
        ("127.0.0.1:80", &[], "evil.example", false),
        ("127.0.0.1:80", &[], "localhost.evil.example", false),
        ("127.0.0.1:80", &[], "evillocalhost", false),
        ("127.0.0.1:80", &[], "127.0.0.1.evil.example", false),
        ("127.0.0.1:80", &[], "evil.example:127", false),
        ("127.0.0.1:80", &[], "10.0.0.1", false),
        ("127.0.0.1:80", &[], "0.0.0.0", false),
        ("127.0.0.1:80", &[], "", false),
        ("127.0.0.1:80", &[], ":80", false),
        ("127.0.0.1:80", &["Gpu.Lan"], "gpu.lan:443", true),
        ("127.0.0.1:80", &["gpu.lan"], "localhost", true),
        ("127.0.0.1:80", &["gpu.lan"], "cpu.lan", false),
        ("127.0.0.1:80", &["*"], "evil.example", true),
        ("0.0.0.0:80", &[], "anything.example", true),
        ("10.0.0.5:80", &["gpu.lan"], "10.0.0.5:80", true),
        ("10.0.0.5:80", &["gpu.lan"], "10.0.0.6:80", false),
        ("10.0.0.5:80", &["10.0.0.6"], "10.0.0.6:80", true),
        ("10.0.0.5:80", &["gpu.lan"], "evil.example", false),
    ];

    #[test]
    fn only_listed_host_names_are_accepted() {
        for &(bind, names, called, ours) in ROWS {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let hosts = HostAllowList::new(bind.parse().unwrap(), &names);
            assert_eq!(
                hosts.allows_host(called),
                ours,
                "{bind} {names:?} {called:?}"
            );
        }
    }
}
