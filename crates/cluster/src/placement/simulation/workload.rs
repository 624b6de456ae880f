//! Conversations: prompts that grow by an answer and a question, after a shared system prompt.

use super::super::prefix_cache::mix;

/// Deterministic random numbers.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// From `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }

    /// An exponential variate.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        let unit = ((self.draw() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        -unit.ln() * mean
    }
}

/// What clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Eight system prompts of 400 to 2,400 tokens, one to eight turns.
    Chats,
    /// Twelve system prompts with tools, of 4,000 to 8,000 tokens, five to fifteen turns without a person between.
    Agents,
    /// Prompts of 50 to 2,000 tokens that share nothing.
    Unrelated,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chats => "chats",
            Self::Agents => "agents",
            Self::Unrelated => "unrelated prompts",
        }
    }

    /// Mean time between two new conversations for each engine, seconds.
    pub(super) fn interval_s(self) -> f64 {
        match self {
            Self::Chats => 1.9,
            Self::Agents => 11.0,
            Self::Unrelated => 0.72,
        }
    }
}

/// One client's conversation.
pub(super) struct Conversation {
    workload: Workload,
    dice: Dice,
    /// Tokens of the next prompt.
    pub(super) prompt: Vec<u32>,
    /// Tokens of the next answer.
    pub(super) answer: Vec<u32>,
    turns_left: u64,
}

impl Conversation {
    pub(super) fn new(workload: Workload, seed: u64, number: u64) -> Self {
        let mut dice = Dice::new(mix(seed) ^ number);
        // Two throws, the lower counts: some system prompts are used more than others.
        let mut skewed = |n: u64| (dice.draw() % n).min(dice.draw() % n);
        let (system, turns_left) = match workload {
            Workload::Chats => (system_prompt(skewed(8), 400, 2400), dice.between(1, 8)),
            Workload::Agents => (
                system_prompt(100 + skewed(12), 4000, 8000),
                dice.between(5, 15),
            ),
            Workload::Unrelated => (Vec::new(), 1),
        };
        let mut conversation = Self {
            workload,
            dice,
            prompt: system,
            answer: Vec::new(),
            turns_left,
        };
        conversation.ask();
        conversation
    }

    /// Goes on after an answer: seconds until the next question, or `None` at the end.
    pub(super) fn next_turn(&mut self) -> Option<f64> {
        self.turns_left -= 1;
        if self.turns_left == 0 {
            return None;
        }
        self.prompt.append(&mut self.answer);
        self.ask();
        Some(match self.workload {
            Workload::Agents => 0.2 + self.dice.exponential(0.8),
            _ => 2.0 + self.dice.exponential(8.0),
        })
    }

    fn ask(&mut self) {
        let (question, answer) = match self.workload {
            Workload::Chats => (self.dice.between(20, 300), self.dice.between(40, 300)),
            Workload::Agents => (self.dice.between(50, 800), self.dice.between(20, 120)),
            Workload::Unrelated => (self.dice.between(50, 2000), self.dice.between(40, 300)),
        };
        let question = self.tokens(question);
        self.prompt.extend(question);
        self.answer = self.tokens(answer);
    }

    fn tokens(&mut self, count: u64) -> Vec<u32> {
        (0..count).map(|_| self.dice.draw() as u32).collect()
    }
}

fn system_prompt(number: u64, low: u64, high: u64) -> Vec<u32> {
    let mut dice = Dice::new(0x5eed ^ number);
    let tokens = dice.between(low, high);
    (0..tokens).map(|_| dice.draw() as u32).collect()
}
