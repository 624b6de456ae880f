//! Priority classes, and the words that name them.

/// How urgent a request is. The order is the order of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before everybody.
    Critical,
    /// Somebody waits for each token.
    High,
    /// Unless something else is said.
    #[default]
    Normal,
    /// May wait.
    Low,
    /// When nobody else wants to.
    Background,
}

impl Priority {
    /// All of them, in order of service.
    pub const ALL: [Self; 5] = [
        Self::Critical,
        Self::High,
        Self::Normal,
        Self::Low,
        Self::Background,
    ];

    /// 0 for those served first.
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

    /// The class of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|class| class.name().eq_ignore_ascii_case(name))
    }

    /// The class of OpenAI's `service_tier`; a tier that says nothing about urgency is normal.
    pub fn from_service_tier(tier: &str) -> Self {
        match tier {
            "priority" => Self::High,
            "flex" => Self::Low,
            _ => Self::Normal,
        }
    }

    /// The class of a number as vLLM has it: 0 is normal, less is more urgent.
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

/// As the engine has it: what waited in this order is scheduled in the same.
impl From<Priority> for engine::Priority {
    fn from(class: Priority) -> Self {
        Self::ALL[class.index() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_class() {
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
