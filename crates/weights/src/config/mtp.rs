//! The MTP head: a layer at the end of the file that predicts the token after the next one (multi-token prediction).

use super::{Architecture, Config, ConfigError, LayerShape};

impl Config {
    /// This configuration with the file's MTP head, which is a layer more in [`Config::shapes`]: one of full attention.
    ///
    /// # Errors
    /// The family has no such heads, or the file does not have exactly one.
    pub fn with_mtp(mut self) -> Result<Self, ConfigError> {
        if !matches!(
            self.architecture,
            Architecture::Qwen35 | Architecture::Qwen35Moe
        ) {
            return Err(ConfigError::Unsupported {
                key: "general.architecture".to_owned(),
                what: "an MTP head of a family other than qwen35 and qwen35moe",
            });
        }
        let like = self.shapes.iter().rposition(LayerShape::attends);
        let (1, Some(like)) = (self.layers_ignored, like) else {
            return Err(ConfigError::Range {
                key: format!("{}.nextn_predict_layers", self.architecture),
                found: self.layers_ignored.to_string(),
                bound: "1 for speculation by an MTP head".to_owned(),
            });
        };
        self.shapes.push(LayerShape {
            kv_layer: self.layers,
            ..self.shapes[like]
        });
        self.windows.push(self.windows[like]);
        self.roped.push(self.roped[like]);
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.layers.push(false);
        }
        self.layers_ignored = 0;
        self.mtp = true;
        Ok(self)
    }

    /// Entries of a hidden state that a sequence's state has for the MTP head.
    pub fn mtp_cols(&self) -> usize {
        if self.mtp { self.dim } else { 0 }
    }
}
