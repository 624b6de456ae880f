//! One test program under watch: a test that does not end is named, and ends the program.
//!
//! libtest says which test has been running for 60 s, and when a test ends. Where it says nothing at all (with one thread),
//! the bound on silence is what is left.

use crate::shell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that were read and not yet looked at.
const LINES_WAITING_MAX: usize = 1024;
/// Time between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time in which the output of an ended program closes; only processes that a test left behind keep it open.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Begin of libtest's line about a slow test, after the test's name.
const SLOW: &str = " has been running for over ";

/// Bounds on the time of tests.
pub(crate) struct TimeBounds {
    /// From libtest's line about a slow test on.
    pub(crate) test_max: Duration,
    /// Time without a line of the program.
    pub(crate) silence_max: Duration,
}

/// A program that has ended.
pub(crate) struct EndedProgram {
    pub(crate) passes: bool,
    /// What the program wrote, without the lines of tests that passed.
    pub(crate) shown: String,
}

/// Runs a program of libtest to its end, or to that of its bounds.
pub(crate) fn run(command: &mut Command, bounds: &TimeBounds) -> std::io::Result<EndedProgram> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, lines) = sync_channel(LINES_WAITING_MAX);
    send_lines(child.stdout.take(), &sender);
    send_lines(child.stderr.take(), &sender);
    drop(sender);
    let mut watch = Watch::new(shell::now());
    let problem = follow(&mut child, &lines, &mut watch, bounds);
    let mut shown = watch.shown;
    if let Some(why) = &problem {
        kill_tree(&mut child);
        shown.push_str(&format!("KILLED: {why}\n"));
    }
    let status = child.wait()?;
    Ok(EndedProgram {
        passes: status.success() && problem.is_none(),
        shown,
    })
}

/// Reads the program's lines until the end; returns the bound that was passed.
fn follow(
    child: &mut Child,
    lines: &Receiver<String>,
    watch: &mut Watch,
    bounds: &TimeBounds,
) -> Option<String> {
    let mut ended = None;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => watch.take(&line, shell::now()),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = shell::now();
        if ended.is_none() && matches!(child.try_wait(), Ok(Some(_))) {
            ended = Some(now);
        }
        match ended {
            Some(since) if now - since > CLOSE_MAX => {
                return Some("a test left processes behind that keep the output open".to_owned());
            }
            Some(_) => {}
            None => {
                if let Some(why) = watch.overdue(now, bounds) {
                    return Some(why);
                }
            }
        }
    }
}

/// Sends each line of a pipe from a thread, which ends with the pipe.
fn send_lines(pipe: Option<impl Read + Send + 'static>, lines: &SyncSender<String>) {
    let (Some(pipe), lines) = (pipe, lines.clone()) else {
        return;
    };
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if lines.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
}

/// What libtest has said.
struct Watch {
    /// Tests that run for long, and since when that is known.
    slow: BTreeMap<String, Instant>,
    last_line: Instant,
    shown: String,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self {
            slow: BTreeMap::new(),
            last_line: now,
            shown: String::new(),
        }
    }

    fn take(&mut self, line: &str, now: Instant) {
        self.last_line = now;
        let test = line.strip_prefix("test ");
        if let Some((name, _)) = test.and_then(|test| test.split_once(SLOW)) {
            self.slow.entry(name.to_owned()).or_insert(now);
        }
        if let Some((name, result)) = test.and_then(|test| test.rsplit_once(" ... ")) {
            self.slow.remove(name);
            if result == "ok" || result.starts_with("ignored") {
                return;
            }
        }
        self.shown.push_str(line);
        self.shown.push('\n');
    }

    fn overdue(&self, now: Instant, bounds: &TimeBounds) -> Option<String> {
        let is_late = |since: &Instant| now.saturating_duration_since(*since) > bounds.test_max;
        let late: Vec<_> = self
            .slow
            .iter()
            .filter(|(_, since)| is_late(since))
            .collect();
        if !late.is_empty() {
            let names: Vec<_> = late.iter().map(|(name, _)| name.as_str()).collect();
            let seconds = bounds.test_max.as_secs() + 60;
            return Some(format!("over {seconds} s: {}", names.join(", ")));
        }
        let is_silent = now.saturating_duration_since(self.last_line) > bounds.silence_max;
        is_silent.then(|| format!("no line for {} s", bounds.silence_max.as_secs()))
    }
}

/// Kills a program and the processes that its tests have started.
fn kill_tree(child: &mut Child) {
    let mut family = BTreeSet::from([child.id()]);
    let parents = parents();
    loop {
        let before = family.len();
        let children = parents.iter().filter(|(_, parent)| family.contains(parent));
        let children: Vec<_> = children.map(|(id, _)| *id).collect();
        family.extend(children);
        if family.len() == before {
            break;
        }
    }
    family.remove(&child.id());
    // The first one cannot start another any more.
    let _ = child.kill();
    for id in family {
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &id.to_string()]).stderr(Stdio::null());
        let _ = kill.status();
    }
}

/// Ids of processes and of their parents; none where there is no `/proc`.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // After the program's name, which may have any characters: state, then parent.
        let (_, rest) = stat.rsplit_once(')')?;
        Some((id, rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
    };
    entries.filter_map(parent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: TimeBounds = TimeBounds {
        test_max: Duration::from_millis(1),
        silence_max: Duration::from_secs(3600),
    };

    fn shell_script(script: &str, bounds: &TimeBounds) -> EndedProgram {
        run(Command::new("sh").args(["-c", script]), bounds).unwrap()
    }

    #[test]
    fn test_that_does_not_end_is_named_and_killed_with_its_processes() {
        // The child keeps the pipe open: without its death this test would not end.
        let script = "echo 'test a::quick ... ok'; echo 'test a::hangs has been running for over 60 seconds'; \
                      sleep 3600 & wait";
        let ended = shell_script(script, &SHORT);
        assert!(!ended.passes);
        assert!(
            ended.shown.contains("KILLED: over 60 s: a::hangs"),
            "{}",
            ended.shown
        );
        assert!(!ended.shown.contains("quick"), "{}", ended.shown);
    }

    #[test]
    fn slow_test_that_ends_is_no_problem() {
        let script = "echo 'test a::slow has been running for over 60 seconds'; echo 'test a::slow ... ok'; sleep 1";
        assert!(shell_script(script, &SHORT).passes);
        assert!(!shell_script("echo 'test a ... FAILED'; exit 1", &SHORT).passes);
    }

    #[test]
    fn silent_program_is_killed() {
        let bounds = TimeBounds {
            silence_max: Duration::from_millis(1),
            ..SHORT
        };
        let ended = shell_script("sleep 3600", &bounds);
        assert!(!ended.passes && ended.shown.contains("KILLED: no line for 0 s"));
    }
}
