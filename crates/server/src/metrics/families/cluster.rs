//! Families about the cluster; all zero without one.

use super::{Labels, PrometheusText};
use crate::peers::PeerCallCounts;
use ::cluster::instances::{Difference, InstanceState};
use ::cluster::nats::SubjectKind;
use ::cluster::node::ClusterNode;

pub(super) fn write_cluster(
    text: &mut PrometheusText,
    node: Option<&ClusterNode>,
    calls: PeerCallCounts,
) {
    let connection = node.map(ClusterNode::connection);
    text.gauge(
        "millrace_nats_connected",
        "Whether there is a usable connection to NATS: 1 or 0.",
        f64::from(u8::from(connection.is_some_and(|c| c.is_usable()))),
    );
    let nats = connection.map(|c| c.counts());
    let nats = nats.unwrap_or_default();
    text.counter(
        "millrace_nats_connects_total",
        "Connections to NATS that were made.",
        nats.connects,
    );
    text.counters(
        "millrace_nats_messages_total",
        "Messages on the connection to NATS.",
        [
            (&[("direction", "received")] as Labels<'_>, nats.received),
            (&[("direction", "sent")], nats.sent),
        ],
    );
    text.counters(
        "millrace_nats_errors_total",
        "Errors that NATS servers sent (such as denied subjects), and times that messages were not taken in time.",
        [
            (&[("kind", "server")] as Labels<'_>, nats.errors),
            (&[("kind", "slow_consumer")], nats.slow_consumer),
        ],
    );
    write_unreadable(text, node);
    write_instances(text, node);
    write_relay(text, node);
    text.counters(
        "millrace_peer_requests_total",
        "Requests to other instances over HTTP, for lists, look-ups and metrics of the whole cluster.",
        [
            (&[("outcome", "answered")] as Labels<'_>, calls.answered),
            (&[("outcome", "failed")], calls.failed),
        ],
    );
}

fn write_unreadable(text: &mut PrometheusText, node: Option<&ClusterNode>) {
    let unreadable = node.map(|node| node.connection().unreadable());
    let rows = SubjectKind::ALL.map(|kind| {
        let count = unreadable.map_or(0, |unreadable| unreadable.count(kind));
        ([("subject", kind.name())], count)
    });
    text.counters(
        "millrace_cluster_unreadable_total",
        "Messages of others that cannot be read and were dropped, by kind of subject.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
}

fn write_instances(text: &mut PrometheusText, node: Option<&ClusterNode>) {
    let membership = node.map(ClusterNode::membership);
    let rows = InstanceState::ALL.map(|state| {
        let count = membership.map_or(0, |membership| membership.count_in(state));
        ([("state", state.name())], count as f64)
    });
    text.gauges(
        "millrace_cluster_instances",
        "Other instances of the cluster, by state.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    let rows = Difference::KINDS.map(|kind| {
        let count = membership.map_or(0, |membership| membership.count_different(kind));
        ([("kind", kind)], count as f64)
    });
    text.gauges(
        "millrace_cluster_differences",
        "Other instances that differ from this one: another cluster under the same name, other API keys, records of another \
         version, a model of the same name with other content.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    let counts = membership.map(|m| m.counts());
    let counts = counts.unwrap_or_default();
    let published = membership.map(|membership| membership.published());
    let published = published.unwrap_or_default();
    text.counters(
        "millrace_cluster_heartbeats_total",
        "Heartbeats: of other instances, own ones, own ones that were not sent, and messages that were not used.",
        [
            (&[("outcome", "received")] as Labels<'_>, counts.received),
            (&[("outcome", "sent")], published.sent),
            (&[("outcome", "skipped")], published.skipped),
            (
                &[("outcome", "dropped")],
                counts.malformed
                    + counts.newer
                    + counts.foreign
                    + counts.over_limit
                    + counts.forged,
            ),
        ],
    );
    text.counter(
        "millrace_cluster_instances_lost_total",
        "Instances that were gone without having left.",
        counts.lost,
    );
}

fn write_relay(text: &mut PrometheusText, node: Option<&ClusterNode>) {
    let relay = node.map(ClusterNode::relay_counters).unwrap_or_default();
    text.counter(
        "millrace_relay_attempts_total",
        "Requests sent to engines of other processes, repeated ones included.",
        relay.attempts,
    );
    text.counter(
        "millrace_relay_resubmitted_total",
        "Requests taken back from an engine that died, left or lost them.",
        relay.resubmitted,
    );
    text.counter(
        "millrace_relay_gap_reads_total",
        "Reads of tokens whose messages did not arrive.",
        relay.gap_reads,
    );
    text.counter(
        "millrace_relay_stale_total",
        "Messages of earlier attempts, which were ignored.",
        relay.stale,
    );
    text.counter(
        "millrace_relay_diverged_total",
        "Requests that ended because an engine sent other tokens than the engine before.",
        relay.diverged,
    );
    text.counter(
        "millrace_relay_wrong_vectors_total",
        "Vectors of embeddings that cannot be right, which were dropped.",
        relay.wrong_vectors,
    );
}
