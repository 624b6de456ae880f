//! One binary: serve, run, chat, pull, models, inspect, synth, config, keys, bench, eval. Flags become settings, settings become
//! a model, an engine and a server; everything else happens on the floors below.

mod args;
mod bounds;
mod commands;
mod config;
mod failure;
mod key_file;
mod keyring;
mod library;
mod loading;
mod logging;
mod pull;
mod reload;
mod terminal;
mod vocabulary;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            logging::complain(&why);
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or_default() {
        Command::Serve(args) => commands::serve::serve(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Chat(args) => commands::chat::chat(&args),
        Command::Inspect(args) => commands::inspect::inspect(&args),
        Command::Synth(args) => commands::synth::synth(&args),
        Command::Config(args) => commands::config::config(&args),
        Command::Pull(args) => commands::pull::pull(&args),
        Command::Models(args) => commands::models::models(&args),
        Command::Keys(args) => commands::keys::keys(&args),
        Command::Bench(command) => commands::bench::bench(&command),
        Command::Eval(args) => commands::eval::eval(&args),
    }
}
