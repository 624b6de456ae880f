//! Answers of an engine to a request.

use super::encoding::{decode_message, push_message};
use super::{MESSAGE_BYTES_MAX, MessageError};
use serde::{Deserialize, Serialize, Serializer};

/// Bytes of the message of a rejection.
const TEXT_BYTES_MAX: usize = 1024;

/// Why an engine rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// No room: another engine, or this one later.
    Full,
    /// The engine shuts down.
    Leaving,
    /// The engine does not serve the model.
    UnknownModel,
    /// The engine's model has other content.
    OtherContent,
    /// The request cannot be read, or no engine of this version can run it.
    Invalid,
}

/// The answer to one part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        #[serde(serialize_with = "cut")]
        message: String,
    },
}

impl RunReply {
    /// Bytes. A message of a rejection is cut to 1,024 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_message(&mut out, self);
        out
    }

    /// The answer of these bytes.
    ///
    /// # Errors
    /// The bytes are no answer, or one of another version.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let reply = decode_message(message, "answer", MESSAGE_BYTES_MAX)?;
        match &reply {
            Self::Rejected { message, .. } if message.len() > TEXT_BYTES_MAX => {
                Err(MessageError::TooMany("bytes of a message", TEXT_BYTES_MAX))
            }
            _ => Ok(reply),
        }
    }
}

fn cut<S: Serializer>(message: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&message[..message.floor_char_boundary(TEXT_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::super::VERSION;
    use super::super::encoding::tests::assert_checked;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_back_and_other_bytes_are_checked() {
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
            assert_checked(&bytes, RunReply::decode, |reply| Ok(reply.encode()));
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
        let mut long = Vec::new();
        push_message(
            &mut long,
            &(2_u8, Rejection::Full, "x".repeat(TEXT_BYTES_MAX + 1)),
        );
        let too_many = MessageError::TooMany("bytes of a message", TEXT_BYTES_MAX);
        assert_eq!(RunReply::decode(&long), Err(too_many));
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
