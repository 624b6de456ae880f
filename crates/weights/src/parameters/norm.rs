//! Parameters of norms.

/// The trained parameters of a norm.
pub struct Norm {
    /// Factor of each element.
    pub weight: Vec<f32>,
    /// Addend of each element.
    pub bias: Option<Vec<f32>>,
    /// Whether the mean is subtracted: layer norm, else RMS norm.
    pub centered: bool,
}

impl Norm {
    /// An RMS norm without biases.
    pub(super) fn rms(weight: Vec<f32>) -> Self {
        Self {
            weight,
            bias: None,
            centered: false,
        }
    }
}
