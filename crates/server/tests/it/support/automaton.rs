//! The state machine that every transcript must satisfy, in any wire protocol: keep-alives, a start, text, exactly one
//! end, and nothing after the end.

use std::collections::BTreeMap;

/// One item of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A comment or a position in the queue.
    Sign,
    /// The start of the response.
    Opening,
    /// Text of a choice.
    Text { choice: u64, text: String },
    /// Number of generated tokens so far.
    Figures(u64),
    /// The end of a choice without an error, and its number of tokens where the protocol has that here.
    End {
        choice: u64,
        word: String,
        tokens: Option<u64>,
    },
    /// The final usage, where the protocol has a frame for that.
    Usage(u64),
    /// The response ended with an error.
    Error { code: String, message: String },
    /// The terminal frame.
    Done,
}

/// After which ends a wire protocol has a terminal frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closes {
    /// After none: the end is the last frame.
    Never,
    /// After ends without an error: a terminal frame after an error would look like success.
    Good,
    /// After all ends.
    Always,
}

/// The rules of one wire protocol.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Number of choices.
    pub choices: u64,
    pub closes: Closes,
    /// Whether tokens are counted: at every end without an error, and at an error after at least one token. If not,
    /// there is no frame with the usage.
    pub counts: bool,
    /// Whether the tokens before an error are counted, where tokens are.
    pub counts_errors: bool,
}

/// The content of a transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    pub texts: BTreeMap<u64, String>,
    /// Finish reasons of choices that ended without an error.
    pub ends: BTreeMap<u64, String>,
    /// Code and message of the error.
    pub error: Option<(String, String)>,
    /// Number of generated tokens in the last count.
    pub tokens: Option<u64>,
    /// The protocol has no count of the tokens before an error.
    pub is_uncounted: bool,
}

impl Story {
    /// The first choice's text.
    pub fn text(&self) -> &str {
        self.texts.get(&0).map_or("", String::as_str)
    }

    /// Whether both transcripts of one stream have the same number of tokens, where both can have one.
    pub fn has_tokens_of(&self, other: &Self) -> bool {
        let tokens = |story: &Self| story.tokens.unwrap_or(0);
        self.is_uncounted || other.is_uncounted || tokens(self) == tokens(other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first text.
    Before,
    /// After text or the end of a choice.
    Telling,
    /// After the final usage.
    Counted,
    /// After the error.
    Failed,
    /// After the terminal frame.
    Over,
}

struct Automaton {
    rules: Rules,
    state: State,
    story: Story,
    /// Tokens of the choices that have ended; `None` after a choice without a count.
    ended: Option<u64>,
}

/// Checks a complete transcript.
///
/// # Errors
/// The first item that violates the rules.
pub fn accept(rules: Rules, items: &[Item]) -> Result<Story, String> {
    let mut automaton = Automaton {
        rules,
        state: State::Before,
        story: Story::default(),
        ended: Some(0),
    };
    for (at, item) in items.iter().enumerate() {
        let state = automaton.state;
        automaton
            .take(item)
            .map_err(|why| format!("item {at}, {item:?} in {state:?}: {why}"))?;
    }
    automaton.finish()
}

impl Automaton {
    fn take(&mut self, item: &Item) -> Result<(), String> {
        use State::{Before, Counted, Failed, Over, Telling};
        self.state = match (self.state, item) {
            (Over, _) => return Err("after everything".to_owned()),
            (state @ (Before | Telling), Item::Sign) => state,
            (Before, Item::Opening) => Before,
            (Before | Telling, Item::Text { choice, text }) => self.text(*choice, text)?,
            (state @ (Before | Telling), Item::Figures(tokens)) => {
                self.tokens(*tokens)?;
                state
            }
            (
                Before | Telling,
                Item::End {
                    choice,
                    word,
                    tokens,
                },
            ) => self.end(*choice, word, *tokens)?,
            (Before | Telling, Item::Usage(tokens)) if self.rules.counts => {
                self.tokens(*tokens)?;
                Counted
            }
            (Before | Telling | Counted, Item::Error { code, message }) => {
                self.error(code, message)?
            }
            (Before | Telling | Counted, Item::Done) => self.done()?,
            (Failed, Item::Done) if self.rules.closes == Closes::Always => Over,
            _ => return Err("not there".to_owned()),
        };
        Ok(())
    }

    fn text(&mut self, choice: u64, text: &str) -> Result<State, String> {
        self.open(choice)?;
        *self.story.texts.entry(choice).or_default() += text;
        Ok(State::Telling)
    }

    fn end(&mut self, choice: u64, word: &str, tokens: Option<u64>) -> Result<State, String> {
        self.open(choice)?;
        self.story.ends.insert(choice, word.to_owned());
        self.ended = self.ended.zip(tokens).map(|(sum, more)| sum + more);
        if let (true, Some(sum)) = (self.all_ended(), self.ended) {
            self.tokens(sum)?;
        }
        Ok(State::Telling)
    }

    fn error(&mut self, code: &str, message: &str) -> Result<State, String> {
        if self.all_ended() {
            return Err("every choice has ended already".to_owned());
        }
        let made_any = self.story.texts.values().any(|text| !text.is_empty());
        let counts = self.rules.counts && self.rules.counts_errors;
        self.story.is_uncounted = self.rules.counts && !counts;
        if self.story.is_uncounted && self.story.tokens.is_some() {
            return Err("tokens are counted before an error".to_owned());
        }
        if made_any && counts && self.story.tokens.is_none_or(|tokens| tokens == 0) {
            return Err("tokens were made and are not counted".to_owned());
        }
        if code.is_empty() || message.is_empty() {
            return Err("without words".to_owned());
        }
        self.story.error = Some((code.to_owned(), message.to_owned()));
        Ok(State::Failed)
    }

    fn done(&mut self) -> Result<State, String> {
        match () {
            () if self.rules.closes == Closes::Never => Err("there is no such frame".to_owned()),
            () if !self.all_ended() => Err("not every choice has ended".to_owned()),
            () => self.counted().map(|()| State::Over),
        }
    }

    fn finish(self) -> Result<Story, String> {
        let closes = self.rules.closes;
        let whole = match self.state {
            State::Over => true,
            State::Failed => closes != Closes::Always,
            State::Telling | State::Counted => closes == Closes::Never && self.all_ended(),
            State::Before => false,
        };
        if !whole {
            return Err(format!("it stops in {:?}: {:?}", self.state, self.story));
        }
        if self.state != State::Failed && self.story.error.is_none() {
            self.counted()?;
        }
        Ok(self.story)
    }

    fn open(&self, choice: u64) -> Result<(), String> {
        if choice >= self.rules.choices {
            return Err("no such choice".to_owned());
        }
        match self.story.ends.get(&choice) {
            Some(end) => Err(format!("the choice has ended: {end}")),
            None => Ok(()),
        }
    }

    fn tokens(&mut self, tokens: u64) -> Result<(), String> {
        if self.story.tokens.is_some_and(|before| tokens < before) {
            return Err("tokens become fewer".to_owned());
        }
        self.story.tokens = Some(tokens);
        Ok(())
    }

    fn counted(&self) -> Result<(), String> {
        if self.rules.counts && self.story.tokens.is_none() {
            Err("nothing is counted".to_owned())
        } else {
            Ok(())
        }
    }

    fn all_ended(&self) -> bool {
        self.story.ends.len() as u64 == self.rules.choices
    }
}
