//! Differences of another instance from this one, what an operator has to look after although this instance works, and
//! how many lines of the log changes of instances get, whose ids come from the network.

use super::registry::{InstanceState, LiveInstance, Registry};
use crate::messages::{ContentIdentity, Heartbeat, Role, ServedModel};
use crate::names::ClusterId;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Lines that are told; the last one says how many are left out.
const WARNINGS_MAX: usize = 16;
/// Instances of a cluster that are named.
const NAMED_MAX: usize = 4;

/// An instance in words.
pub(super) fn describe(heartbeat: &Heartbeat) -> String {
    let address = heartbeat.http.as_deref().unwrap_or("no address");
    format!("{} ({}, {address})", heartbeat.id, heartbeat.role.name())
}

/// The differences of an instance in words; empty without any.
pub(super) fn differences_of(instance: &LiveInstance) -> String {
    let lines: Vec<_> = instance
        .differences
        .iter()
        .map(ToString::to_string)
        .collect();
    lines.join("; ")
}

/// All that is wrong with the instances that are not gone, a line each.
pub(super) fn warnings(registry: &Registry) -> Vec<String> {
    let mut lines: Vec<_> = rival_clusters(registry).into_iter().collect();
    let different = present(registry).filter(|instance| !instance.differences.is_empty());
    lines.extend(different.map(|instance| {
        let name = describe(&instance.heartbeat);
        format!("instance {name} differs: {}", differences_of(instance))
    }));
    if lines.len() > WARNINGS_MAX {
        let left_out = lines.len() - (WARNINGS_MAX - 1);
        lines.truncate(WARNINGS_MAX - 1);
        lines.push(format!("{left_out} more"));
    }
    lines
}

/// The clusters that use one name, with the instances of each; `None`: there is one, or none has said which.
pub(super) fn rival_clusters(registry: &Registry) -> Option<String> {
    let own = registry.own();
    let mut clusters = BTreeMap::<ClusterId, Vec<&Heartbeat>>::new();
    let others = present(registry).map(|instance| &*instance.heartbeat);
    for heartbeat in std::iter::once(&**own).chain(others) {
        if let Some(id) = heartbeat.cluster_id {
            clusters.entry(id).or_default().push(heartbeat);
        }
    }
    if clusters.len() < 2 {
        return None;
    }
    let of = |(id, members): (&ClusterId, &Vec<&Heartbeat>)| {
        let named = members
            .iter()
            .take(NAMED_MAX)
            .map(|member| describe(member));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = members.len().saturating_sub(NAMED_MAX);
        let more = (more > 0).then(|| format!(" and {more} more"));
        format!("{id}: {named}{}", more.unwrap_or_default())
    };
    let clusters: Vec<_> = clusters.iter().map(of).collect();
    Some(format!(
        "{} clusters use the name {:?} (cluster.name) at one NATS; {}",
        clusters.len(),
        own.cluster,
        clusters.join("; ")
    ))
}

fn present(registry: &Registry) -> impl Iterator<Item = &LiveInstance> {
    let is_present = |instance: &&LiveInstance| instance.state != InstanceState::Gone;
    registry.instances().filter(is_present)
}

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

/// Lines in one period. A cluster of a hundred instances may start at once.
const LINES_MAX: u32 = 200;
/// The period.
const PERIOD: Duration = Duration::from_secs(60);

/// The lines of the current period.
#[derive(Debug, Default)]
pub(super) struct LogBudget {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// Whether a change is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogTurn {
    Line,
    /// The first line of a period, after so many changes that were not logged.
    LineAfter(u64),
    /// Not logged; the first of these is.
    LeftOut {
        is_first: bool,
    },
}

impl LogBudget {
    pub(super) fn take(&mut self, now: Instant) -> LogTurn {
        let is_over = |began| now.saturating_duration_since(began) >= PERIOD;
        if self.began.is_none_or(is_over) {
            (self.began, self.lines) = (Some(now), 1);
            return match std::mem::take(&mut self.left_out) {
                0 => LogTurn::Line,
                left_out => LogTurn::LineAfter(left_out),
            };
        }
        if self.lines < LINES_MAX {
            self.lines += 1;
            return LogTurn::Line;
        }
        self.left_out += 1;
        LogTurn::LeftOut {
            is_first: self.left_out == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::Seal;
    use crate::messages::Role;
    use crate::names::InstanceId;
    use std::sync::Arc;
    use std::time::Duration;

    fn heartbeat(id: u64, role: Role, cluster: Option<u64>) -> Heartbeat {
        Heartbeat {
            cluster: "c".to_owned(),
            cluster_id: cluster.map(ClusterId),
            ..Heartbeat::new(InstanceId(id), role)
        }
    }

    fn registry(own: Heartbeat, others: &[Heartbeat]) -> Registry {
        let now = tokio::time::Instant::now().into_std();
        let mut registry = Registry::new(Arc::new(own), Duration::from_millis(250), now);
        for other in others {
            registry.receive(&other.encode().unwrap(), Seal::NotChecked, now);
        }
        registry
    }

    #[test]
    fn engine_names_both_clusters() {
        let gateway = |id, cluster| heartbeat(id, Role::Gateway, cluster);
        let engine = || heartbeat(0, Role::Engine, None);
        let one = registry(engine(), &[gateway(1, Some(7)), gateway(2, None)]);
        assert_eq!(warnings(&one), Vec::<String>::new());
        let two = registry(engine(), &[gateway(1, Some(7)), gateway(2, Some(8))]);
        let told = warnings(&two);
        let expected = "2 clusters use the name \"c\" (cluster.name) at one NATS; \
             0000000000000007: 0000000000000001 (gateway, no address); \
             0000000000000008: 0000000000000002 (gateway, no address)";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn warnings_are_bounded() {
        let own = heartbeat(0, Role::Gateway, Some(1));
        let others: Vec<_> = (1..100)
            .map(|id| heartbeat(id, Role::Gateway, Some(2)))
            .collect();
        let told = warnings(&registry(own, &others));
        assert_eq!(told.len(), WARNINGS_MAX);
        assert!(told[0].ends_with("and 95 more"), "{}", told[0]);
        assert_eq!(told[WARNINGS_MAX - 1], "85 more");
    }

    #[test]
    fn changes_above_the_bound_are_counted_and_told_later() {
        let start = tokio::time::Instant::now().into_std();
        let mut budget = LogBudget::default();
        for _ in 0..LINES_MAX {
            assert_eq!(budget.take(start), LogTurn::Line);
        }
        assert_eq!(budget.take(start), LogTurn::LeftOut { is_first: true });
        for _ in 0..899 {
            assert_eq!(budget.take(start), LogTurn::LeftOut { is_first: false });
        }
        assert_eq!(budget.take(start + PERIOD), LogTurn::LineAfter(900));
        assert_eq!(budget.take(start + PERIOD), LogTurn::Line);
    }
}

#[cfg(test)]
mod difference_tests {
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
