//! GGUF keys of an architecture, derived from `config.json`.

use crate::gguf::GgufWriter;

/// The GGUF keys of one architecture, under construction.
pub(super) struct GgufKeys {
    /// The architecture's name.
    pub(super) name: &'static str,
    pub(super) out: GgufWriter,
}

impl GgufKeys {
    pub(super) fn number(&mut self, key: &str, value: u32) {
        self.out.u32(&self.full(key), value);
    }

    pub(super) fn float(&mut self, key: &str, value: f64) {
        self.out.f32(&self.full(key), value as f32);
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.out.bool(&self.full(key), value);
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.out.str(&self.full(key), value);
    }

    pub(super) fn numbers(&mut self, key: &str, values: &[i32]) {
        self.out.i32s(&self.full(key), values);
    }

    pub(super) fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }
}
