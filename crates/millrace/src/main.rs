//! One binary: to serve, to answer on the terminal, to keep models, to look at servers and at this machine. Flags become
//! settings, settings become a model, an engine and a server; all else is in the crates below.

mod args;
mod bounds;
mod clock;
mod cluster_node;
mod commands;
mod config;
mod failure;
mod generation;
mod journal_opening;
mod key_file;
mod library;
mod liveness;
mod loading;
mod logging;
mod model_files;
mod model_lookup;
mod model_store;
mod operator_file;
mod packed_cache;
mod progress_bar;
mod pull;
mod signals;
mod terminal_text;
mod upstreams;

use args::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code after a broken pipe on standard output: 128 and SIGPIPE.
const BROKEN_PIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    let code = run_command();
    logging::flush();
    code
}

fn run_command() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Silent, like other Unix tools: the reader has closed the pipe on purpose.
        Err(Failure::BrokenPipe) => ExitCode::from(BROKEN_PIPE),
        Err(why) => {
            logging::print_failure(&why);
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => commands::serve::serve(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Chat(args) => commands::chat::chat(&args),
        Command::Inspect(args) => commands::inspect::inspect(&args),
        Command::Synth(args) => commands::synth::synth(&args),
        Command::Config(args) => commands::config::config(&args),
        Command::Pull(args) => commands::pull::pull(&args),
        Command::Models(args) => commands::models::models(&args),
        Command::Keys(args) => commands::keys::keys(&args),
        Command::Nkey { file } => commands::keys::create_nkey(&file),
        Command::Journal(args) => commands::journal::journal(&args),
        Command::Bench(command) => commands::bench::bench(&command),
        Command::Ps(args) => commands::ps::ps(&args),
        Command::Stop(args) => commands::ps::stop(&args),
        Command::Streams(args) => commands::streams::streams(&args),
        Command::Cp(args) => commands::models::cp(&args),
        Command::Rm(args) => commands::models::rm(&args),
        Command::Health(args) => commands::ps::health(&args),
        Command::Doctor(args) => commands::doctor::doctor(&args),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man { folder } => commands::man(folder.as_deref()),
        Command::Version => commands::version(),
    }
}
