//! Which device a model runs on, as a person writes it.

use std::str::FromStr;
use wgpu::Backends;

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first device that is no processor, else the processor without a device.
    Auto,
    /// The processor, without a device.
    Cpu,
    /// Any device that is no processor.
    Gpu,
    /// Vulkan, processors (llvmpipe) last.
    Vulkan,
    /// Metal.
    Metal,
    /// DirectX 12.
    Dx12,
}

/// Which device to open: `auto`, `cpu`, `gpu`, `vulkan`, `metal` or `dx12`; the last four with `:N` for the device of this
/// number among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The kind of device.
    pub kind: Kind,
    /// Number of the device among those of the kind; `None`: the first.
    pub index: Option<usize>,
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no device: auto, cpu, gpu, vulkan, metal or dx12, the last four perhaps with a number (vulkan:1)"
)]
pub struct UnknownSelection(String);

impl FromStr for Selection {
    type Err = UnknownSelection;

    fn from_str(text: &str) -> Result<Self, UnknownSelection> {
        let unknown = || UnknownSelection(text.to_owned());
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        match (kind, index) {
            (None, _) | (Some(Kind::Auto | Kind::Cpu), Some(_)) => Err(unknown()),
            (Some(kind), index) => Ok(Self { kind, index }),
        }
    }
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Auto,
        Self::Cpu,
        Self::Gpu,
        Self::Vulkan,
        Self::Metal,
        Self::Dx12,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::Dx12 => "dx12",
        }
    }

    /// Interfaces of the devices of a kind.
    pub(crate) const fn backends(self) -> Backends {
        match self {
            Self::Cpu => Backends::empty(),
            Self::Auto | Self::Gpu => Backends::VULKAN
                .union(Backends::METAL)
                .union(Backends::DX12),
            Self::Vulkan => Backends::VULKAN,
            Self::Metal => Backends::METAL,
            Self::Dx12 => Backends::DX12,
        }
    }
}

impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind.name())?;
        match self.index {
            Some(index) => write!(f, ":{index}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_read_as_they_are_written() {
        for text in [
            "auto",
            "cpu",
            "gpu",
            "vulkan",
            "metal",
            "dx12",
            "gpu:0",
            "vulkan:12",
        ] {
            let read = text.parse::<Selection>().map(|read| read.to_string());
            assert_eq!(read.as_deref(), Ok(text));
        }
        for text in [
            "", "cuda", "auto:1", "cpu:0", "gpu:", "gpu:x", "gpu:-1", "Vulkan",
        ] {
            assert!(text.parse::<Selection>().is_err(), "{text}");
        }
    }
}
