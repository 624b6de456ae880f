//! Names of clusters, instances and NATS subjects.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a cluster's name.
pub const CLUSTER_NAME_MAX: usize = 32;

/// A name of a cluster that can be part of a subject: 1 to 32 of `a`-`z`, `0`-`9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterName(String);

impl ClusterName {
    /// Checks a name.
    ///
    /// # Errors
    /// The name is empty, longer than [`CLUSTER_NAME_MAX`], or has other characters.
    pub fn new(name: &str) -> Result<Self, String> {
        let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > CLUSTER_NAME_MAX || !name.bytes().all(is_valid) {
            return Err(format!(
                "a cluster's name has 1 to {CLUSTER_NAME_MAX} of a-z, 0-9 and -, not {name:?}"
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a process in a cluster, drawn when the process starts; 16 hexadecimal digits in text.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct InstanceId(#[serde(with = "hex")] pub u64);

impl InstanceId {
    /// A new id, from the system's random numbers.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, String> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|why| format!("no random numbers from the system: {why}"))?;
        Ok(Self(u64::from_le_bytes(bytes)))
    }

    /// The number with which ids of this instance's streams and answers begin. Two instances can have the same: it says whom
    /// to ask first, never who the owner is.
    pub fn number(self) -> u16 {
        let [a, b, c, d] = [0, 16, 32, 48].map(|shift| (self.0 >> shift) as u16);
        a ^ b ^ c ^ d
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for InstanceId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = parse_hex(text).ok_or("an instance id has 16 hexadecimal digits")?;
        Ok(Self(id))
    }
}

/// The id of a cluster, drawn once by its first gateway: tells two clusters apart that use one name by mistake. 16
/// hexadecimal digits in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterId(#[serde(with = "hex")] pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for ClusterId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = parse_hex(text).ok_or("a cluster's id has 16 hexadecimal digits")?;
        Ok(Self(id))
    }
}

/// A number of 16 lower-case hexadecimal digits.
fn parse_hex(text: &str) -> Option<u64> {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let is_id = text.len() == 16 && text.bytes().all(is_hex);
    u64::from_str_radix(text, 16).ok().filter(|_| is_id)
}

/// Numbers of 16 hexadecimal digits in messages.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde calls"
    )]
    pub(super) fn serialize<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{id:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_hex(&text).ok_or_else(|| D::Error::custom("no 16 hexadecimal digits"))
    }
}

/// The subjects of one cluster.
#[derive(Clone, Debug)]
pub struct Subjects {
    prefix: String,
}

impl Subjects {
    /// The subjects of the cluster of this name.
    pub fn new(cluster: &ClusterName) -> Self {
        Self {
            prefix: format!("mr.{}", cluster.as_str()),
        }
    }

    /// Heartbeats of all instances.
    pub fn heartbeat(&self) -> String {
        format!("{}.hb", self.prefix)
    }

    /// Requests for an engine: each is answered.
    pub fn run(&self, engine: InstanceId) -> String {
        format!("{}.e.{engine}.run", self.prefix)
    }

    /// Control and credit for the requests of an engine.
    pub fn control(&self, engine: InstanceId) -> String {
        format!("{}.e.{engine}.ctl", self.prefix)
    }

    /// Requests for tokens that did not arrive.
    pub fn read(&self, engine: InstanceId) -> String {
        format!("{}.e.{engine}.read", self.prefix)
    }

    /// Files that requests of an engine name: each message is answered.
    pub fn files(&self, engine: InstanceId) -> String {
        format!("{}.e.{engine}.file", self.prefix)
    }

    /// Tokens for a gateway.
    pub fn tokens(&self, gateway: InstanceId) -> String {
        format!("{}.g.{gateway}.t", self.prefix)
    }

    /// Records of a stream, in JetStream.
    pub fn records(&self, stream: u128) -> String {
        format!("{}.s.{stream:032x}", self.prefix)
    }

    /// A part of a file that the records of a stream name, in JetStream.
    pub fn file_part(&self, stream: u128, digest: &[u8; 32], part: usize) -> String {
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}.b.{stream:032x}.{digest}.{part}", self.prefix)
    }

    /// The files of a stream.
    pub fn stream_files(&self, stream: u128) -> String {
        format!("{}.b.{stream:032x}.>", self.prefix)
    }

    /// The files of all streams.
    pub fn all_files(&self) -> String {
        format!("{}.b.>", self.prefix)
    }

    /// The id of the cluster, beside the records of streams.
    pub fn cluster_id(&self) -> String {
        format!("{}.s.cluster", self.prefix)
    }

    /// Records of all streams, and the id of the cluster.
    pub fn all_records(&self) -> String {
        format!("{}.s.*", self.prefix)
    }

    /// Records of the name of a key's job, in JetStream.
    pub fn job_name(&self, key: u64, name: &str) -> String {
        let name: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("{}.n.{key:016x}-{name}", self.prefix)
    }

    /// Records of all names.
    pub fn all_job_names(&self) -> String {
        format!("{}.n.*", self.prefix)
    }

    /// The stream of a subject of [`records`](Self::records).
    pub fn stream_of_records(&self, subject: &str) -> Option<u128> {
        let id = subject.strip_prefix(&self.prefix)?.strip_prefix(".s.")?;
        u128::from_str_radix(id, 16).ok()
    }

    /// Notices that a stream has another owner.
    pub fn claimed(&self) -> String {
        format!("{}.claimed", self.prefix)
    }

    /// Name of the JetStream stream with the records of all streams.
    pub fn records_stream(&self) -> String {
        format!("{}_records", self.prefix.replace('.', "_"))
    }

    /// Requests for the owner of a stream; only the owner answers.
    pub fn find(&self) -> String {
        format!("{}.find", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_are_parts_of_subjects() {
        for good in ["a", "eu-west-1", &"x".repeat(CLUSTER_NAME_MAX)] {
            assert_eq!(ClusterName::new(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(CLUSTER_NAME_MAX + 1);
        for bad in ["", "A", "a.b", "a b", "a*", ">", "ä", &long] {
            let why = ClusterName::new(bad).unwrap_err();
            assert!(why.contains("1 to 32"), "{why}");
        }
    }

    #[test]
    fn instance_ids_have_16_hexadecimal_digits() {
        for id in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let text = InstanceId(id).to_string();
            assert_eq!(text.len(), 16);
            assert_eq!(text.parse(), Ok(InstanceId(id)));
        }
        for bad in [
            "",
            "1",
            "0123456789ABCDEF",
            "+123456789abcdef",
            "0123456789abcdefg",
        ] {
            assert!(bad.parse::<InstanceId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn subjects_of_two_clusters_differ() {
        let of = |name| Subjects::new(&ClusterName::new(name).unwrap());
        let (a, b) = (of("a"), of("b"));
        let id = InstanceId(7);
        assert_eq!(a.run(id), "mr.a.e.0000000000000007.run");
        assert_eq!(a.records(7), format!("mr.a.s.{:032x}", 7));
        assert_eq!(a.records_stream(), "mr_a_records");
        assert_eq!(a.stream_of_records(&a.records(7)), Some(7));
        assert_eq!(a.stream_of_records(&a.cluster_id()), None);
        let part = format!("mr.a.b.{:032x}.{}.3", 7, "01".repeat(32));
        assert_eq!(a.file_part(7, &[1; 32], 3), part);
        assert_eq!(a.job_name(7, "j.1"), "mr.a.n.0000000000000007-6a2e31");
        for subject in [
            Subjects::heartbeat,
            Subjects::find,
            Subjects::all_records,
            Subjects::all_job_names,
            Subjects::all_files,
            Subjects::claimed,
            Subjects::records_stream,
            Subjects::cluster_id,
        ] {
            assert_ne!(subject(&a), subject(&b));
        }
        for subject in [
            Subjects::run,
            Subjects::control,
            Subjects::read,
            Subjects::files,
            Subjects::tokens,
        ] {
            assert_ne!(subject(&a, id), subject(&b, id));
        }
    }
}
