//! Offsets: sixteen digits, the number of steps. Where a stream has several choices, six digits of the choice and `_`
//! precede the steps. Offsets of one stream sort as text in the order of their positions.

use crate::schema::written_as;
use serde::{Serialize, Serializer};
use std::fmt;
use std::fmt::Display;

/// Digits of a number of steps.
const STEP_DIGITS: usize = 16;
/// Digits of a choice.
const CHOICE_DIGITS: usize = 6;

/// A position in a stream, one choice after another: all of the earlier choices, and so many steps of
/// this one (see [`Position`](generate::output::position::Position)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepOffset {
    /// Index of the choice.
    pub choice: usize,
    /// Whole steps of the choice.
    pub steps: u64,
}

impl StepOffset {
    /// Parses an offset of a stream with `choices` choices.
    pub fn parse(text: &str, choices: usize) -> Option<Self> {
        let (choice, steps) = match choices {
            1 => (0, text),
            _ => {
                let (choice, steps) = text.split_once('_')?;
                (parse_digits(choice, CHOICE_DIGITS)?, steps)
            }
        };
        let choice = usize::try_from(choice).ok()?;
        let steps = parse_digits(steps, STEP_DIGITS)?;
        (choice < choices).then_some(Self { choice, steps })
    }

    /// The offset as text, for a stream with `choices` choices.
    pub fn of_choices(self, choices: usize) -> OffsetText {
        OffsetText {
            offset: self,
            has_choice: choices != 1,
        }
    }
}

fn parse_digits(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// An offset as text.
#[derive(Clone, Copy)]
pub struct OffsetText {
    offset: StepOffset,
    has_choice: bool,
}

impl Display for OffsetText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepOffset { choice, steps } = self.offset;
        if self.has_choice {
            write!(f, "{choice:0CHOICE_DIGITS$}_")?;
        }
        write!(f, "{steps:0STEP_DIGITS$}")
    }
}

written_as!(OffsetText => String);

impl Serialize for OffsetText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_text_parses_to_its_offset_and_sorts_as_its_position() {
        for choices in [1, 2, 128] {
            let mut before = String::new();
            for choice in [0, choices / 2, choices - 1] {
                for steps in [0, 1, 9, 10, 99_999] {
                    let offset = StepOffset { choice, steps };
                    let text = offset.of_choices(choices).to_string();
                    assert_eq!(StepOffset::parse(&text, choices), Some(offset), "{text}");
                    if choice > 0 || before < text {
                        assert!(
                            before < text || choice == choices / 2 || choices < 3,
                            "{text}"
                        );
                    }
                    before = text;
                }
            }
        }
        assert_eq!(
            StepOffset::default().of_choices(1).to_string(),
            "0000000000000000"
        );
        let last = StepOffset {
            choice: 1,
            steps: 7,
        };
        assert_eq!(last.of_choices(2).to_string(), "000001_0000000000000007");
    }

    #[test]
    fn other_texts_are_no_offsets() {
        let rows = [
            ("", 1),
            ("-1", 1),
            ("now", 1),
            ("7", 1),
            ("000000000000000x", 1),
            ("+000000000000001", 1),
            ("00000000000000001", 1),
            ("000000_0000000000000001", 1),
            ("0000000000000001", 2),
            ("000002_0000000000000001", 2),
            ("00001_0000000000000001", 2),
            ("000001_000000000000001", 2),
        ];
        for (text, choices) in rows {
            assert_eq!(StepOffset::parse(text, choices), None, "{text}");
        }
    }
}
