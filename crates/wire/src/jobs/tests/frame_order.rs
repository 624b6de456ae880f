//! The order of a job's frames that clients rely on.

use serde_json::Value;

pub(crate) enum Frame {
    Event(Value),
    Done,
}

impl Frame {
    pub(crate) fn parse(frame: &str) -> Self {
        match frame.strip_prefix("data: ").expect("data alone") {
            "[DONE]" => Self::Done,
            json => Self::Event(serde_json::from_str(json).unwrap()),
        }
    }
}

/// State of the order of a job's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOrder {
    Waiting,
    Started { next: u64 },
    Ended,
    Over,
}

impl FrameOrder {
    pub(crate) fn of(frames: &[Frame]) -> Self {
        frames.iter().fold(Self::Waiting, Self::then)
    }

    pub(crate) fn then(self, frame: &Frame) -> Self {
        let event = match (frame, self) {
            (Frame::Done, Self::Ended) => return Self::Over,
            (Frame::Done, _) => panic!("[DONE] in {self:?}"),
            (Frame::Event(event), _) => event,
        };
        match (self, event["type"].as_str().unwrap()) {
            (Self::Waiting, "queued") => self,
            (Self::Waiting, "started") => Self::Started { next: 0 },
            (Self::Started { next }, "token") => {
                assert_eq!(event["i"], next, "tokens are counted without a gap");
                let n = event.get("n").map_or(1, |n| n.as_u64().unwrap());
                Self::Started { next: next + n }
            }
            (Self::Started { .. }, "metrics") => self,
            // Canceled before the first token.
            (Self::Waiting, "end") if event["stop_reason"] == "CANCELLED" => Self::Ended,
            (Self::Started { .. }, "end") | (Self::Waiting | Self::Started { .. }, "error") => {
                Self::Ended
            }
            (_, kind) => panic!("{kind} in {self:?}"),
        }
    }
}
