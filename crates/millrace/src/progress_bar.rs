//! Progress of long work on standard error: a bar on a terminal, plain lines elsewhere.

use crate::clock::now;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use server::{LoadPhase, LoadProgress, PullNews};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A bar with bytes and their rate.
const BAR: &str = "{msg} [{bar:30}] {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}";
/// A load that ends sooner shows no bar.
const LOAD_DELAY: Duration = Duration::from_millis(300);
/// Plain lines are printed for models of at least this size: smaller ones are loaded before a line is read.
const LOAD_LINES_BYTES_MIN: u64 = 1 << 30;

/// The progress of bytes, as a bar or as lines.
struct BytesBar {
    bar: ProgressBar,
    is_terminal: bool,
    /// Tenths of the plain line that was printed last.
    tenths: Option<u64>,
}

/// The progress of loading a model.
pub(crate) struct LoadBar {
    bar: Option<BytesBar>,
    since: Instant,
}

/// The progress of a download, one bar after another for each file.
pub(crate) struct PullBar {
    bar: Option<BytesBar>,
}

impl BytesBar {
    fn new(message: &'static str, total: u64, position: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template(BAR);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(total), target)
            .with_style(style.progress_chars("##."))
            .with_message(message);
        // The rate does not count what was there before.
        bar.set_position(position);
        bar.reset_eta();
        Self {
            bar,
            is_terminal,
            tenths: None,
        }
    }

    fn set_position(&mut self, position: u64) {
        self.bar.set_position(position);
        let total = self.bar.length().unwrap_or(position);
        let tenths = position.saturating_mul(10) / total.max(1);
        if !self.is_terminal && self.tenths != Some(tenths) {
            self.tenths = Some(tenths);
            let (position, total) = (HumanBytes(position), HumanBytes(total));
            let message = self.bar.message();
            print_line(&format!("{message}: {tenths}0 %, {position} of {total}"));
        }
    }
}

impl LoadBar {
    pub(crate) fn new() -> Self {
        Self {
            bar: None,
            since: now(),
        }
    }

    /// Shows how far the load is.
    pub(crate) fn show(&mut self, progress: LoadProgress) {
        if progress.phase != LoadPhase::Weights {
            return;
        }
        let (done, total) = (progress.bytes_done, progress.bytes_total);
        if self.bar.is_none() && self.is_long(total) {
            self.bar = Some(BytesBar::new("loading the model", total, done));
        }
        if let Some(bar) = &mut self.bar {
            bar.set_position(done);
        }
    }

    fn is_long(&self, total: u64) -> bool {
        if std::io::stderr().is_terminal() {
            now() - self.since >= LOAD_DELAY
        } else {
            total >= LOAD_LINES_BYTES_MIN
        }
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.bar.finish_and_clear();
        }
    }
}

impl PullBar {
    pub(crate) fn new() -> Self {
        Self { bar: None }
    }

    /// Shows how far the download is; never abandons the download.
    pub(crate) fn show(&mut self, news: &PullNews<'_>) -> ControlFlow<()> {
        match *news {
            PullNews::Listing => print_line("listing the repository's files"),
            PullNews::Verifying => {
                self.finish();
                print_line("verifying the checksum");
            }
            PullNews::Naming => {}
            PullNews::Fetching {
                total, completed, ..
            } => {
                let new = || BytesBar::new("downloading", total, completed);
                self.bar.get_or_insert_with(new).set_position(completed);
            }
        }
        ControlFlow::Continue(())
    }

    /// Ends the bar of a file.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.bar.abandon();
        }
    }
}

fn print_line(line: &str) {
    // A closed standard error fails no command.
    let _ = writeln!(std::io::stderr(), "{line}");
}
