mod admission;
mod adoption;
mod attempts;
mod calls;
mod engine_process;
mod network;
