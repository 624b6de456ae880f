//! Answers of an engine to a request.

use super::bytes::push_bytes;
use super::{MESSAGE_BYTES_MAX, MessageError, VERSION, open_message};

/// Bytes of the message of a rejection.
const TEXT_BYTES_MAX: usize = 1024;

/// Why an engine rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rejection {
    /// No room: another engine, or this one later.
    Full = 0,
    /// The engine shuts down.
    Leaving = 1,
    /// The engine does not serve the model.
    UnknownModel = 2,
    /// The engine's model has other content.
    OtherContent = 3,
    /// The request cannot be read, or no engine of this version can run it.
    Invalid = 4,
}

/// The answer to one part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunReply {
    /// The part was kept; others are missing.
    Received,
    /// The request is complete and submitted.
    Accepted,
    /// The request is not run.
    Rejected {
        /// The reason.
        code: Rejection,
        /// For the log.
        message: String,
    },
}

impl RunReply {
    /// Bytes. A message of a rejection is cut to 1,024 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Received => out.push(0),
            Self::Accepted => out.push(1),
            Self::Rejected { code, message } => {
                out.extend([2, *code as u8]);
                let cut = message.floor_char_boundary(TEXT_BYTES_MAX);
                push_bytes(&mut out, &message.as_bytes()[..cut]);
            }
        }
        out
    }

    /// The answer of these bytes.
    ///
    /// # Errors
    /// The bytes are no answer, or one of another version.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let mut reader = open_message(message, "answer", MESSAGE_BYTES_MAX)?;
        let mut take = || {
            Some(match reader.take_u8()? {
                0 => Self::Received,
                1 => Self::Accepted,
                2 => Self::Rejected {
                    code: match reader.take_u8()? {
                        0 => Rejection::Full,
                        1 => Rejection::Leaving,
                        2 => Rejection::UnknownModel,
                        3 => Rejection::OtherContent,
                        4 => Rejection::Invalid,
                        _ => return None,
                    },
                    message: reader.take_text(TEXT_BYTES_MAX)?,
                },
                _ => return None,
            })
        };
        let reply = take();
        reply
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::Malformed("answer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_back_and_no_prefix_is_accepted() {
        let codes = [
            Rejection::Full,
            Rejection::Leaving,
            Rejection::UnknownModel,
            Rejection::OtherContent,
            Rejection::Invalid,
        ];
        let rejected = codes.map(|code| RunReply::Rejected {
            code,
            message: "größer".into(),
        });
        for reply in [RunReply::Received, RunReply::Accepted]
            .into_iter()
            .chain(rejected)
        {
            let bytes = reply.encode();
            assert_eq!(RunReply::decode(&bytes), Ok(reply));
            for cut in 0..bytes.len() {
                assert!(RunReply::decode(&bytes[..cut]).is_err());
            }
            assert!(RunReply::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let reply = RunReply::Rejected {
            code: Rejection::Invalid,
            message: format!("x{}", "ä".repeat(TEXT_BYTES_MAX)),
        };
        let Ok(RunReply::Rejected { message, .. }) = RunReply::decode(&reply.encode()) else {
            panic!("not read back");
        };
        assert_eq!(message.len(), TEXT_BYTES_MAX - 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(mut bytes: Vec<u8>) {
            let _ = RunReply::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
                let _ = RunReply::decode(&bytes);
            }
        }
    }
}
