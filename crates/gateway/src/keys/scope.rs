//! Purposes of a key.

use std::fmt;

/// A kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Generating, and everything about one's own streams.
    Inference,
    /// Seeing and steering everybody's streams.
    Admin,
    /// Reading figures.
    Metrics,
}

impl Scope {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Inference, Self::Admin, Self::Metrics];

    /// Name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }

    /// The scope that is spelled so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope.
    pub const fn all() -> Self {
        Self::of(&Scope::ALL)
    }

    /// These scopes.
    pub const fn of(scopes: &[Scope]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < scopes.len() {
            bits |= scopes[i].bit();
            i += 1;
        }
        Self(bits)
    }

    /// Whether the set contains a scope.
    pub fn has(self, scope: Scope) -> bool {
        self.has_any(Self::of(&[scope]))
    }

    /// Whether the sets share a scope.
    pub fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes of the set.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |&scope| self.has(scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::name).collect();
        f.write_str(&names.join(" or "))
    }
}
