//! JSON numbers, one character at a time.

/// State within a number, after JSON's grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberState {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl NumberState {
    /// The state after one more character; `None` where the number cannot continue with the character.
    pub(super) fn next(self, c: char) -> Option<Self> {
        match (self, c) {
            (Self::Minus, '0') => Some(Self::Zero),
            (Self::Minus, '1'..='9') | (Self::Whole, '0'..='9') => Some(Self::Whole),
            (Self::Zero | Self::Whole, '.') => Some(Self::Point),
            (Self::Point | Self::Fraction, '0'..='9') => Some(Self::Fraction),
            (Self::Zero | Self::Whole | Self::Fraction, 'e' | 'E') => Some(Self::Exponent),
            (Self::Exponent, '+' | '-') => Some(Self::Sign),
            (Self::Exponent | Self::Sign | Self::Power, '0'..='9') => Some(Self::Power),
            _ => None,
        }
    }

    /// Whether the number may end in this state.
    pub(super) fn may_end(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Whole | Self::Fraction | Self::Power
        )
    }
}
