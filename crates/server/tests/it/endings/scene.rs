//! Servers with a stream for every way to read (the victims), and a stream that must not be affected (the neighbor).

use super::ways::{Asked, Way, listed, ways};
use crate::support::automaton::Story;
use crate::support::dialects::{DIALECTS, Fate};
use crate::support::named::{self, get};
use crate::support::{Rig, config, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{AdaptiveLimits, RealtimeLimits, ServerConfig};
use std::sync::OnceLock;
use std::time::Duration;

/// Prompt of the victims.
pub(crate) const VICTIM: &str = "hi";
/// Tokens of a response.
pub(crate) const TOKENS: u64 = 24;

/// Runs the streams of all ways at the same time.
pub(crate) fn wide() -> ServerConfig {
    at_most(200)
}

/// Runs at most this many streams at the same time.
pub(crate) fn at_most(max_streams: usize) -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams,
            ..AdaptiveLimits::default()
        },
        // Nobody reads the victims before all are there.
        realtime: RealtimeLimits {
            idle: Duration::from_secs(3600),
            ..RealtimeLimits::default()
        },
        ..config()
    }
}

/// A model that generates letters and no end-of-sequence token.
pub(crate) fn letters() -> FakeConfig {
    named::fake()
}

/// Requests on the ways that satisfy `has`.
pub(crate) fn victims(rig: &Rig, over: &Value, fields: &str, has: fn(Way) -> bool) -> Vec<Asked> {
    let asked: Vec<_> = ways()
        .into_iter()
        .filter(|way| has(*way))
        .map(|way| way.ask(rig, VICTIM, over, fields))
        .collect();
    asked.into_iter().map(|asked| asked.named(rig)).collect()
}

/// Satisfied by ways whose prompt is the text alone.
pub(crate) fn without_gap(way: Way) -> bool {
    !way.has_gap()
}

/// Satisfied by every way.
pub(crate) fn all(_: Way) -> bool {
    true
}

/// Waits until the engine has this many streams that have not ended.
pub(crate) fn in_the_engine(rig: &Rig, streams: usize) {
    let is = |s: &&Value| s["state"] != "ended" && s["choices"][0].is_object();
    wait_until("all are in the engine", || {
        listed(rig).iter().filter(is).count() == streams
    });
}

/// Waits until a stream has ended.
pub(crate) fn until_ended(rig: &Rig, id: &str) {
    until_ended_by(rig, id, || {});
}

/// A rig whose steps follow one another: an order or a clock may reach the engine some steps later.
pub(crate) fn until_ended_by_steps(rig: &Rig, id: &str) {
    until_ended_by(rig, id, || rig.gate.allow_waiting());
}

fn until_ended_by(rig: &Rig, id: &str, step: impl Fn()) {
    wait_until("it ends", || {
        step();
        get(rig, &format!("/v1/streams/{id}"), "").json()["state"] == "ended"
    });
}

/// Waits until the engine has no choice and no page. Resumable streams keep their logs.
pub(crate) fn nothing_runs(rig: &Rig) {
    wait_until("all is given back", || {
        let stats = rig.engine.stats();
        let choices = stats.queued() + stats.running() + stats.parked() + stats.waiting();
        choices == 0 && stats.pages_used() == 0
    });
}

/// Allows this many forward passes, and waits until they are done.
pub(crate) fn steps(rig: &Rig, passes: u64) {
    let until = rig.engine.stats().steps() + passes;
    rig.gate.allow(passes);
    wait_until("the model did its passes", || {
        rig.engine.stats().steps() >= until
    });
}

/// A stream beside the victims.
pub(crate) struct Neighbor(Asked);

impl Neighbor {
    pub(crate) fn begin(rig: &Rig) -> Self {
        Self::urgent(rig, "normal")
    }

    pub(crate) fn urgent(rig: &Rig, priority: &str) -> Self {
        let over = json!({"max_tokens": 40, "seed": 3, "priority": priority});
        let way = Way::Streamed(&DIALECTS[0]);
        Self(way.ask(rig, "the neighbor", &over, "").named(rig))
    }

    /// Checks that the response equals the response on an idle server.
    pub(crate) fn expect_unaffected(self, rig: &Rig) {
        static ALONE: OnceLock<Story> = OnceLock::new();
        let want = ALONE.get_or_init(|| {
            let rig = Rig::with(letters(), wide());
            Self::begin(&rig).0.ends(&rig, Fate::Length)
        });
        assert_eq!(want.tokens, Some(40));
        assert_eq!(self.0.ends(rig, Fate::Length), *want, "the neighbor");
    }
}

/// The response to a victim on an idle server.
pub(crate) fn undisturbed(over: &Value) -> Story {
    let rig = Rig::with(letters(), wide());
    let way = Way::Whole(&DIALECTS[0]);
    way.ask(&rig, VICTIM, over, "").ends(&rig, Fate::Length)
}

/// Checks that all victims end with `fate`, and that their texts are prefixes of `whole`; equal prefixes if the end
/// depends on the tokens alone.
pub(crate) fn end(rig: &Rig, victims: Vec<Asked>, fate: Fate, whole: &str) {
    assert!(!victims.is_empty());
    let (gaps, others): (Vec<_>, Vec<_>) = victims.into_iter().partition(|v| v.way.has_gap());
    end_of_one_prompt(rig, others, fate, Some(whole));
    end_of_one_prompt(rig, gaps, fate, None);
}

/// As [`end`], of victims with one prompt. Without `whole`, their texts are prefixes of the longest of them.
fn end_of_one_prompt(rig: &Rig, victims: Vec<Asked>, fate: Fate, whole: Option<&str>) {
    let stories = victims.into_iter().map(|victim| {
        let way = victim.way;
        (way, victim.ends(rig, fate))
    });
    let stories: Vec<_> = stories.collect();
    let told = stories.iter().map(|(_, story)| story.text());
    let whole = whole.or_else(|| told.max_by_key(|text| text.len()));
    let whole = whole.unwrap_or_default();
    let (mut texts, mut counts) = (Vec::new(), Vec::new());
    for (way, story) in &stories {
        let text = story.text().to_owned();
        assert!(whole.starts_with(&text), "{}: {text}", way.name());
        if !matches!(way, Way::Whole(_) | Way::Polled) {
            texts.push(text.clone());
            if story.is_uncounted {
                continue;
            }
            let count = story.tokens.unwrap_or(0);
            // Each letter is a token; the text of the last token may be withheld.
            assert!(
                count >= text.len() as u64,
                "{}: {text}, {count}",
                way.name()
            );
            counts.push(count);
        }
    }
    if !fate.is_of_the_tokens() {
        return;
    }
    assert!(
        texts.iter().all(|text| *text == texts[0]),
        "{fate:?}: {texts:?}"
    );
    assert!(
        counts.iter().all(|count| *count == counts[0]),
        "{fate:?}: {counts:?}"
    );
}
