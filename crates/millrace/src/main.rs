//! One binary: serve, run, chat, inspect, synth.

fn main() {}
