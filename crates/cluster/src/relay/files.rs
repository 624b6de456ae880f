//! Files of a request on their way to its engine: the engine is asked which it lacks, and gets those in parts, each answered
//! before the next. Over NATS, since an engine knows no address of a gateway.

use super::SubmitOutcome;
use crate::messages::{FileDigest, FileMessage, FileReply, Rejection, RunReply, file_parts};
use crate::nats::{SubjectKind, UnreadableMessages};
use async_nats::{Client, Request};
use engine::remote::{RemoteFile, RemoteFiles};
use std::sync::Arc;
use std::time::Duration;

/// Time for the answer to one message.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The way to an engine for one request's files.
pub(super) struct FileSender<'a> {
    pub(super) client: &'a Client,
    /// Subject of the engine.
    pub(super) subject: &'a str,
    pub(super) unreadable: &'a UnreadableMessages,
}

impl FileSender<'_> {
    /// Sends the files that the engine lacks. Ends early when nothing else has the files any more: the request is over.
    ///
    /// # Errors
    /// The engine does not answer, or has no room.
    pub(super) async fn send(&self, files: &Arc<RemoteFiles>) -> Result<(), SubmitOutcome> {
        let digests: Vec<FileDigest> = files.files.iter().map(|file| file.digest).collect();
        let lacking = match self.ask(&FileMessage::Lacking(digests)).await? {
            FileReply::Lacks(places) => places,
            reply => return Err(refused(&reply)),
        };
        for place in lacking {
            if let Some(file) = files.files.get(place as usize) {
                self.send_file(file, files).await?;
            }
        }
        Ok(())
    }

    async fn send_file(
        &self,
        file: &RemoteFile,
        files: &Arc<RemoteFiles>,
    ) -> Result<(), SubmitOutcome> {
        for part in 0..file_parts(file.bytes.len()) {
            if Arc::strong_count(files) == 1 {
                return Err(SubmitOutcome::Unanswered);
            }
            let message = FileMessage::part(file.digest, &file.bytes, part);
            match self.ask(&message).await? {
                FileReply::Taken { is_whole: true } => return Ok(()),
                FileReply::Taken { is_whole: false } => {}
                reply => return Err(refused(&reply)),
            }
        }
        // A part that came before was dropped meanwhile.
        Err(SubmitOutcome::Unanswered)
    }

    async fn ask(&self, message: &FileMessage) -> Result<FileReply, SubmitOutcome> {
        let payload = message.encode().map_err(|_| SubmitOutcome::TooLong)?;
        let request = Request::new().payload(payload.into());
        let request = request.timeout(Some(ANSWER_WAIT));
        let answer = self.client.send_request(self.subject.to_owned(), request);
        let answer = answer.await.map_err(|_| SubmitOutcome::Unanswered)?;
        FileReply::decode(&answer.payload).map_err(|why| {
            self.unreadable.note(SubjectKind::Answer, why);
            SubmitOutcome::Unanswered
        })
    }
}

/// The outcome of a request whose files were not taken.
fn refused(reply: &FileReply) -> SubmitOutcome {
    SubmitOutcome::Answered(RunReply::Rejected {
        code: Rejection::Full,
        message: format!("files: {reply:?}"),
    })
}
