//! `millrace run --image` and `/image` of `millrace chat` with a model that reads text only.

use super::seer::{Reply, Seer};
use super::{OTHER, PICTURE, SAID};
use crate::support::{Folder, command};
use serde_json::json;
use std::io::Write;
use std::process::{Output, Stdio};

const LOCAL: &str = "millrace-mini-vision";
/// The folder of this model.
const HERE: (&str, &str) = (
    "MILLRACE_MODELS_DIRECTORIES",
    concat!(env!("CARGO_MANIFEST_DIR"), "/mini"),
);

/// A folder with the pictures of these tests.
struct Pictures(Folder);

impl Pictures {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let write = |name: &str, bytes| std::fs::write(folder.0.join(name), bytes).unwrap();
        write("photo.jpg", PICTURE);
        write("red.png", OTHER);
        write("broken.bmp", b"BM");
        write("cut.png", &OTHER[..OTHER.len() / 2]);
        Self(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.0.join(name).display().to_string()
    }

    /// `millrace run` about these images.
    fn run(&self, images: &[&str], vars: &[(&str, &str)], more: &[&str]) -> Output {
        let mut run = command(&["run", "--temp", "0", "-n", "4"]);
        for image in images {
            run.args(["--image", &self.at(image)]);
        }
        run.args(more).arg("What color is it?");
        run.envs(vars.iter().copied()).output().unwrap()
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The description of an image as the model reads it.
fn described(number: usize, by: &str) -> String {
    format!("[Image {number}, described by {by}: ")
}

/// Promise (Images): on the terminal a model that reads text only answers about images, each of which another model describes:
/// of this machine, or of another server. The progress and the descriptions are on standard error.
#[test]
fn another_model_describes_images_of_the_command_line() {
    let pictures = Pictures::new("terminal-proxy");
    let seer = Seer::saying(SAID);
    seer.say("a photo");
    let ran = pictures.run(&["red.png", "photo.jpg"], &seer.variables(), &["--stats"]);
    let shown = errors(&ran);
    assert!(ran.status.success() && !ran.stdout.is_empty(), "{shown}");
    let lines = format!(
        "describing image 1 of 2\n{}{SAID}]\ndescribing image 2 of 2\n{}a photo]\n",
        described(1, "seer"),
        described(2, "seer")
    );
    assert!(shown.starts_with(&lines), "{shown}");
    let counts = "descriptions by seer: prompts of 180 tokens, 16 tokens\n";
    assert!(shown.ends_with(counts), "{shown}");
    let asked = seer.requests();
    assert_eq!((asked.len(), &asked[0]["model"]), (2, &json!("seer")));

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/mini");
    let vars = [
        ("MILLRACE_MODELS_DIRECTORIES", folder),
        ("MILLRACE_VISION_PROXY_PROMPT", "{question}"),
        ("MILLRACE_VISION_PROXY_MAX_TOKENS", "24"),
    ];
    let ran = pictures.run(&["red.png"], &vars, &["--vision-proxy", LOCAL]);
    let shown = errors(&ran);
    assert!(ran.status.success(), "{shown}");
    let description = shown.split(&described(1, LOCAL)).nth(1);
    assert!(
        description.is_some_and(|text| text.contains("red")),
        "{shown}"
    );
}

/// Promise (Images): in a conversation on the terminal, an image is described once.
#[test]
fn image_of_a_conversation_is_described_once() {
    let pictures = Pictures::new("terminal-proxy-chat");
    let seer = Seer::saying(SAID);
    seer.say(SAID);
    let mut chat = command(&["chat", "--temp", "0", "-n", "4"]);
    chat.envs(seer.variables())
        .env("MILLRACE_VISION_PROXY_IMAGES_MAX", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut chat = chat.spawn().unwrap();
    let (image, other) = (pictures.at("red.png"), pictures.at("photo.jpg"));
    let typed = format!("/image {image}\nWhat color is it?\nSure?\n/image {other}\nAnd this?\n");
    chat.stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    let output = chat.wait_with_output().unwrap();
    let shown = errors(&output);
    let answers = String::from_utf8_lossy(&output.stdout).lines().count();
    assert!(output.status.success() && answers >= 3, "{shown}");
    for image in 1..=2 {
        let line = described(image, "seer");
        assert_eq!(shown.matches(&line).count(), 1, "{shown}");
    }
    assert_eq!(seer.requests().len(), 2);
}

/// Images, variables and flags of a command, and what its error says.
type Refusal<'a> = (
    &'a [&'a str],
    &'a [(&'a str, &'a str)],
    &'a [&'a str],
    &'a str,
);

#[test]
fn image_without_a_description_is_an_error_of_the_command() {
    let pictures = Pictures::new("terminal-proxy-errors");
    let named = json!({"millrace-mini": {"vision_proxy": "nowhere"}}).to_string();
    let seer = Seer::start();
    let [model, address] = seer.variables();
    seer.reply(Reply::Status(500));
    let few = ("MILLRACE_VISION_PROXY_IMAGES_MAX", "1");
    let off = ["--no-vision", "--vision-proxy", LOCAL];
    let rows: [Refusal<'_>; 8] = [
        (
            &["red.png"],
            &[],
            &[],
            "red.png: model millrace-mini reads text only, and no model describes images for it (vision.proxy.model)",
        ),
        (
            &["red.png"],
            &[],
            &["--vision-proxy", "nowhere"],
            "vision.proxy.model: there is no model \"nowhere\" here",
        ),
        (
            &["red.png"],
            &[("MILLRACE_MODELS_NAMED", &*named)],
            &[],
            "models.named.millrace-mini.vision_proxy: there is no model \"nowhere\" here",
        ),
        (&["red.png"], &[HERE], &off, "vision.proxy.model: "),
        (
            &["broken.bmp"],
            &[model, address],
            &[],
            "broken.bmp: cannot be decoded as BMP",
        ),
        (
            &["cut.png"],
            &[model, address],
            &[],
            "cut.png: cannot be decoded as PNG",
        ),
        (
            &["red.png", "photo.jpg"],
            &[model, address, few],
            &[],
            "photo.jpg: is image 2 without a description: at most 1 are described",
        ),
        (
            &["red.png"],
            &[model, address],
            &[],
            "vision model seer failed: its server answers with status 500",
        ),
    ];
    for (images, vars, more, why) in rows {
        let output = pictures.run(images, vars, more);
        let shown = errors(&output);
        assert!(
            !output.status.success() && shown.contains(why),
            "{why}: {shown}"
        );
    }
}

#[test]
fn note_takes_the_place_of_a_description_on_the_terminal() {
    let pictures = Pictures::new("terminal-proxy-note");
    let seer = Seer::start();
    let [model, address] = seer.variables();
    seer.reply(Reply::Broken);
    let note = ("MILLRACE_VISION_PROXY_ON_FAILURE", "note");
    let output = pictures.run(&["red.png"], &[model, address, note], &[]);
    let shown = errors(&output);
    let note = "[Image 1 was not described: the vision model seer failed]\n";
    assert!(output.status.success() && shown.contains(note), "{shown}");
}
