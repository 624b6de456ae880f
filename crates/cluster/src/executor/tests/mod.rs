mod admission;
mod attempts;
mod calls;
mod engine_process;
mod network;
