//! The feed, the metrics and the report of the whole cluster.
//!
//! Promise (Cluster): the feed of a gateway has the events of all, and says when those of one are missing.
//! Also held by `server/src/routes/peer_feeds.rs`.
//!
//! Promise (Cluster): the metrics of the cluster are one well-formed text.
//! Also held by `server/src/metrics/merged_text.rs`.

use super::{EVENTS_MAX, Gateway, start_pair};
use crate::support::exported::Exported;
use crate::support::feed::{FEED, Feed};
use crate::support::named::send;
use crate::support::owners::{call_as, key_field};
use serde_json::{Value, json};

/// The feed of a gateway, for this caller.
fn feed_as(name: &str, gateway: &Gateway, query: &str) -> Feed {
    Feed::open(gateway.rig(), &format!("{FEED}{query}"), &key_field(name))
}

impl Feed {
    /// The types of a stream's events up to the end, all of one gateway.
    fn story_of(&mut self, stream: &str, gateway: &Gateway) -> Vec<String> {
        let mut story = Vec::new();
        for _ in 0..EVENTS_MAX {
            let event = self.next();
            if event["stream"] != stream {
                continue;
            }
            assert_eq!(event["instance"], gateway.id.as_str(), "{event}");
            story.push(event["type"].as_str().unwrap().to_owned());
            if event["type"] == "ended" {
                return story;
            }
        }
        panic!("no end of {stream} after {story:?}");
    }

    /// Reads until there is an event of this type, of this gateway.
    fn wait_for(&mut self, kind: &str, gateway: &str) -> Value {
        for _ in 0..EVENTS_MAX {
            let event = self.next();
            if event["type"] == kind && event["instance"] == gateway {
                return event;
            }
        }
        panic!("no {kind} of {gateway}");
    }
}

#[test]
fn feed_of_a_gateway_has_the_events_of_the_other() {
    let Some(mut pair) = start_pair() else { return };
    let mut feed = feed_as("admin", &pair.first, "");
    let mut own = feed_as("admin", &pair.first, "?scope=instance");
    // The first event of each gateway is a snapshot of its metrics: from then on nothing is missing.
    feed.wait_for("metrics", &pair.first.id);
    feed.wait_for("metrics", &pair.second.id);
    for gateway in [&pair.second, &pair.first] {
        let id = gateway.run_job("one", None);
        let story = feed.story_of(&id, gateway);
        assert_eq!(story.first().map(String::as_str), Some("opened"));
        assert!(story.contains(&"started".to_owned()), "{story:?}");
        if gateway.id == pair.first.id {
            assert_eq!(own.story_of(&id, gateway), story);
        }
    }
    let id = pair.second.id.clone();
    drop(pair.second.rig.take());
    let lost = feed.wait_for("unreachable", &id);
    assert!(lost["reason"].is_string(), "{lost}");
}

#[test]
fn feed_of_a_key_has_its_own_streams_of_all_gateways() {
    let Some(pair) = start_pair() else { return };
    let mut all = feed_as("admin", &pair.first, "");
    all.wait_for("metrics", &pair.second.id);
    let mut own = feed_as("one", &pair.first, "");
    // There is no first event of the other gateway, so streams are run until one of them is told.
    let told = (0..EVENTS_MAX).find_map(|_| {
        let foreign = pair.second.run_job("two", None);
        let id = pair.second.run_job("one", None);
        let here = pair.first.run_job("one", None);
        loop {
            let event = own.next();
            assert!(event["type"] != "metrics" && event["stream"] != foreign.as_str());
            match &event["stream"] {
                stream if *stream == id.as_str() => return Some(id),
                stream if *stream == here.as_str() => return None,
                _ => {}
            }
        }
    });
    assert!(told.is_some(), "the other gateway's events do not arrive");
}

#[test]
fn readers_of_the_clusters_feed_are_bounded() {
    let Some(pair) = start_pair() else { return };
    let readers: Vec<_> = (0..8).map(|_| feed_as("admin", &pair.first, "")).collect();
    let (status, error) = pair.first.show("admin", FEED);
    assert_eq!(
        (status, &error["error"]["code"]),
        (503, &json!("overloaded"))
    );
    feed_as("admin", &pair.first, "?scope=instance");
    drop(readers);
    crate::support::wait_until("a place is free again", || {
        let key = key_field("admin");
        let mut client = send(pair.first.rig(), "GET", FEED, &key, &Value::Null);
        client.head().status == 200
    });
}

#[test]
fn metrics_of_the_cluster_are_one_text_with_an_instance_for_each_sample() {
    let Some(mut pair) = start_pair() else { return };
    pair.second.run_job("one", None);
    let path = "/metrics?scope=cluster";
    let reply = call_as(pair.first.rig(), "admin", "GET", path, &Value::Null);
    assert_eq!(reply.head.status, 200);
    let all = Exported::parse(&reply.body);
    let own = call_as(pair.first.rig(), "admin", "GET", "/metrics", &Value::Null);
    let own = Exported::parse(&own.body);
    assert!(
        own.kinds
            .iter()
            .all(|(name, kind)| all.kinds[name] == *kind)
    );
    let generated = |gateway: &Gateway| {
        let labels = format!("instance=\"{}\",role=\"all\"", gateway.id);
        all.value(&format!("millrace_generated_tokens_total{{{labels}}}"))
    };
    assert_eq!(
        (generated(&pair.first), generated(&pair.second)),
        (0.0, 4.0)
    );
    let is_labelled = |sample: &String| sample.contains("{instance=\"");
    assert!(all.samples.keys().all(is_labelled));
    let up = |text: &str, gateway: &Gateway| {
        let labels = format!("instance=\"{}\",role=\"all\"", gateway.id);
        let up = format!("millrace_instance_up{{{labels}}}");
        Exported::parse(text).samples[&up]
    };
    assert_eq!(up(&reply.body, &pair.first), 1.0);
    assert_eq!(up(&reply.body, &pair.second), 1.0);
    assert_eq!(
        call_as(pair.first.rig(), "one", "GET", path, &Value::Null)
            .head
            .status,
        403
    );

    drop(pair.second.rig.take());
    let reply = call_as(pair.first.rig(), "admin", "GET", path, &Value::Null);
    assert_eq!(
        (up(&reply.body, &pair.first), up(&reply.body, &pair.second)),
        (1.0, 0.0)
    );
}

#[test]
fn report_of_the_cluster_has_the_streams_of_each_gateway() {
    let Some(pair) = start_pair() else { return };
    pair.second.run_job("one", None);
    let mut report = Value::Null;
    crate::support::wait_until("the heartbeats have the stream", || {
        report = pair.first.show("admin", "/v1/cluster").1;
        let instances = report["instances"].as_array().unwrap();
        let retained = |at: usize| instances[at]["streams"]["retained"].as_u64();
        (retained(0), retained(1)) == (Some(0), Some(1))
    });
    let instances = report["instances"].as_array().unwrap();
    assert_eq!(instances[0]["id"], pair.first.id.as_str());
    assert_eq!(instances[1]["id"], pair.second.id.as_str());
    assert!(instances.iter().all(|one| one["uptime_s"].is_u64()));
}
