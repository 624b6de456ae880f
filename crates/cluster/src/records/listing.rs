//! The streams that have records.

use super::jet_stream::JetStreamRecords;
use futures_util::TryStreamExt;

/// Streams that are listed; further ones are found by their readers alone.
const STREAMS_MAX: usize = 1 << 20;

impl JetStreamRecords {
    /// Ids of all streams that have records.
    ///
    /// # Errors
    /// JetStream does not answer.
    pub async fn streams(&self) -> Result<Vec<u128>, String> {
        let stream = self.stream().await?;
        let subjects = self.subjects();
        let listed = stream.info_with_subjects(subjects.all_records()).await;
        let mut listed = listed.map_err(|why| why.to_string())?;
        let mut ids = Vec::new();
        while let Some((subject, _)) = listed.try_next().await.map_err(|why| why.to_string())? {
            if ids.len() < STREAMS_MAX {
                ids.extend(subjects.stream_of_records(&subject));
            }
        }
        Ok(ids)
    }
}
