//! Differences of another instance from this one.

use crate::messages::{ContentIdentity, Heartbeat, Role, ServedModel};
use crate::names::ClusterId;
use std::fmt;

/// A difference between two instances of one cluster, which keeps one from continuing the other's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The instance belongs to another cluster, which uses the name, too.
    Cluster {
        /// The other instance's.
        theirs: ClusterId,
        /// This instance's.
        ours: ClusterId,
    },
    /// Other API keys: a key file that was not changed everywhere, or two clusters under one name.
    Keys,
    /// Another version of stream records.
    RecordVersion {
        /// The other instance's.
        theirs: u32,
        /// This instance's.
        ours: u32,
    },
    /// A model of the same name with other content.
    Model {
        /// Name of the model.
        key: String,
        /// Name of the difference: `weights`, `tokenizer`, `template` or `arithmetic`.
        part: &'static str,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { theirs, ours } => {
                write!(f, "another cluster under the same name: {theirs}, here {ours}")
            }
            Self::Keys => f.write_str(
                "other API keys (a key file that is not the same everywhere, or two clusters under one name)",
            ),
            Self::RecordVersion { theirs, ours } => {
                write!(f, "stream records of version {theirs}, here {ours}")
            }
            Self::Model { key, part } => write!(f, "model {key:?} with other {part}"),
        }
    }
}

impl Difference {
    /// All kinds.
    pub const KINDS: [&str; 4] = ["cluster", "keys", "record_version", "model"];

    /// The kind, as in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cluster { .. } => "cluster",
            Self::Keys => "keys",
            Self::RecordVersion { .. } => "record_version",
            Self::Model { .. } => "model",
        }
    }
}

/// All differences. What one of the two does not report is none; a gateway without keys reports that.
pub(super) fn differences(ours: &Heartbeat, theirs: &Heartbeat) -> Vec<Difference> {
    let mut found = Vec::new();
    if let (Some(ours), Some(theirs)) = (ours.cluster_id, theirs.cluster_id)
        && ours != theirs
    {
        found.push(Difference::Cluster { theirs, ours });
    }
    let are_gateways = ours.role != Role::Engine && theirs.role != Role::Engine;
    let (our_keys, their_keys) = (&ours.keys_digest, &theirs.keys_digest);
    if differ(our_keys, their_keys) || are_gateways && our_keys != their_keys {
        found.push(Difference::Keys);
    }
    let (our_version, their_version) = (ours.record_version, theirs.record_version);
    if our_version != their_version && our_version != 0 && their_version != 0 {
        found.push(Difference::RecordVersion {
            theirs: their_version,
            ours: our_version,
        });
    }
    for model in &ours.models {
        let same_name = |other: &&ServedModel| other.key == model.key;
        let other = theirs.models.iter().find(same_name);
        found.extend(other.and_then(|other| model_difference(model, other)));
    }
    found
}

/// The first part that differs.
fn model_difference(ours: &ServedModel, theirs: &ServedModel) -> Option<Difference> {
    type Part = fn(&ContentIdentity) -> &str;
    const PARTS: [(&str, Part); 4] = [
        ("weights", |identity| &identity.weights),
        ("tokenizer", |identity| &identity.tokenizer),
        ("template", |identity| &identity.template),
        ("arithmetic", |identity| &identity.arithmetic),
    ];
    let differs = |part: Part| differ(part(&ours.identity), part(&theirs.identity));
    let (part, _) = PARTS.into_iter().find(|(_, part)| differs(*part))?;
    Some(Difference::Model {
        key: ours.key.clone(),
        part,
    })
}

fn differ(ours: &str, theirs: &str) -> bool {
    !ours.is_empty() && !theirs.is_empty() && ours != theirs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Role;
    use crate::names::InstanceId;

    fn heartbeat(keys: &str, records: u32, weights: &str, template: &str) -> Heartbeat {
        let identity = ContentIdentity {
            weights: weights.to_owned(),
            template: template.to_owned(),
            ..ContentIdentity::default()
        };
        let model = ServedModel {
            key: "m".to_owned(),
            identity,
            ..ServedModel::default()
        };
        Heartbeat {
            keys_digest: keys.to_owned(),
            record_version: records,
            models: vec![model],
            ..Heartbeat::new(InstanceId(1), Role::All)
        }
    }

    #[test]
    fn each_difference_is_named() {
        let ours = heartbeat("k", 1, "w", "t");
        let told = |theirs: &Heartbeat| {
            let found = differences(&ours, theirs);
            let lines: Vec<_> = found.iter().map(Difference::to_string).collect();
            lines.join("; ")
        };
        assert_eq!(told(&ours), "");
        let engine = Heartbeat {
            role: Role::Engine,
            ..heartbeat("", 0, "", "")
        };
        assert_eq!(told(&engine), "", "not reported");
        assert!(told(&heartbeat("", 1, "w", "t")).starts_with("other API keys"));
        assert!(told(&heartbeat("j", 1, "w", "t")).starts_with("other API keys"));
        assert_eq!(
            told(&heartbeat("k", 2, "w", "u")),
            "stream records of version 2, here 1; model \"m\" with other template"
        );
        assert_eq!(
            told(&heartbeat("k", 1, "x", "u")),
            "model \"m\" with other weights"
        );
        let named = |id| Heartbeat {
            cluster_id: Some(ClusterId(id)),
            ..heartbeat("k", 1, "w", "t")
        };
        assert_eq!(told(&named(7)), "", "this one does not know its own");
        let found = differences(&named(1), &named(7));
        let expected =
            "another cluster under the same name: 0000000000000007, here 0000000000000001";
        assert_eq!(
            (found.len(), found[0].to_string()),
            (1, expected.to_owned())
        );
        let mut other_name = heartbeat("k", 1, "x", "u");
        other_name.models[0].key = "n".to_owned();
        assert_eq!(told(&other_name), "");
    }
}
