//! The journal of durable streams on the command line: the start of a server, and a journal without one.

mod inspection;
mod readme;
mod start;
