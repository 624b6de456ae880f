//! Images that another model has described: the descriptions stand in the prompts as the user's text, in the places of the
//! images.
//!
//! A description is as untrusted as its image. It becomes text of the message before the message is escaped, so names of
//! control tokens in it stay text, as in everything that users write.

use crate::request::{Prompt, PromptPiece};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use text::{Message, images_of};

/// Bytes of a question that goes with an image to the model that describes it.
pub const QUESTION_BYTES_MAX: usize = 4096;

/// The way of an image to its description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DescriptionState {
    /// The image waits for its turn, or for the model.
    #[default]
    Waiting,
    /// The model works on the image.
    Describing,
    /// The description is there.
    Described {
        /// Whether an earlier request had it made.
        cached: bool,
    },
    /// There is none; the prompt has a note in place of it.
    Failed,
}

impl DescriptionState {
    /// Name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Describing => "describing",
            Self::Described { .. } => "described",
            Self::Failed => "failed",
        }
    }

    /// Whether an earlier request had the description made; `None` of an image without a description.
    pub fn cached(self) -> Option<bool> {
        match self {
            Self::Described { cached } => Some(cached),
            Self::Waiting | Self::Describing | Self::Failed => None,
        }
    }
}

/// Work of the model that described the images of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptionUsage {
    /// Name of the model.
    pub model: String,
    /// Tokens of its prompts, rows of images among them.
    pub prompt_tokens: u64,
    /// Tokens of its descriptions.
    pub completion_tokens: u64,
    /// Images whose description was known.
    pub cached: u64,
}

/// The user's words about an image: the text of its message, or of the last message of the user that has any. At most
/// [`QUESTION_BYTES_MAX`] bytes.
pub fn question_about(prompts: &[Prompt], image: usize) -> String {
    let found = prompts.iter().find_map(|prompt| in_prompt(prompt, image));
    let mut question = found.unwrap_or_default();
    question.truncate(question.floor_char_boundary(QUESTION_BYTES_MAX));
    question
}

fn in_prompt(prompt: &Prompt, image: usize) -> Option<String> {
    match prompt {
        Prompt::Conversation { messages, .. } => in_messages(messages, image),
        Prompt::Continued { then, .. } => in_prompt(then, image),
        Prompt::Pieces(pieces) => {
            let is_image = |piece: &PromptPiece| *piece == PromptPiece::Image(image);
            let has_image = pieces.iter().any(is_image);
            let texts = pieces.iter().filter_map(|piece| match piece {
                PromptPiece::User(text) => Some(&**text),
                PromptPiece::Template(_) | PromptPiece::Image(_) => None,
            });
            has_image.then(|| texts.collect::<Vec<_>>().join("\n"))
        }
        Prompt::Infill(_) | Prompt::Text(_) | Prompt::Ids(_) | Prompt::Mixed(_) => None,
    }
}

fn in_messages(messages: &[Message], image: usize) -> Option<String> {
    let has_image = |message: &&Message| images_of(&message.content).contains(&image);
    let of_image = text_of(&messages.iter().find(has_image)?.content);
    if !of_image.is_empty() {
        return Some(of_image);
    }
    let by_user = messages
        .iter()
        .rev()
        .filter(|message| message.role == "user");
    let texts = by_user.map(|message| text_of(&message.content));
    Some(
        texts
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_default(),
    )
}

/// The text of a message without its images.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Puts texts in the places of images, by the numbers of the images. Images without a text stay.
pub fn put_descriptions(prompts: &mut [Prompt], texts: &[String]) {
    for prompt in prompts {
        match prompt {
            Prompt::Conversation { messages, .. } => {
                for message in messages {
                    describe_message(&mut message.content, texts);
                }
            }
            Prompt::Continued { then, .. } => put_descriptions(std::slice::from_mut(then), texts),
            Prompt::Pieces(pieces) => {
                for piece in pieces {
                    if let PromptPiece::Image(image) = piece
                        && let Some(text) = texts.get(*image)
                    {
                        *piece = PromptPiece::User(format!("{text}\n").into());
                    }
                }
            }
            Prompt::Infill(_) | Prompt::Text(_) | Prompt::Ids(_) | Prompt::Mixed(_) => {}
        }
    }
}

/// Parts with images become one text, a line for each part: templates of models that read text only take no parts.
fn describe_message(content: &mut Value, texts: &[String]) {
    let images = images_of(content);
    let Value::Array(parts) = content else {
        return;
    };
    if images.is_empty() || images.iter().any(|&image| image >= texts.len()) {
        return;
    }
    let mut images = images.into_iter();
    let lines = parts.iter().filter_map(|part| match part["text"].as_str() {
        Some(text) => Some(text),
        None => images.next().map(|image| &*texts[image]),
    });
    *content = Value::String(lines.collect::<Vec<_>>().join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};
    use text::{image_part, text_part};

    fn message(role: &str, content: Value) -> Message {
        Message {
            role: role.to_owned(),
            content,
            rest: Map::new(),
        }
    }

    fn conversation(messages: Vec<Message>) -> Prompt {
        Prompt::Conversation {
            field: "messages",
            messages,
            tools: Vec::new(),
            continues: false,
            kwargs: Map::new(),
        }
    }

    fn prompts() -> Vec<Prompt> {
        let first = json!([image_part(0), text_part("What is it?"), image_part(1)]);
        let pieces = vec![
            PromptPiece::Template("<user>".to_owned()),
            PromptPiece::Image(0),
            PromptPiece::User("And here?".into()),
        ];
        vec![
            conversation(vec![
                message("user", first),
                message("assistant", json!("A cat.")),
                message("user", json!("Sure?")),
                message("tool", json!([image_part(2)])),
            ]),
            Prompt::Continued {
                context: vec![1],
                then: Box::new(Prompt::Pieces(pieces)),
            },
            Prompt::Text("<image>".to_owned()),
        ]
    }

    #[test]
    fn texts_take_the_places_of_images() {
        let mut all = prompts();
        let texts = ["[one]", "[two]", "[three]"].map(str::to_owned);
        put_descriptions(&mut all, &texts);
        let Prompt::Conversation { messages, .. } = &all[0] else {
            panic!("a conversation");
        };
        let contents: Vec<_> = messages.iter().map(|message| &message.content).collect();
        assert_eq!(
            contents,
            ["[one]\nWhat is it?\n[two]", "A cat.", "Sure?", "[three]"]
        );
        let Prompt::Continued { then, .. } = &all[1] else {
            panic!("a turn after ids");
        };
        let Prompt::Pieces(pieces) = &**then else {
            panic!("pieces");
        };
        assert_eq!(pieces[1], PromptPiece::User("[one]\n".into()));
        assert_eq!(all[2], Prompt::Text("<image>".to_owned()));
    }

    #[test]
    fn images_without_a_text_stay() {
        let mut all = prompts();
        put_descriptions(&mut all, &[]);
        assert_eq!(all, prompts());
    }

    #[test]
    fn question_is_the_text_next_to_the_image() {
        let all = prompts();
        assert_eq!(question_about(&all, 1), "What is it?");
        assert_eq!(
            question_about(&all, 2),
            "Sure?",
            "of the user's last message"
        );
        assert_eq!(question_about(&all[1..], 0), "And here?");
        assert_eq!(question_about(&all, 9), "");
        let long = json!([
            image_part(0),
            text_part("\u{e4}".repeat(QUESTION_BYTES_MAX))
        ]);
        let long = [conversation(vec![message("user", long)])];
        assert_eq!(question_about(&long, 0).len(), QUESTION_BYTES_MAX);
    }
}
