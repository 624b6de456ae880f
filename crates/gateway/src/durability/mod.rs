//! Durable streams: the records of streams in the journal, and streams that continue after a restart of the process.
