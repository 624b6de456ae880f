//! The log's lines about a journal that is not durable: one when durability is lost, and one when it is back.

use journal::Durability;

/// What the log says so far.
#[derive(Debug, Default)]
pub(crate) struct DurabilityLog {
    is_lost: bool,
}

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueLine {
    Lost(journal::Impairment),
    Back,
}

impl DurabilityLog {
    /// Logs a change of the durability; `gaps` streams have missing records.
    pub(crate) fn note(&mut self, durability: Durability, gaps: usize) {
        match self.due_line(durability, gaps) {
            Some(DueLine::Lost(why)) => tracing::error!(
                "the journal is not durable: {why}; streams continue, and are lost if the process ends"
            ),
            Some(DueLine::Back) => {
                tracing::warn!("the journal is durable again, with all streams");
            }
            None => {}
        }
    }

    /// Durability is back when the disk has all streams again: a single write that succeeds says little, and each attempt
    /// would be a line.
    fn due_line(&mut self, durability: Durability, gaps: usize) -> Option<DueLine> {
        match (durability, self.is_lost) {
            (Durability::NotDurable(why), false) => {
                self.is_lost = true;
                Some(DueLine::Lost(why))
            }
            (Durability::Durable, true) if gaps == 0 => {
                self.is_lost = false;
                Some(DueLine::Back)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::Impairment;

    #[test]
    fn each_loss_of_durability_has_two_lines() {
        let full = Durability::NotDurable(Impairment::DiskFull);
        let slow = Durability::NotDurable(Impairment::SyncSlow);
        let lost = Some(DueLine::Lost(Impairment::DiskFull));
        let mut log = DurabilityLog::default();
        let steps = [
            (Durability::Durable, 0, None),
            (full, 1, lost),
            (full, 2, None),
            // An attempt: the streams are not whole yet.
            (Durability::Durable, 2, None),
            (slow, 2, None),
            (Durability::Durable, 0, Some(DueLine::Back)),
            (Durability::Durable, 0, None),
            (full, 0, lost),
        ];
        for (step, (durability, gaps, line)) in steps.into_iter().enumerate() {
            assert_eq!(log.due_line(durability, gaps), line, "step {step}");
        }
    }
}
