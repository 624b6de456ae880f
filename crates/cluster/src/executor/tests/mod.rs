mod admission;
mod attempts;
mod calls;
mod embedding;
mod engine_process;
mod network;
