//! The registry over a simulated network with seeds.

use super::Seal;
use super::registry::{Change, INSTANCES_MAX, InstanceState, Registry};
use crate::messages::{Heartbeat, Role};
use crate::names::InstanceId;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(250);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Beyond the time after a new connection in which silence does not count.
const SETTLED: Duration = Duration::from_secs(3);

fn heartbeat(id: u64) -> Heartbeat {
    Heartbeat {
        cluster: "c".to_owned(),
        ..Heartbeat::new(InstanceId(id), Role::Engine)
    }
}

/// A registry and a clock.
struct Rig {
    registry: Registry,
    now: Instant,
    is_connected: bool,
}

impl Rig {
    fn new() -> Self {
        let now = tokio::time::Instant::now().into_std();
        let mut rig = Self {
            registry: Registry::new(Arc::new(heartbeat(0)), BEAT, now),
            now,
            is_connected: true,
        };
        rig.pass(SETTLED, &[]);
        rig
    }

    fn hear(&mut self, heartbeat: &Heartbeat) -> Vec<Change> {
        self.registry
            .receive(&heartbeat.encode().unwrap(), Seal::NotChecked, self.now)
    }

    /// Time passes while these instances send heartbeats; all changes.
    fn pass(&mut self, time: Duration, alive: &[u64]) -> Vec<Change> {
        let mut changes = Vec::new();
        let looks = time.as_millis() / LOOK.as_millis();
        for look in 0..looks {
            self.now += LOOK;
            if self.is_connected && look % 5 == 0 {
                for &id in alive {
                    changes.extend(self.hear(&heartbeat(id)));
                }
            }
            changes.extend(self.registry.look(self.is_connected, self.now));
        }
        changes
    }

    fn state(&self, id: u64) -> Option<InstanceState> {
        self.registry
            .get(InstanceId(id))
            .map(|instance| instance.state)
    }
}

#[test]
fn silent_instance_is_suspected_gone_and_forgotten() {
    let (mut rig, id) = (Rig::new(), InstanceId(1));
    assert_eq!(rig.hear(&heartbeat(1)), [Change::Joined(id)]);
    assert_eq!(rig.hear(&heartbeat(1)), []);
    assert_eq!(rig.pass(BEAT * 3 - LOOK, &[]), []);
    assert_eq!(rig.pass(LOOK, &[]), [Change::Suspected(id)]);
    assert_eq!(rig.hear(&heartbeat(1)), [Change::Recovered(id)]);
    assert_eq!(rig.state(1), Some(InstanceState::Alive));
    let changes = rig.pass(BEAT * 12, &[]);
    assert_eq!(changes, [Change::Suspected(id), Change::Gone(id)]);
    assert_eq!(rig.registry.counts().lost, 1);
    assert_eq!(
        rig.hear(&heartbeat(1)),
        [Change::Joined(id)],
        "it came back"
    );
    let changes = rig.pass(BEAT * 240, &[]);
    assert_eq!(changes.last(), Some(&Change::Forgotten(id)));
    assert_eq!(rig.state(1), None);
}

#[test]
fn refusing_instance_is_gone_when_suspected() {
    let (mut rig, id) = (Rig::new(), InstanceId(1));
    assert_eq!(rig.registry.refuse(id), None, "unknown");
    rig.hear(&heartbeat(1));
    assert_eq!(rig.registry.refuse(id), None, "heard a moment ago");
    rig.pass(BEAT * 3, &[]);
    assert_eq!(rig.registry.refuse(id), Some(Change::Gone(id)));
    assert_eq!(rig.registry.refuse(id), None);
    assert_eq!(rig.registry.counts().lost, 1);
    assert_eq!(rig.pass(BEAT * 12, &[]), [], "gone is said once");
    assert_eq!(rig.hear(&heartbeat(1)), [Change::Joined(id)]);
}

#[test]
fn leaving_instance_is_not_lost() {
    let (mut rig, id) = (Rig::new(), InstanceId(1));
    rig.hear(&heartbeat(1));
    let leaving = Heartbeat {
        leaving: true,
        ..heartbeat(1)
    };
    assert_eq!(rig.hear(&leaving), [Change::Leaving(id)]);
    assert_eq!(rig.pass(BEAT * 3, &[]), [Change::Gone(id)]);
    assert_eq!(rig.registry.counts().lost, 0);
}

#[test]
fn outage_of_nats_loses_no_instance() {
    let mut rig = Rig::new();
    rig.pass(BEAT * 4, &[1, 2]);
    rig.is_connected = false;
    assert_eq!(rig.pass(Duration::from_secs(30), &[]), []);
    rig.is_connected = true;
    // The others need up to two seconds to connect again.
    assert_eq!(rig.pass(Duration::from_secs(2), &[]), []);
    assert_eq!(rig.pass(Duration::from_secs(2), &[1]).len(), 1);
    assert_eq!(rig.state(1), Some(InstanceState::Alive));
    assert_eq!(rig.state(2), Some(InstanceState::Suspected));
    // This process was stopped.
    rig.now += Duration::from_secs(600);
    assert_eq!(rig.pass(LOOK, &[1]), []);
    assert_eq!(rig.state(1), Some(InstanceState::Alive));
}

#[test]
fn foreign_messages_are_counted_and_dropped() {
    let mut rig = Rig::new();
    let newer = br#"{"v": 9}"#;
    let foreign = Heartbeat {
        cluster: "d".to_owned(),
        ..heartbeat(1)
    };
    assert_eq!(rig.hear(&foreign), []);
    assert_eq!(rig.hear(&heartbeat(0)), [], "this instance's own");
    for message in [&newer[..], b"", b"hello", &[0xff; 300]] {
        assert_eq!(rig.registry.receive(message, Seal::NotChecked, rig.now), []);
    }
    let counts = rig.registry.counts();
    assert_eq!((counts.foreign, counts.newer, counts.malformed), (1, 1, 3));
    assert_eq!((counts.received, rig.registry.instances().count()), (0, 0));
}

#[test]
fn sealed_heartbeat_is_believed_while_it_is_new() {
    let mut rig = Rig::new();
    let gateway = |id, number, at_unix_ms| Heartbeat {
        number,
        at_unix_ms,
        role: Role::Gateway,
        ..heartbeat(id)
    };
    let mut receive = |heartbeat: &Heartbeat, seal| {
        let message = heartbeat.encode().unwrap();
        rig.registry.receive(&message, seal, rig.now);
        let known = rig.registry.get(heartbeat.id).unwrap();
        (known.is_sealed, rig.registry.counts().forged)
    };
    // An invented heartbeat does not keep the gateway itself out.
    assert_eq!(receive(&gateway(1, 90, 0), Seal::Missing), (false, 0));
    assert_eq!(receive(&gateway(1, 5, 0), Seal::Valid), (true, 0));
    assert_eq!(receive(&gateway(1, 5, 0), Seal::Valid), (true, 1), "again");
    assert_eq!(receive(&gateway(1, 9, 0), Seal::Missing), (true, 2));
    assert_eq!(receive(&gateway(1, 6, 30_000), Seal::Valid), (true, 2));
    assert_eq!(receive(&gateway(1, 7, 30_001), Seal::Valid), (true, 3));
    // Of a gateway that ended long ago, or whose clock is wrong: it lives, and is not asked.
    assert_eq!(receive(&gateway(2, 1, 30_001), Seal::Valid), (false, 3));
    assert_eq!(receive(&gateway(3, 1, 0), Seal::NotChecked), (false, 3));
}

/// Promise (Limits of keys over gateways): N counts gateways that may take requests, with a secret only those that
/// have it, and stays while NATS is away.
#[test]
fn gateways_are_counted_while_they_may_take_requests() {
    let mut rig = Rig::new();
    let gateway = |id| Heartbeat {
        role: Role::Gateway,
        ..heartbeat(id)
    };
    let sealed = gateway(1).encode().unwrap();
    let counts = |rig: &Rig| [false, true].map(|seal| rig.registry.count_gateways(seal));
    assert_eq!(counts(&rig), [1, 1]);
    rig.hear(&heartbeat(9));
    assert_eq!(counts(&rig), [1, 1], "an engine");
    rig.registry.receive(&sealed, Seal::Valid, rig.now);
    rig.hear(&gateway(2));
    assert_eq!(counts(&rig), [3, 2], "one is not sealed");
    rig.is_connected = false;
    rig.pass(Duration::from_secs(60), &[]);
    assert_eq!(counts(&rig), [3, 2], "NATS is away");
    rig.is_connected = true;
    rig.pass(SETTLED + BEAT * 4, &[]);
    assert_eq!(rig.state(1), Some(InstanceState::Suspected));
    assert_eq!(counts(&rig), [3, 2], "silent");
    rig.hear(&Heartbeat {
        leaving: true,
        ..gateway(2)
    });
    assert_eq!(counts(&rig), [2, 2], "one shuts down");
    rig.pass(BEAT * 12, &[]);
    assert_eq!(counts(&rig), [1, 1], "gone");
}

#[test]
fn invented_instances_keep_no_gateway_out() {
    let mut rig = Rig::new();
    for id in 1..=INSTANCES_MAX as u64 {
        rig.hear(&heartbeat(id));
    }
    let (own, other) = (u64::MAX, u64::MAX - 1);
    let message = heartbeat(own).encode().unwrap();
    assert_eq!(
        rig.registry.receive(&message, Seal::Valid, rig.now).len(),
        1
    );
    assert_eq!(rig.hear(&heartbeat(other)), [], "not sealed");
    assert_eq!(rig.registry.instances().count(), INSTANCES_MAX);
}

#[test]
fn instances_are_bounded() {
    let mut rig = Rig::new();
    let max = INSTANCES_MAX as u64;
    for id in 1..=max {
        assert_eq!(rig.hear(&heartbeat(id)).len(), 1);
    }
    assert_eq!(rig.hear(&heartbeat(max + 1)), []);
    assert_eq!(rig.registry.counts().over_limit, 1);
    rig.pass(BEAT * 12, &[]);
    assert_eq!(rig.hear(&heartbeat(max + 1)).len(), 1, "one was gone");
    assert_eq!(rig.registry.instances().count(), INSTANCES_MAX);
}

#[test]
fn difference_is_told_when_it_changes() {
    let mut rig = Rig::new();
    let own = Heartbeat {
        keys_digest: "a".to_owned(),
        ..heartbeat(0)
    };
    rig.registry.set_own(Arc::new(own));
    let other = |keys: &str| Heartbeat {
        keys_digest: keys.to_owned(),
        ..heartbeat(1)
    };
    let id = InstanceId(1);
    let joined = [Change::Joined(id), Change::Differs(id)];
    assert_eq!(rig.hear(&other("b")), joined);
    assert_eq!(rig.hear(&other("b")), []);
    assert_eq!(rig.hear(&other("a")), [Change::Differs(id)]);
    assert!(rig.registry.get(id).unwrap().differences.is_empty());
}

proptest! {
    /// Lost, repeated, delayed and reordered heartbeats: an instance of which one heartbeat arrives in each 500 ms stays alive,
    /// and one that has stopped is gone in the end.
    #[test]
    fn bad_network_loses_no_live_instance(
        arrivals in prop::collection::vec((0_u64..450, 1_usize..4), 1..60),
    ) {
        let mut rig = Rig::new();
        rig.hear(&heartbeat(1));
        for (delay, copies) in arrivals {
            // One arrives within each 500 ms, with up to three copies.
            let delay = LOOK * u32::try_from(delay / 50).unwrap();
            rig.pass(delay, &[]);
            for _ in 0..copies {
                rig.hear(&heartbeat(1));
            }
            rig.pass(Duration::from_millis(500) - delay, &[]);
            prop_assert_eq!(rig.state(1), Some(InstanceState::Alive));
            prop_assert_eq!(rig.registry.counts().lost, 0);
        }
        rig.pass(BEAT * 12, &[]);
        prop_assert_eq!(rig.state(1), Some(InstanceState::Gone));
    }
}
