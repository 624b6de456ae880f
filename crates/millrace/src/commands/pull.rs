//! `millrace pull`: downloads a model, with a progress bar.

use crate::args::PullArgs;
use crate::clock::now;
use crate::failure::Failure;
use crate::model_store::ModelStore;
use crate::{logging, pull};
use server::PullNews;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Characters of the bar.
const BAR: usize = 30;
/// Time between two updates of the bar.
const EACH: Duration = Duration::from_millis(100);

/// Downloads a model and prints how to run it.
pub(crate) fn pull(args: &PullArgs) -> Result<(), Failure> {
    let config = args.library.settings()?;
    logging::start(&config.settings)?;
    let store = ModelStore::local(&config.settings);
    let mut bar = ProgressBar::new();
    let pulled = pull::pull(&store, &args.name, &mut |news| bar.show(news));
    bar.end_line();
    pulled.map_err(Failure::user)?;
    let name = args.name.trim();
    writeln!(
        std::io::stdout().lock(),
        "{name} is ready: millrace run --model {name} \"Hello\""
    )?;
    Ok(())
}

/// Progress on standard error.
struct ProgressBar {
    is_terminal: bool,
    since: Instant,
    /// Bytes present when the rate measurement began.
    from: Option<u64>,
    shown: Option<Instant>,
    tenths: u64,
}

impl ProgressBar {
    fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            since: now(),
            from: None,
            shown: None,
            tenths: 0,
        }
    }

    fn show(&mut self, news: PullNews<'_>) -> ControlFlow<()> {
        let line = match news {
            PullNews::Listing => "listing the repository's files".to_owned(),
            PullNews::Verifying => "verifying the checksum".to_owned(),
            PullNews::Naming => return ControlFlow::Continue(()),
            PullNews::Fetching {
                total, completed, ..
            } => return self.progress(total, completed),
        };
        self.end_line();
        // A closed standard error does not fail the download.
        let _ = writeln!(std::io::stderr(), "{line}");
        ControlFlow::Continue(())
    }

    fn progress(&mut self, total: u64, completed: u64) -> ControlFlow<()> {
        let now = now();
        let from = *self.from.get_or_insert(completed);
        if completed <= from {
            (self.since, self.from) = (now, Some(completed));
        }
        let tenths = completed.saturating_mul(10) / total.max(1);
        let due = match self.is_terminal {
            true => self.shown.is_none_or(|shown| now - shown >= EACH) || completed == total,
            false => self.shown.is_none() || tenths != self.tenths,
        };
        if due {
            (self.shown, self.tenths) = (Some(now), tenths);
            let passed = now.saturating_duration_since(self.since);
            let line = bar_line(total, completed, completed.saturating_sub(from), passed);
            let mut err = std::io::stderr();
            let _ = match self.is_terminal {
                true => write!(err, "\r{line}\x1b[K").and_then(|()| err.flush()),
                false => writeln!(err, "{line}"),
            };
        }
        ControlFlow::Continue(())
    }

    /// Ends the bar's line.
    fn end_line(&mut self) {
        if self.shown.take().is_some() && self.is_terminal {
            let _ = writeln!(std::io::stderr());
        }
    }
}

fn bar_line(total: u64, completed: u64, came: u64, passed: Duration) -> String {
    let part = completed as f64 / total.max(1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of the bar"
    )]
    let filled = ((part * BAR as f64) as usize).min(BAR);
    let rate = came as f64 / passed.as_secs_f64().max(1e-3);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    format!(
        "[{}{}] {:3.0} %  {:.1} of {:.1} MiB  {:.1} MiB/s",
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        part * 100.0,
        mib(completed as f64),
        mib(total as f64),
        mib(rate)
    )
}
