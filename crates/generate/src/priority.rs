//! Priority classes, and the words that name them.

/// How urgent a request is. The order is the order of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
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

impl Class {
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
impl From<Class> for engine::Priority {
    fn from(class: Class) -> Self {
        Self::ALL[class.index() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_class() {
        for class in Class::ALL {
            assert_eq!(Class::from_name(class.name()), Some(class));
            assert_eq!(Class::ALL[class.index() as usize], class);
            let engine = format!("{:?}", engine::Priority::from(class));
            assert_eq!(engine, format!("{class:?}"));
        }
        assert_eq!(Class::from_name("HIGH"), Some(Class::High));
        assert_eq!(Class::from_name("urgent"), None);
        let tiers = [
            ("priority", Class::High),
            ("flex", Class::Low),
            ("default", Class::Normal),
            ("auto", Class::Normal),
        ];
        for (tier, class) in tiers {
            assert_eq!(Class::from_service_tier(tier), class, "{tier}");
        }
        let numbers = [
            (i128::MIN, Class::Critical),
            (-1, Class::High),
            (0, Class::Normal),
            (1, Class::Low),
            (i128::MAX, Class::Background),
        ];
        for (number, class) in numbers {
            assert_eq!(Class::from_number(number), class, "{number}");
        }
    }
}
