//! Families about the cluster; all zero without one.

use crate::metrics::prometheus_text::PrometheusText;
use crate::peers::PeerCallCounts;
use ::cluster::instances::{Difference, InstanceState};
use ::cluster::nats::SubjectKind;
use ::cluster::node::ClusterNode;

pub(super) fn write_cluster(
    text: &mut PrometheusText,
    node: Option<&ClusterNode>,
    calls: PeerCallCounts,
) {
    write_nats(text, node);
    write_instances(text, node);
    write_relay(text, node);
    text.samples(
        "millrace_peer_requests_total",
        [(["answered"], calls.answered), (["failed"], calls.failed)],
    );
}

fn write_nats(text: &mut PrometheusText, node: Option<&ClusterNode>) {
    let connection = node.map(ClusterNode::connection);
    let is_connected = connection.is_some_and(|connection| connection.is_usable());
    text.value("millrace_nats_connected", is_connected);
    let nats = connection.map(|connection| connection.counts());
    let nats = nats.unwrap_or_default();
    text.value("millrace_nats_connects_total", nats.connects);
    text.samples(
        "millrace_nats_messages_total",
        [(["received"], nats.received), (["sent"], nats.sent)],
    );
    text.samples(
        "millrace_nats_errors_total",
        [
            (["server"], nats.errors),
            (["slow_consumer"], nats.slow_consumer),
        ],
    );
    let unreadable = connection.map(|connection| connection.unreadable());
    let rows = SubjectKind::ALL.map(|kind| {
        let count = unreadable.map_or(0, |unreadable| unreadable.count(kind));
        ([kind.name()], count)
    });
    text.samples("millrace_cluster_unreadable_total", rows);
}

fn write_instances(text: &mut PrometheusText, node: Option<&ClusterNode>) {
    let membership = node.map(ClusterNode::membership);
    let rows = InstanceState::ALL.map(|state| {
        let count = membership.map_or(0, |membership| membership.count_in(state));
        ([state.name()], count)
    });
    text.samples("millrace_cluster_instances", rows);
    let rows = Difference::KINDS.map(|kind| {
        let count = membership.map_or(0, |membership| membership.count_different(kind));
        ([kind], count)
    });
    text.samples("millrace_cluster_differences", rows);
    let counts = membership.map(|membership| membership.counts());
    let counts = counts.unwrap_or_default();
    let published = membership.map(|membership| membership.published());
    let published = published.unwrap_or_default();
    let dropped =
        counts.malformed + counts.newer + counts.foreign + counts.over_limit + counts.forged;
    text.samples(
        "millrace_cluster_heartbeats_total",
        [
            (["received"], counts.received),
            (["sent"], published.sent),
            (["skipped"], published.skipped),
            (["dropped"], dropped),
        ],
    );
    text.value("millrace_cluster_instances_lost_total", counts.lost);
}

fn write_relay(text: &mut PrometheusText, node: Option<&ClusterNode>) {
    let relay = node.map(ClusterNode::relay_counters).unwrap_or_default();
    for (name, value) in [
        ("millrace_relay_attempts_total", relay.attempts),
        ("millrace_relay_resubmitted_total", relay.resubmitted),
        ("millrace_relay_gap_reads_total", relay.gap_reads),
        ("millrace_relay_stale_total", relay.stale),
        ("millrace_relay_diverged_total", relay.diverged),
        ("millrace_relay_wrong_vectors_total", relay.wrong_vectors),
    ] {
        text.value(name, value);
    }
}
