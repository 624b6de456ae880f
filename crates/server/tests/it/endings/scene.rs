//! What happens beside what: victims on every way, and a neighbour that must not notice.

use super::ways::{Asked, Way, listed, ways};
use crate::support::automaton::Story;
use crate::support::dialects::{DIALECTS, Fate};
use crate::support::{Rig, config, named, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{AdaptiveLimits, ServerConfig};
use std::sync::OnceLock;

/// What the victims ask, beside what a column adds.
pub(crate) const VICTIM: &str = "hi";
/// Tokens of an answer.
pub(crate) const TOKENS: u64 = 24;

/// As many streams as there are ways, at one time.
pub(crate) fn wide() -> ServerConfig {
    at_most(200)
}

/// So many streams at one time; others wait.
pub(crate) fn at_most(max_streams: usize) -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams,
            ..AdaptiveLimits::default()
        },
        ..config()
    }
}

/// Letters without an end.
pub(crate) fn letters() -> FakeConfig {
    named::fake()
}

/// What every victim asks, on the ways that a column has.
pub(crate) fn victims(rig: &Rig, over: &Value, fields: &str, has: fn(Way) -> bool) -> Vec<Asked> {
    let asked: Vec<_> = ways()
        .into_iter()
        .filter(|way| has(*way))
        .map(|way| way.ask(rig, VICTIM, over, fields))
        .collect();
    asked.into_iter().map(|asked| asked.named(rig)).collect()
}

/// On every way.
pub(crate) fn all(_: Way) -> bool {
    true
}

/// Waits until so many streams that have not ended were handed to the engine.
pub(crate) fn in_the_engine(rig: &Rig, streams: usize) {
    let is = |s: &&Value| s["state"] != "ended" && s["choices"][0].is_object();
    wait_until("all are in the engine", || {
        listed(rig).iter().filter(is).count() == streams
    });
}

/// Waits until the engine has nothing: no choice and no page. (Those who may come back have a log.)
pub(crate) fn nothing_runs(rig: &Rig) {
    wait_until("all is given back", || {
        let stats = rig.engine.stats();
        let choices = stats.queued() + stats.running() + stats.parked() + stats.waiting();
        choices == 0 && stats.pages_used() == 0
    });
}

/// Lets the model do so many passes, and waits until it did.
pub(crate) fn steps(rig: &Rig, passes: u64) {
    let until = rig.engine.stats().steps() + passes;
    rig.gate.allow(passes);
    wait_until("the model did its passes", || {
        rig.engine.stats().steps() >= until
    });
}

/// Someone whose stream has nothing to do with the others'.
pub(crate) struct Neighbour(Asked);

impl Neighbour {
    pub(crate) fn begin(rig: &Rig) -> Self {
        Self::urgent(rig, "normal")
    }

    pub(crate) fn urgent(rig: &Rig, priority: &str) -> Self {
        let over = json!({"max_tokens": 40, "seed": 3, "priority": priority});
        let way = Way::Streamed(&DIALECTS[0]);
        Self(way.ask(rig, "the neighbour", &over, "").named(rig))
    }

    /// It gets what it gets when it is alone.
    pub(crate) fn did_not_notice(self, rig: &Rig) {
        static ALONE: OnceLock<Story> = OnceLock::new();
        let want = ALONE.get_or_init(|| {
            let rig = Rig::with(letters(), wide());
            Self::begin(&rig).0.ends(&rig, Fate::Length)
        });
        assert_eq!(want.tokens, Some(40));
        assert_eq!(self.0.ends(rig, Fate::Length), *want, "the neighbour");
    }
}

/// What a victim is told where nothing happens.
pub(crate) fn undisturbed(over: &Value) -> Story {
    let rig = Rig::with(letters(), wide());
    let way = Way::Whole(&DIALECTS[0]);
    way.ask(&rig, VICTIM, over, "").ends(&rig, Fate::Length)
}

/// All end so; those who were told something were told a beginning of this text: all the same one, where
/// it is the tokens that bring the end and not the time.
pub(crate) fn end(rig: &Rig, victims: Vec<Asked>, fate: Fate, whole: &str) {
    assert!(!victims.is_empty());
    let (mut texts, mut counts) = (Vec::new(), Vec::new());
    for victim in victims {
        let way = victim.way;
        let story = victim.ends(rig, fate);
        let text = story.text().to_owned();
        assert!(whole.starts_with(&text), "{}: {text}", way.name());
        if !matches!(way, Way::Whole(_) | Way::Polled) {
            texts.push(text.clone());
            if story.is_uncounted {
                continue;
            }
            let count = story.tokens.unwrap_or(0);
            // A letter is a token; the last may be one that is not told.
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
