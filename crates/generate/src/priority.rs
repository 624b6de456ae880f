//! Priority classes and their names.

use serde::{Deserialize, Serialize};

/// Priority of a request. The order is the order of service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    Critical,
    /// Interactive: a person reads as tokens arrive.
    High,
    /// The default.
    #[default]
    Normal,
    /// May wait.
    Low,
    /// Only when no other request waits.
    Background,
}

impl Priority {
    /// All classes, in order of service.
    pub const ALL: [Self; 5] = [
        Self::Critical,
        Self::High,
        Self::Normal,
        Self::Low,
        Self::Background,
    ];

    /// Position in the order of service, from 0.
    pub fn index(self) -> u32 {
        self as u32
    }

    /// Name in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|class| class.name().eq_ignore_ascii_case(name))
    }

    /// The class of OpenAI's `service_tier`; tiers without urgency are normal.
    pub fn from_service_tier(tier: &str) -> Self {
        match tier {
            "priority" => Self::High,
            "flex" => Self::Low,
            _ => Self::Normal,
        }
    }

    /// The class of vLLM's number: 0 is normal, lower is more urgent.
    pub fn from_number(number: i128) -> Self {
        match number {
            ..=-2 => Self::Critical,
            -1 => Self::High,
            0 => Self::Normal,
            1 => Self::Low,
            2.. => Self::Background,
        }
    }
}

/// The engine's class: admission and scheduling use one order.
impl From<Priority> for engine::Priority {
    fn from(class: Priority) -> Self {
        Self::ALL[class.index() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_names_round_trip() {
        for class in Priority::ALL {
            assert_eq!(Priority::from_name(class.name()), Some(class));
            assert_eq!(Priority::ALL[class.index() as usize], class);
            let engine = format!("{:?}", engine::Priority::from(class));
            assert_eq!(engine, format!("{class:?}"));
        }
        assert_eq!(Priority::from_name("HIGH"), Some(Priority::High));
        assert_eq!(Priority::from_name("urgent"), None);
        let tiers = [
            ("priority", Priority::High),
            ("flex", Priority::Low),
            ("default", Priority::Normal),
            ("auto", Priority::Normal),
        ];
        for (tier, class) in tiers {
            assert_eq!(Priority::from_service_tier(tier), class, "{tier}");
        }
        let numbers = [
            (i128::MIN, Priority::Critical),
            (-1, Priority::High),
            (0, Priority::Normal),
            (1, Priority::Low),
            (i128::MAX, Priority::Background),
        ];
        for (number, class) in numbers {
            assert_eq!(Priority::from_number(number), class, "{number}");
        }
    }
}
