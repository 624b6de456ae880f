//! What an operator has to look after, although this instance works.

use super::registry::{InstanceState, LiveInstance, Registry};
use crate::messages::Heartbeat;
use crate::names::ClusterId;
use std::collections::BTreeMap;

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
}
