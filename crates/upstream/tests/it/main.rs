//! A remote handle whose requests fake OpenAI-compatible servers compute, over loopback.

mod answers;
mod fake_server;
mod hostile;
mod kinds;
mod rig;
