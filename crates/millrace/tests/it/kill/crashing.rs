//! A server with a journal that is killed and started again.

use super::event_reader::{Reading, read_events, read_watched};
use super::transcript::Transcript;
use crate::support::{Folder, Serving};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use testing::wait::PATIENCE;

/// A response without a byte for this long is read as far as it goes. Too short costs coverage, not correctness.
const SILENCE: Duration = Duration::from_millis(60);

/// A server whose process is killed with SIGKILL.
pub(crate) struct Crashing {
    folder: Folder,
    vars: Vec<(String, String)>,
    serving: Option<Serving>,
}

impl Crashing {
    /// A server with these settings beside its own journal.
    pub(crate) fn start(name: &str, vars: &[(&str, &str)]) -> Self {
        let folder = Folder::new(name);
        let journal = folder.0.join("journal").display().to_string();
        let own = [("MILLRACE_JOURNAL_DIRECTORY", journal.as_str())];
        let vars = own.iter().chain(vars);
        let vars = vars.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let mut crashing = Self {
            vars: vars.collect(),
            folder,
            serving: None,
        };
        crashing.restart();
        crashing
    }

    /// Starts the process, which must not run.
    pub(crate) fn restart(&mut self) {
        let vars = self.vars.iter();
        let vars: Vec<_> = vars.map(|(name, value)| (&**name, &**value)).collect();
        let args = ["serve", "--bind", "127.0.0.1:0"];
        let serving = Serving::start_with(&args, &vars, std::process::Stdio::inherit());
        self.serving = Some(serving);
    }

    /// The journal's directory.
    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.0.join("journal")
    }

    /// Sets a variable for the next process.
    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_owned(), value.to_owned()));
    }

    /// Ends the process as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        drop(self.serving.take()); // the drop kills and waits
    }

    /// The running process.
    pub(crate) fn serving(&self) -> &Serving {
        self.serving.as_ref().expect("a running server")
    }

    /// `127.0.0.1:port`.
    pub(crate) fn address(&self) -> String {
        self.serving()
            .url()
            .trim_start_matches("http://")
            .to_owned()
    }
}

/// A client of one stream, which survives the server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) case: String,
    pub(crate) stream: String,
    pub(crate) dialect: &'static str,
    last: Option<String>,
    pub(crate) transcript: Transcript,
    pub(crate) is_over: bool,
    /// Connections that brought an event.
    pub(crate) visits: usize,
}

impl Client {
    /// A client that has nothing yet.
    pub(crate) fn new(case: &str, stream: &str, dialect: &'static str) -> Self {
        Self {
            case: format!("{case}, read as {dialect}"),
            stream: stream.to_owned(),
            dialect,
            last: None,
            transcript: Transcript::default(),
            is_over: false,
            visits: 0,
        }
    }

    /// The id of the last event.
    pub(crate) fn last_id(&self) -> &str {
        self.last.as_deref().expect("an event")
    }

    /// Reads on after this position from now on.
    pub(crate) fn resume_after(&mut self, place: &str) {
        self.last = Some(place.to_owned());
    }

    /// Reads on from the last event until the server is silent or gone.
    pub(crate) fn read_on(&mut self, address: &str) -> Option<u16> {
        if self.is_over {
            return None;
        }
        let (stream, dialect) = (&self.stream, self.dialect);
        let mut head =
            format!("GET /v1/streams/{stream}/events?dialect={dialect}&format=sse HTTP/1.1");
        if let Some(last) = &self.last {
            head += &format!("\r\nlast-event-id: {last}");
        }
        let reading = read_events(address, &head, "", SILENCE).ok()?;
        let status = reading.status;
        self.take(&reading);
        Some(status)
    }

    /// Reads on, and kills the server when so many events with an id have arrived. What the server has sent before is
    /// read to the end of the broken connection.
    pub(crate) fn read_until_killed(&mut self, server: &mut Crashing, events: usize) {
        let address = server.address();
        self.read_until(&address, events, &mut || server.kill());
        server.kill();
    }

    /// Reads on to the end of the connection, and calls `kill` when so many events with an id have arrived.
    pub(crate) fn read_until(&mut self, address: &str, events: usize, kill: &mut dyn FnMut()) {
        let mut watch = |bytes: &[u8]| {
            let ids = bytes.windows(5).filter(|five| five == b"\nid: ").count();
            if ids >= events {
                kill();
            }
            true
        };
        let head = self.request_head();
        let reading = read_watched(address, &head, "", PATIENCE, &mut watch).expect("a response");
        self.take(&reading);
    }

    /// Reads on to the end of the stream.
    pub(crate) fn read_to_end(&mut self, address: &str) {
        let reading = read_events(address, &self.request_head(), "", PATIENCE).expect("a response");
        self.take(&reading);
        assert!(self.is_over, "{}: the stream has no end", self.case);
    }

    fn request_head(&self) -> String {
        let (stream, dialect) = (&self.stream, self.dialect);
        let head = format!("GET /v1/streams/{stream}/events?dialect={dialect}&format=sse HTTP/1.1");
        match &self.last {
            Some(last) => format!("{head}\r\nlast-event-id: {last}"),
            None => head,
        }
    }

    /// Events up to the last one with an id: those behind come again.
    fn take(&mut self, reading: &Reading) {
        if reading.status == 204 {
            self.is_over = true;
            return;
        }
        let with_ids = reading.events.iter().rposition(|event| event.id.is_some());
        let count = match (reading.is_complete, with_ids) {
            (true, _) => reading.events.len(),
            (false, Some(last)) => last + 1,
            (false, None) => 0,
        };
        self.visits += usize::from(count > 0);
        for event in &reading.events[..count] {
            self.transcript.add_event(&event.data);
            if event.id.is_some() {
                self.last.clone_from(&event.id);
            }
        }
        self.is_over |= reading.is_complete && reading.status == 200;
    }
}

/// The description of a stream.
pub(crate) fn description(serving: &Serving, stream: &str) -> Value {
    let reply = serving.get(&format!("/v1/streams/{stream}"));
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"))
}
