//! Which models run on a device: the first part that the program lacks is named.

use weights::Config;
use weights::config::StateHead;
use weights::config::traits::Traits;

/// The part of a model that does not run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Texts in which a token sees later ones.
    #[error("tokens that see later ones are computed on the CPU only")]
    Bidirectional,
    /// Keys and values as projections of one latent, with parts that are no multiple of four.
    #[error("attention to latents of odd sizes is computed on the CPU only")]
    Latent,
    /// Several states of the stream.
    #[error("several states of the stream are computed on the CPU only")]
    States,
    /// A head on hidden states.
    #[error("the head on hidden states is computed on the CPU only")]
    StateHead,
}

/// Whether a model of this configuration runs on a device; all formats of weights do.
///
/// # Errors
/// The first part that is missing.
pub fn supports(config: &Config) -> Result<(), Unsupported> {
    let Traits {
        altup,
        bidirectional,
        ..
    } = config.traits;
    let latent = config.latent.as_ref();
    let odd_latent = latent.is_some_and(|sizes| {
        let parts = [sizes.rank, sizes.turned, sizes.plain, sizes.value];
        parts.iter().any(|part| !part.is_multiple_of(4))
    });
    let missing = [
        (bidirectional, Unsupported::Bidirectional),
        (altup, Unsupported::States),
        (odd_latent, Unsupported::Latent),
        (
            matches!(config.state_head, Some(StateHead::Dense { .. })),
            Unsupported::StateHead,
        ),
    ];
    match missing.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, part)) => Err(part),
        None => Ok(()),
    }
}
