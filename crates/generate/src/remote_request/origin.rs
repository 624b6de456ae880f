//! The stream of a request, by which another gateway finds the request on its engine.

use engine::remote::StreamChoice;
use serde::{Deserialize, Serialize};

/// The stream that a request belongs to, in records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestOrigin {
    /// Id of the stream, 32 hexadecimal digits.
    stream: String,
    /// Processes that had continued the stream when the request was submitted.
    pub generation: u64,
    /// Number of the prompt in the stream.
    prompt: u32,
}

impl RequestOrigin {
    /// A prompt of a stream.
    pub fn new(stream: u128, generation: u64, prompt: u32) -> Self {
        Self {
            stream: format!("{stream:032x}"),
            generation,
            prompt,
        }
    }

    /// A choice of the prompt; `None`: the id of the stream is no number.
    pub fn choice(&self, choice: u32) -> Option<StreamChoice> {
        Some(StreamChoice {
            stream: u128::from_str_radix(&self.stream, 16).ok()?,
            prompt: self.prompt,
            choice,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_back_and_others_name_no_stream() {
        for stream in [0, 7, u128::MAX] {
            let origin = RequestOrigin::new(stream, 3, 2);
            let json = serde_json::to_string(&origin).unwrap();
            let read: RequestOrigin = serde_json::from_str(&json).unwrap();
            let (prompt, choice) = (2, 5);
            let expected = StreamChoice {
                stream,
                prompt,
                choice,
            };
            assert_eq!((read.choice(5), read.generation), (Some(expected), 3));
        }
        let read: RequestOrigin = serde_json::from_str(r#"{"stream": "x"}"#).unwrap();
        assert_eq!(read.choice(0), None);
    }
}
