//! `millrace chat`: a conversation on the terminal, or line by line from a pipe. The prefix cache holds earlier turns.

mod conversation;
mod input;

pub(super) use conversation::{text_message, user_message};

use super::pull::pull_absent;
use crate::args::{ChatArgs, GenerateArgs};
use crate::config::Settings;
use crate::failure::Failure;
use crate::generation::{
    AnswerOptions, AnswerPrinter, Generator, Interrupts, WhenIdle, read_image,
};
use crate::model_lookup::expect_directories;
use crate::{loading, logging};
use conversation::{ChatCommand, Conversation, HELP};
use input::{ChatInput, Input};
use std::io::Write;
use std::ops::ControlFlow;
use stream::End;

/// The first line on a terminal.
const GREETING: &str = "/help lists the commands, /bye or Ctrl-D leaves";
/// Printed for Ctrl-C between answers.
const HOW_TO_LEAVE: &str = "(/bye or Ctrl-D leaves)";

/// A conversation with a loaded model.
struct Chat {
    generator: Generator,
    options: AnswerOptions,
    conversation: Conversation,
    interrupts: Interrupts,
    /// Bytes of an image's file.
    image_bytes_max: u64,
}

/// Runs a conversation until the input ends or the user types `/bye`.
pub(crate) fn chat(args: &ChatArgs) -> Result<(), Failure> {
    let config = args.model.settings(args.path.as_ref())?;
    logging::start(&config.settings)?;
    expect_directories(&config)?;
    pull_absent(&config.settings)?;
    talk(&config.settings, args.system.clone(), &args.generate)
}

/// A conversation on the terminal, also for `run` with a model and no prompt.
pub(super) fn talk(
    settings: &Settings,
    system: Option<String>,
    args: &GenerateArgs,
) -> Result<(), Failure> {
    let options = AnswerOptions::read(args)?;
    let loaded = loading::load_model(settings)?;
    let mut input = ChatInput::open()?;
    let generator = Generator::new(&loaded, settings)?;
    let mut chat = Chat {
        options: options.with_defaults(generator.defaults()),
        generator,
        conversation: Conversation::new(system),
        image_bytes_max: settings.vision.image_bytes_max,
        interrupts: Interrupts::start(if input.is_editor() {
            WhenIdle::Continue
        } else {
            WhenIdle::Exit
        })?,
    };
    chat.generator.expect_supported(&chat.options)?;
    chat.options.warn();
    let mut out = std::io::stdout().lock();
    if input.is_editor() {
        writeln!(out, "{GREETING}")?;
    }
    loop {
        out.flush()?;
        match input.read(&chat.conversation.input_prompt())? {
            Input::Text(text) if chat.take_input(&text, &mut out)?.is_break() => break,
            Input::Text(_) => {}
            Input::Interrupted => writeln!(out, "{HOW_TO_LEAVE}")?,
            Input::Ended => break,
        }
    }
    loaded.close();
    Ok(())
}

impl Chat {
    /// Runs a command, or answers a message. `Break` ends the conversation.
    fn take_input(&mut self, text: &str, out: &mut dyn Write) -> Result<ControlFlow<()>, Failure> {
        match ChatCommand::parse(text) {
            _ if text.trim().is_empty() => {}
            Some(Ok(ChatCommand::Leave)) => return Ok(ControlFlow::Break(())),
            Some(Ok(command)) => self.run_command(command, out)?,
            Some(Err(why)) => logging::print_failure(&Failure::user(why)),
            None if self.conversation.add_input(text) => self.answer_input(out)?,
            None => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run_command(&mut self, command: ChatCommand, out: &mut dyn Write) -> Result<(), Failure> {
        let params = &mut self.options.params;
        match command {
            ChatCommand::Leave => {}
            ChatCommand::Help => writeln!(out, "{HELP}")?,
            ChatCommand::Clear => self.conversation.clear(),
            ChatCommand::ShowSystem => {
                writeln!(out, "{}", self.conversation.system().unwrap_or("(none)"))?;
            }
            ChatCommand::System(text) => self.conversation.set_system(text),
            ChatCommand::Image(path) => match read_image("/image", &path, self.image_bytes_max) {
                Ok(image) => self.conversation.add_image(image),
                Err(why) => logging::print_failure(&why),
            },
            ChatCommand::ShowSettings => {
                for line in conversation::setting_lines(params, self.options.thinks) {
                    writeln!(out, "{line}")?;
                }
            }
            ChatCommand::Set { name, value } => {
                let before = self.options.thinks;
                let set = conversation::set(params, &mut self.options.thinks, &name, &value);
                let set = set.map_err(Failure::user);
                let supported = set.and_then(|()| self.generator.expect_supported(&self.options));
                match supported {
                    Ok(()) if name == "temperature" => self.options.warn(),
                    Ok(()) => {}
                    Err(why) => {
                        self.options.thinks = before;
                        logging::print_failure(&why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Answers the conversation. An answer that was interrupted stays in the conversation; on failure, the error is
    /// printed and the input is removed.
    fn answer_input(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let prompt = self.options.conversation(self.conversation.messages());
        let images = self.conversation.images();
        let mut printer = AnswerPrinter::new(out);
        let interrupts = Some(&self.interrupts);
        let answered =
            self.generator
                .answer((prompt, images), &self.options, &mut printer, interrupts);
        let complete = answered.and_then(|answer| {
            match answer.end {
                End::Cancelled => {}
                _ => answer.expect_complete(&self.generator)?,
            }
            Ok(answer.collected)
        });
        match complete {
            Ok(answer) => self.conversation.add_answer(&answer),
            Err(Failure::BrokenPipe) => return Err(Failure::BrokenPipe),
            Err(why) => {
                self.conversation.remove_input();
                logging::print_failure(&why);
            }
        }
        Ok(())
    }
}
