//! How many gateways there are.

/// Number of gateways, as one of them knows it; the gateway itself is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Gateways that have a share, at least 1.
    pub gateways: u32,
    /// Gateways whose reports arrive, at least 1 and at most `gateways`.
    pub heard: u32,
    /// Whether the gateway has just started, so that reports may not have arrived yet.
    pub is_joining: bool,
}

impl Standing {
    /// A gateway without others.
    pub const ALONE: Self = Self {
        gateways: 1,
        heard: 1,
        is_joining: false,
    };

    /// Whether the reports of all gateways arrive.
    pub fn is_whole(self) -> bool {
        self.heard >= self.gateways
    }

    /// An amount together with what silent gateways are taken to use meanwhile.
    pub(super) fn with_silent(self, amount: u64) -> u64 {
        let all = u128::from(amount) * u128::from(self.gateways) / u128::from(self.heard.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}
