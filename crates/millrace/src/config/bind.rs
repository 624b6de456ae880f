//! `server.bind`: an address, a port, or both.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The default address.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The default port.
pub(crate) const PORT: u16 = 8420;
/// The only host name that needs no resolver.
const LOCALHOST: &str = "localhost";

/// The default of `server.bind`.
pub(super) fn default() -> SocketAddr {
    SocketAddr::new(HOST, PORT)
}

/// Reads `HOST:PORT`, `HOST`, `PORT` or `:PORT`; the missing part is the default's.
///
/// # Errors
/// The text is neither an address nor a port.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(host) = host(text) {
        return Ok(SocketAddr::new(host, PORT));
    }
    let (before, port) = text.rsplit_once(':').unwrap_or(("", text));
    let host = match before {
        "" => Ok(HOST),
        before => host(before),
    };
    match (host, port.parse()) {
        (Ok(host), Ok(port)) => Ok(SocketAddr::new(host, port)),
        _ => Err(format!(
            "`{text}` is no address; say 127.0.0.1:{PORT}, an IP address, localhost, or a port"
        )),
    }
}

/// Reads an address without a port.
///
/// # Errors
/// The text is neither an IP address nor `localhost`.
pub(crate) fn host(text: &str) -> Result<IpAddr, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case(LOCALHOST) {
        return Ok(HOST);
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    bare.unwrap_or(text).parse().map_err(|_| {
        format!(
            "`{text}` is neither an IP address (0.0.0.0 for all of this machine's) nor localhost"
        )
    })
}

/// The address that a setting's value means.
pub(super) fn of_value(value: &Value) -> Result<SocketAddr, String> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(port) => parse(&port.to_string()),
        other => Err(format!("{other} is no address")),
    }
}

/// For the typed settings.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    of_value(&Value::deserialize(from)?).map_err(de::Error::custom)
}

/// For the schema: as close as patterns come.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            {
                "type": "string",
                "pattern": r"^(([0-9.]+|localhost|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?|:[0-9]{1,5}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*)$"
            },
            {"type": "integer", "minimum": 0, "maximum": u16::MAX}
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        let rows = [
            ("8605", "127.0.0.1:8605"),
            (":8605", "127.0.0.1:8605"),
            ("localhost:8605", "127.0.0.1:8605"),
            ("localhost", "127.0.0.1:8420"),
            ("0.0.0.0", "0.0.0.0:8420"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("10.1.2.3:0", "10.1.2.3:0"),
            ("::1", "[::1]:8420"),
            ("::", "[::]:8420"),
            ("[::1]", "[::1]:8420"),
            ("[::1]:8605", "[::1]:8605"),
            (" 8605 ", "127.0.0.1:8605"),
        ];
        for (text, want) in rows {
            assert_eq!(
                parse(text).map(|a| a.to_string()),
                Ok(want.to_owned()),
                "{text}"
            );
        }
        assert_eq!(of_value(&8605.into()).map(|a| a.port()), Ok(8605));
        for text in [
            "",
            ":",
            "somewhere",
            "somewhere:80",
            "65536",
            "127.0.0.1:",
            "-1",
            "1.2.3",
            "*:80",
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(&format!("`{text}`")), "{why}");
        }
        for text in ["127.0.0.1:80", "8605", "somewhere", ""] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
