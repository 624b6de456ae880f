//! Choosing a vector path at run time by the level that an [`crate::Isa`] proves.

/// Writes a function that takes an [`crate::Isa`] first and runs the reference implementation (the first path)
/// or an instance of the vector path (the second path) for the level. Requires equal lengths of the named arguments.
macro_rules! by_isa {
    (
        $scalar:path, $($vector:ident)::+;
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
        $(; equal_lengths: $first:ident $($other:ident)+)?
    ) => {
        $(#[$attribute])*
        #[allow(unsafe_code, reason = "entering a fast path; the Isa is the proof")]
        $visibility fn $name(isa: crate::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled for AVX2, FMA and F16C.
                unsafe { $($vector)::+::<crate::arch::lanes::F32x8>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled for AVX-512.
                unsafe { $($vector)::+::<crate::arch::lanes::F32x16>($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn neon($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled for NEON.
                unsafe { $($vector)::+::<crate::arch::lanes::NeonF32x8<false>>($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon,dotprod")]
            fn neon_dotprod($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled for NEON with dot products.
                unsafe { $($vector)::+::<crate::arch::lanes::NeonF32x8<true>>($($arg),*) }
            }
            $($(assert_eq!($first.len(), $other.len(), "lengths");)+)?
            match isa.level() {
                crate::isa::Level::Scalar => $scalar($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Avx2 | crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Neon => unsafe { neon($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::NeonDotprod | crate::isa::Level::NeonI8mm => unsafe {
                    neon_dotprod($($arg),*)
                },
            }
        }
    };
}
pub(crate) use by_isa;

/// Writes a function that takes an [`crate::Isa`] first and runs a function of plain loops, which is inlined: once
/// compiled for each level of x86, and once for the baseline of the architecture.
macro_rules! compiled_by_isa {
    (
        $plain:path;
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
    ) => {
        $(#[$attribute])*
        #[allow(unsafe_code, reason = "entering a function of the level; the Isa is the proof")]
        $visibility fn $name(isa: crate::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                $plain($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                $plain($($arg),*)
            }
            match isa.level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Avx2 | crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Avx512 => unsafe { avx512($($arg),*) },
                _ => $plain($($arg),*),
            }
        }
    };
}
pub(crate) use compiled_by_isa;
