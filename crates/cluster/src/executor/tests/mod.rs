mod admission;
mod adoption;
mod attempts;
mod calls;
mod embedding;
mod engine_process;
mod network;
