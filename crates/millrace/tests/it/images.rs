//! Images, as a user meets them: a trained model with a tower in every protocol, on the terminal, and refused where a model
//! sees none. Answers are the likeliest tokens, so that they are the same on every machine.
//!
//! Promise (Images): an image in a request of any API changes the answer, the same image gives the same answer, and one that
//! cannot be seen is an error that names the field.

use crate::command_line::prompts::piped;
use crate::encoders::body;
use crate::support::hub::{Hub, Manners};
use crate::support::{Folder, Serving, millrace, millrace_with, stdout};
use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

/// Model and tower, in one folder.
const MODEL: &str = "millrace-mini-vision";
const QUESTION: &str = "Which color is the square?";
const TOKENS: usize = 12;

fn mini(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/mini");
    PathBuf::from(folder).join(name)
}

pub(crate) fn model() -> String {
    mini("millrace-mini-vision.gguf").display().to_string()
}

fn serve(args: &[&str]) -> Serving {
    let model = model();
    let all = [&["serve", &model, "--bind", "127.0.0.1:0"], args].concat();
    Serving::start(&all)
}

/// A square of a color on white, as a BMP file.
pub(crate) fn square(color: [u8; 3]) -> Vec<u8> {
    let (edge, from, to) = (64_u32, 16, 48);
    let mut file = b"BM".to_vec();
    let bytes = 54 + edge * edge * 3;
    file.extend(bytes.to_le_bytes());
    file.extend([0; 4]);
    file.extend(54_u32.to_le_bytes());
    file.extend(40_u32.to_le_bytes());
    file.extend(edge.to_le_bytes());
    file.extend(edge.to_le_bytes());
    file.extend([1, 0, 24, 0]);
    file.extend([0; 24]);
    for y in 0..edge {
        for x in 0..edge {
            let is_inside = (from..to).contains(&x) && (from..to).contains(&y);
            let [red, green, blue] = if is_inside { color } else { [255; 3] };
            file.extend([blue, green, red]);
        }
    }
    file
}

pub(crate) const RED: [u8; 3] = [220, 30, 30];
pub(crate) const BLUE: [u8; 3] = [30, 60, 220];

pub(crate) fn data_url(image: &[u8]) -> String {
    format!("data:image/bmp;base64,{}", STANDARD.encode(image))
}

/// A chat completion about an image.
pub(crate) fn chat(image: &[u8]) -> Value {
    let url = data_url(image);
    json!({"temperature": 0, "max_tokens": TOKENS, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]}]})
}

fn ask(serving: &Serving, image: &[u8]) -> Value {
    body(
        &serving.post("/v1/chat/completions", &chat(image).to_string()),
        200,
    )
}

pub(crate) fn content(answer: &Value) -> String {
    answer["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Questions about pictures of every kind of file: colors, shapes, digits, counts, two pictures, a turned photograph.
///
/// Promise (Images): a small trained model with a tower answers questions about pictures right: JPEG, PNG, WebP, GIF and BMP,
/// larger and smaller than its tile, turned, transparent, gray, and two in one message.
#[test]
fn questions_about_pictures_are_answered_right() {
    assert_eq!(check_answers(&serve(&[]), 1), 30);
}

/// Asks every `each`-th question; returns the number of questions.
pub(crate) fn check_answers(serving: &Serving, each: usize) -> usize {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pictures"));
    let cases = fs::read_to_string(folder.join("cases.jsonl")).unwrap();
    for case in cases.lines().step_by(each) {
        let case: Value = serde_json::from_str(case).unwrap();
        let pictures = case["pictures"].as_array().unwrap().iter();
        // The bytes decide, not the label.
        let part = |picture: &Value| {
            let bytes = fs::read(folder.join(picture.as_str().unwrap())).unwrap();
            json!({"type": "image_url", "image_url": {"url": data_url(&bytes)}})
        };
        let text = json!({"type": "text", "text": case["question"]});
        let parts: Vec<Value> = pictures.map(part).chain([text]).collect();
        let request = json!({"temperature": 0, "max_tokens": 40, "messages": [{"role": "user", "content": parts}]});
        let reply = serving.post("/v1/chat/completions", &request.to_string());
        assert_eq!(content(&body(&reply, 200)), case["answer"], "{case}");
    }
    cases.lines().count()
}

#[test]
fn same_image_is_cached_and_counted() {
    let serving = serve(&[]);
    let (first, again) = (ask(&serving, &square(RED)), ask(&serving, &square(RED)));
    assert_eq!(content(&first), content(&again));
    let usage = |answer: &Value, name: &str| answer["usage"][name].as_u64().unwrap();
    assert_eq!(
        usage(&first, "prompt_tokens"),
        usage(&again, "prompt_tokens")
    );
    let details = |answer: &Value, name: &str| {
        answer["usage"]["prompt_tokens_details"][name]
            .as_u64()
            .unwrap_or(0)
    };
    assert_eq!(details(&first, "cached_tokens"), 0);
    let rows = details(&first, "image_tokens");
    assert!(
        rows >= 16 && details(&again, "cached_tokens") > 0,
        "{again}"
    );
    let text = json!({"temperature": 0, "max_tokens": 1, "messages": [{"role": "user", "content": QUESTION}]});
    let text = body(
        &serving.post("/v1/chat/completions", &text.to_string()),
        200,
    );
    assert!(usage(&first, "prompt_tokens") >= usage(&text, "prompt_tokens") + rows);
    let other = ask(&serving, &square(BLUE));
    assert!(details(&other, "cached_tokens") < details(&again, "cached_tokens"));
    assert_ne!(content(&first), content(&other));
}

#[test]
fn two_clients_share_one_encoding() {
    let serving = serve(&[]);
    let image = square(BLUE);
    let answers: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| content(&ask(&serving, &image))))
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    let metrics = serving.get("/metrics");
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(value("millrace_encodings_total"), "1");
    assert_eq!(value("millrace_images_prepared_total{result=\"ok\"}"), "4");
    assert_eq!(value("millrace_image_bytes"), "0");
}

/// Promise (Images): an image that was decoded for one request is not decoded again for the next, in a server's memory.
#[test]
fn image_of_an_earlier_request_is_not_decoded_again() {
    let serving = serve(&[]);
    let known = || {
        let metrics = serving.get("/metrics");
        let found = metrics
            .lines()
            .find_map(|line| line.strip_prefix("millrace_images_known_total "));
        found.unwrap().to_owned()
    };
    let first = ask(&serving, &square(RED));
    assert_eq!(known(), "0");
    let again = ask(&serving, &square(RED));
    assert_eq!(
        (known(), content(&again)),
        ("1".to_owned(), content(&first))
    );
    ask(&serving, &square(BLUE));
    assert_eq!(known(), "1", "another image");
}

#[test]
fn images_that_cannot_be_seen_are_errors_with_their_field() {
    let serving = serve(&[]);
    let mut cut = square(RED);
    cut.truncate(900);
    let field = "messages[0].content[0]";
    for (image, why) in [
        (&b"\x89PNG\r\n\x1a\n broken"[..], "cannot be decoded as PNG"),
        (&cut[..], "cannot be decoded as BMP"),
        (b"no image at all", "is no image that is known here"),
        (b"%PDF-1.7 and more", "is PDF"),
        (b"", "is empty"),
    ] {
        let reply = serving.post("/v1/chat/completions", &chat(image).to_string());
        let error = body(&reply, 400);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(why) && message.contains(field),
            "{why}: {message}"
        );
    }
    let url = |url: &str| {
        let mut request = chat(b"");
        request["messages"][0]["content"][0]["image_url"]["url"] = json!(url);
        let error = body(
            &serving.post("/v1/chat/completions", &request.to_string()),
            400,
        );
        error["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(url("https://example.com/cat.png").contains("remote images are off (vision.remote)"));
    assert!(url("file:///etc/passwd").contains(field));
    let part = chat(&square(RED))["messages"][0]["content"][0].clone();
    let mut many = chat(b"");
    many["messages"][0]["content"] = json!(vec![part; 17]);
    let error = body(
        &serving.post("/v1/chat/completions", &many.to_string()),
        400,
    );
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("at most 16 images"), "{message}");
    // Nothing of a refused request is left.
    assert!(serving.get("/metrics").contains("millrace_image_bytes 0"));
}

#[test]
fn model_without_a_tower_refuses_images() {
    for args in [&["--no-vision"][..], &["--name", "blind", "--no-mmproj"]] {
        let serving = serve(args);
        let error = body(
            &serving.post("/v1/chat/completions", &chat(&square(RED)).to_string()),
            400,
        );
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("reads text only"), "{message}");
        let props = body(&serving.get("/props"), 200);
        assert_eq!(props["modalities"]["vision"], false);
    }
}

/// Promise (Images): the error of a model that reads text only names at most 8 models that see, loaded or not.
#[test]
fn refusal_names_the_models_that_see() {
    let folder = Folder::new("seeing");
    let directory = json!([folder.0]).to_string();
    let vars = [("MILLRACE_MODELS_DIRECTORIES", directory.as_str())];
    let args = ["serve", "millrace-mini", "--bind", "127.0.0.1:0"];
    let serving = Serving::start_with(&args, &vars, Stdio::null());
    let source =
        json!({"type": "base64", "media_type": "image/png", "data": STANDARD.encode(square(RED))});
    let parts = json!([{"type": "image", "source": source}]);
    let counted = json!({"messages": [{"role": "user", "content": parts}]});
    let expect = |others: &str| {
        for (path, request) in [
            ("/v1/chat/completions", &chat(&square(RED))),
            ("/v1/messages/count_tokens", &counted),
        ] {
            let error = body(&serving.post(path, &request.to_string()), 400);
            let message = error["error"]["message"].as_str().unwrap();
            let why =
                format!("messages[0].content[0]: model millrace-mini reads text only; {others}");
            assert!(message.contains(&why), "{path}: {why}: {message}");
            assert!(!message.contains("a7/m"), "{path}: {message}");
        }
    };
    expect("no model here sees images (docs/images.md)");
    let place = |name: &str| {
        let model = folder.0.join(name);
        fs::create_dir(&model).unwrap();
        for part in ["gguf", "mmproj.gguf"] {
            let from = mini(&format!("{MODEL}.{part}"));
            fs::copy(from, model.join(format!("m.{part}"))).unwrap();
        }
    };
    place("b");
    expect("models with vision here: b/m");
    // A loaded model is the first of many.
    let hello = json!({"model": "b/m", "prompt": "Hello", "max_tokens": 1}).to_string();
    body(&serving.post("/v1/completions", &hello), 200);
    (0..9).for_each(|i| place(&format!("a{i}")));
    let named = "b/m, a0/m, a1/m, a2/m, a3/m, a4/m, a5/m, a6/m";
    expect(&format!("models with vision here: {named}"));
}

/// Promise (Images): a body with images may be longer than one without, up to its own bound; what is longer is a 413.
#[test]
fn body_above_its_bound_is_too_large() {
    let request = chat(&square(RED)).to_string();
    let model = model();
    let statuses = [request.len(), request.len() - 1].map(|bytes_max| {
        let bytes_max = bytes_max.to_string();
        let vars = [
            ("MILLRACE_SERVER_BODY_BYTES_MAX", "4096"),
            ("MILLRACE_SERVER_MEDIA_BODY_BYTES_MAX", bytes_max.as_str()),
        ];
        let args = ["serve", &model, "--bind", "127.0.0.1:0"];
        let serving = Serving::start_with(&args, &vars, Stdio::null());
        let long = json!({"prompt": "a".repeat(5000), "max_tokens": 1}).to_string();
        let error = body(&serving.post("/v1/completions", &long), 413);
        assert_eq!(error["error"]["code"], "body_too_large", "{error}");
        let reply = serving.post("/v1/chat/completions", &request);
        let told = format!("the body may have at most {bytes_max} bytes");
        assert_eq!(reply.contains(&told), reply.starts_with("HTTP/1.1 413"));
        reply["HTTP/1.1 ".len()..][..3].to_owned()
    });
    assert_eq!(statuses, ["200", "413"]);
}

#[test]
fn surfaces_name_what_a_model_sees() {
    let serving = serve(&[]);
    let props = body(&serving.get("/props"), 200);
    assert_eq!(props["modalities"]["vision"], true);
    assert_eq!(props["media_marker"], "<__media__>");
    let request = json!({"model": MODEL}).to_string();
    let shown = body(&serving.post("/api/show", &request), 200);
    let sees = |value: &Value| value.as_array().unwrap().contains(&json!("vision"));
    assert!(sees(&shown["capabilities"]), "{shown}");
    let listed = body(&serving.get("/v1/models"), 200);
    assert!(sees(&listed["data"][0]["capabilities"]), "{listed}");
    let shown = stdout(&millrace(&["show", &model()]));
    assert!(
        shown.contains("sees images: millrace-mini-vision.mmproj.gguf"),
        "{shown}"
    );
    let tower = mini("millrace-mini-vision.mmproj.gguf")
        .display()
        .to_string();
    let shown = stdout(&millrace(&["show", &tower]));
    assert!(
        shown.contains("runs here: idefics3 (tower of models"),
        "{shown}"
    );
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/mini");
    let listed = stdout(&millrace(&["list", "--models-dir", folder]));
    let line = listed.lines().find(|line| line.starts_with(MODEL));
    assert!(line.is_some_and(|line| line.contains("vision")), "{listed}");
    assert!(!listed.contains("mmproj"), "a tower is no model: {listed}");
}

/// Answers of `millrace chat` about an image.
fn conversation(model: &str, image: &str) -> String {
    let args = ["chat", "--model", model, "--temperature", "0", "-n", "12"];
    let typed = format!("/image {image}\n{QUESTION}\n/bye\n");
    stdout(&piped(&args, &[], &typed))
}

#[test]
fn terminal_shows_images_to_the_model() {
    let folder = Folder::new("terminal-images");
    let at = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let (red, broken) = (at("red.bmp", &square(RED)), at("broken.bmp", b"BM"));
    let model = model();
    let run = |image: &str, more: &[&str]| {
        let args = [
            "run",
            "--model",
            &model,
            "--image",
            image,
            "--temperature",
            "0",
            "-n",
            "12",
        ];
        millrace(&[&args[..], more, &[QUESTION]].concat())
    };
    let said = stdout(&run(&red, &[]));
    assert!(said.contains("red"), "{said}");
    assert_eq!(conversation(&model, &red), "The square is red.\n");
    for (image, more, why) in [
        ("no-such.png", &[][..], "--image no-such.png"),
        ("/dev/zero", &[], "--image /dev/zero: is a device"),
        (&*broken, &[], "cannot be decoded as BMP"),
        (&*red, &["--no-vision"], "reads text only"),
    ] {
        let output = run(image, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(why),
            "{why}: {said}"
        );
    }
}

/// Only regular files are images, so that no path stops a conversation, or takes lines from it.
#[test]
fn paths_that_are_no_regular_files_are_no_images() {
    let folder = Folder::new("image-paths");
    let at = |name: &str| folder.0.join(name).display().to_string();
    let (fifo, socket, large) = (at("fifo"), at("socket"), at("large.bmp"));
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::write(&large, [square(RED), vec![0; 20_000]].concat()).unwrap();
    // A reader would have an image: the error is about the path.
    let path = fifo.clone();
    std::thread::spawn(move || fs::write(path, square(RED)));
    let folder_path = folder.0.display().to_string();
    let model = model();
    for (image, why) in [
        (&*fifo, "is a FIFO: an image is read from a regular file"),
        (&socket, "is a socket"),
        (&folder_path, "is a directory"),
        ("/dev/zero", "is a device"),
        (&large, "has more than 20000 bytes (vision.image_bytes_max)"),
        ("-", "No such file"),
    ] {
        let args = ["chat", "--model", &model, "--temperature", "0", "-n", "2"];
        let typed = format!("/image {image}\nHello\n/bye\n");
        let bound = [("MILLRACE_VISION_IMAGE_BYTES_MAX", "20000")];
        let output = piped(&args, &bound, &typed);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains(&format!("/image {image}: {why}")),
            "{why}: {said}"
        );
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{why}: {said}"
        );
    }
    let output = millrace(&["run", "--model", &model, "--image", &fifo, QUESTION]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!("--image {fifo}: is a FIFO")),
        "{said}"
    );
}

#[test]
fn tower_of_another_model_is_an_error_where_it_is_named() {
    let tower = mini("millrace-mini-vision.mmproj.gguf");
    let tower = tower.display().to_string();
    let folder = Folder::new("another-tower");
    let small = crate::support::synth(&folder);
    let output = millrace(&["run", "--model", &small, "--mmproj", &tower, "Hello"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("projection_dim"),
        "{said}"
    );
    fs::copy(&tower, folder.0.join("mmproj-F16.gguf")).unwrap();
    let output = millrace(&["run", "--model", &small, "-n", "1", "Hello"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("reads text only"),
        "{said}"
    );
}

/// Promise (Models): `pull` takes the tower of the preferred format along, unless it is left out; `rm` removes both.
#[test]
fn pull_takes_the_tower_along() {
    let folder = Folder::new("pull-tower");
    let read = |name: &str| fs::read(mini(name)).unwrap();
    let files = vec![
        ("Mini-F16.gguf", read("millrace-mini-vision.gguf")),
        ("mmproj-Mini-Q8_0.gguf", b"not taken".to_vec()),
        (
            "mmproj-Mini-F16.gguf",
            read("millrace-mini-vision.mmproj.gguf"),
        ),
    ];
    let hub = Hub::start(files, Manners::default());
    let directories = json!([folder.0]).to_string();
    let (url, name) = (hub.url(), "hf.co/org/repo");
    let vars = [
        ("HF_ENDPOINT", url.as_str()),
        ("MILLRACE_MODELS_DIRECTORIES", directories.as_str()),
    ];
    let at = |file: &str| folder.0.join("org/repo").join(file);
    stdout(&millrace_with(&["pull", name, "--no-vision"], &vars));
    assert!(at("Mini-F16.gguf").exists() && !at("Mini-F16.mmproj.gguf").exists());
    stdout(&millrace_with(&["pull", name], &vars));
    let tower = fs::read(at("Mini-F16.mmproj.gguf")).unwrap();
    assert!(tower == read("millrace-mini-vision.mmproj.gguf"));
    let listed = stdout(&millrace_with(&["list"], &vars));
    assert!(
        listed.contains("vision") && !listed.contains("mmproj"),
        "{listed}"
    );
    stdout(&millrace_with(&["rm", name], &vars));
    assert!(!at("Mini-F16.gguf").exists() && !at("Mini-F16.mmproj.gguf").exists());
}

/// A conversation with more images than a request may have is an error that says so; where turns may be dropped, the oldest
/// ones are.
#[test]
fn conversation_with_too_many_images_is_truncated() {
    let model = model();
    let args = ["serve", &model, "--bind", "127.0.0.1:0"];
    let vars = [("MILLRACE_VISION_IMAGES_MAX", "2")];
    let serving = Serving::start_with(&args, &vars, Stdio::null());
    let post = |path: &str, request: &Value| serving.post(path, &request.to_string());
    let (path, count) = ("/v1/responses", "/v1/responses/input_tokens");
    let turn = |color: [u8; 3], previous: &Value| {
        let image = json!({"type": "input_image", "image_url": data_url(&square(color))});
        let content = json!([image, {"type": "input_text", "text": QUESTION}]);
        json!({"temperature": 0, "max_output_tokens": 16, "previous_response_id": previous,
            "input": [{"role": "user", "content": content}]})
    };
    let image_tokens = |said: &Value| {
        let details = &said["usage"]["input_tokens_details"];
        details["image_tokens"].as_u64().unwrap()
    };
    let first = body(&post(path, &turn(RED, &Value::Null)), 200);
    let second = body(&post(path, &turn(RED, &first["id"])), 200);
    assert_eq!(image_tokens(&second), 2 * image_tokens(&first));
    let mut third = turn(BLUE, &second["id"]);
    for path in [path, count] {
        let error = body(&post(path, &third), 400)["error"]["message"].to_string();
        let why = "is image 3 of 3, with those of earlier turns: at most 2 images are taken";
        assert!(error.contains(why), "{error}");
    }
    third["truncation"] = json!("auto");
    let said = body(&post(path, &third), 200);
    assert_eq!(image_tokens(&said), image_tokens(&second));
    let counted = body(&post(count, &third), 200);
    assert_eq!(counted["input_tokens"], said["usage"]["input_tokens"]);
    let mut fourth = turn(BLUE, &said["id"]);
    fourth["truncation"] = json!("auto");
    let said = body(&post(path, &fourth), 200);
    assert_eq!(image_tokens(&said), image_tokens(&second));
}
