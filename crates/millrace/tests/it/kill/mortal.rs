//! Servers whose process is killed, with a next one that continues the streams.

use super::crashing::Crashing;
use crate::support::Serving;

/// A server that a scene kills.
pub(crate) trait Mortal {
    /// The process that serves now.
    fn serving(&self) -> &Serving;

    /// Kills the process. Another one has the streams; it computes with this instruction set.
    fn replace(&mut self, instruction_set: Option<&str>);

    /// `127.0.0.1:port`.
    fn address(&self) -> String {
        let url = self.serving().url();
        url.trim_start_matches("http://").to_owned()
    }
}

impl Mortal for Crashing {
    fn serving(&self) -> &Serving {
        Self::serving(self)
    }

    fn replace(&mut self, instruction_set: Option<&str>) {
        self.kill();
        if let Some(isa) = instruction_set {
            self.set_variable("MILLRACE_ISA", isa);
        }
        self.restart();
    }
}
