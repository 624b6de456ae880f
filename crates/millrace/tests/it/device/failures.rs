//! A device that fails while a server answers: it is lost, or its driver has no memory left.

use super::faulty_driver::FaultyDriver;
use super::has_device;
use crate::adapters::AdapterFiles;
use crate::images::{self, BLUE, RED};
use crate::support::{Folder, Serving};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use synth::{SynthSpec, VisionSpec};
use testing::wait::wait_until;

/// Tokens of an answer that is long enough to lose a device in it.
const LONG: u64 = 400;

/// Tokens of an answer of a model with a small context.
const SHORT: u64 = 240;

/// Batches of an answer, at most, that give no token.
const BATCHES_BESIDES: u64 = 3;

/// Times that a server is started again whose device was measured as slow.
const RELAUNCHES: usize = 3;

/// A request with a long answer.
struct Question {
    path: &'static str,
    body: Json,
    tokens: u64,
}

impl Question {
    fn new(path: &'static str, tokens: u64, mut body: Json) -> Self {
        body["max_tokens"] = tokens.into();
        body["ignore_eos"] = true.into();
        body["temperature"] = 0.into();
        Self { path, body, tokens }
    }

    fn story() -> Self {
        let messages = json!([{"role": "user", "content": "Tell me a long story."}]);
        Self::new("/v1/chat/completions", LONG, json!({"messages": messages}))
    }

    fn picture(color: [u8; 3], tokens: u64) -> Self {
        let body = images::chat(&images::square(color));
        Self::new("/v1/chat/completions", tokens, body)
    }

    fn adapted(adapters: &Json) -> Self {
        let body = json!({"prompt": "The mill", "lora": adapters});
        Self::new("/v1/completions", SHORT, body)
    }

    /// The answer, or the error.
    fn ask(&self, serving: &Serving) -> Result<String, Json> {
        let reply = serving.post(self.path, &self.body.to_string());
        let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let value: Json = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"));
        match value["usage"]["completion_tokens"].as_u64() {
            Some(tokens) => assert_eq!(tokens, self.tokens, "{value}"),
            None => return Err(value),
        }
        Ok(value["choices"][0].to_string())
    }
}

/// A server whose device fails on request, and its log.
struct Failing {
    driver: FaultyDriver,
    serving: Serving,
    log: PathBuf,
    _folder: Folder,
}

impl Failing {
    /// Starts the server with these arguments and waits until the model is loaded to the device.
    fn start(name: &str, args: &[&str]) -> Self {
        let mut failing = Self::launch(name, args);
        // On a busy machine `auto` may find that the device is slow: it computes on the same processor.
        for _ in 0..RELAUNCHES {
            if !failing.log().contains("the processor computes the model: ") {
                break;
            }
            failing.end();
            failing = Self::launch(name, args);
        }
        failing.expect_said("loaded to the GPU");
        failing
    }

    fn launch(name: &str, args: &[&str]) -> Self {
        let folder = Folder::new(name);
        let driver = FaultyDriver::new(&format!("{name}-driver"), "discrete fast");
        let log = folder.0.join("log");
        let args = [&["serve", "--bind", "127.0.0.1:0"], args].concat();
        let variables = driver.variables();
        let variables = variables
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let file = std::fs::File::create(&log).unwrap();
        Self {
            serving: Serving::start_with(&args, &variables, file),
            driver,
            log,
            _folder: folder,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn expect_said(&self, words: &str) {
        let log = self.log();
        assert!(log.contains(words), "{words}: {log}");
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> f64 {
        let metrics = self.serving.get("/metrics");
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name));
        let value = values.next().unwrap_or_else(|| panic!("no {name}"));
        value.trim().parse().unwrap()
    }

    /// Whether the device is lost, by the metric and by the probe.
    fn is_lost(&self) -> bool {
        let ready = self.serving.get("/health/readiness");
        let is_lost = self.metric("millrace_device_lost ") > 0.0;
        assert_eq!(ready.starts_with("HTTP/1.1 503"), is_lost, "{ready}");
        assert_eq!(ready.contains(" is lost: "), is_lost, "{ready}");
        is_lost
    }

    /// An answer to the question in which the device fails after some tokens.
    fn ask_in_failure(
        &self,
        question: &Question,
        fail: impl FnOnce(&FaultyDriver),
    ) -> Result<String, Json> {
        let (faults, tokens) = (
            "millrace_device_faults_total ",
            "millrace_generated_tokens_total ",
        );
        let before = [faults, tokens].map(|name| self.metric(name));
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| question.ask(&self.serving));
            wait_until("tokens are computed", || {
                self.metric(tokens) > before[1] + 20.0
            });
            fail(&self.driver);
            wait_until("the device fails", || self.metric(faults) > before[0]);
            answer.join().unwrap()
        })
    }

    fn end(self) {
        assert!(self.serving.terminate().success());
    }
}

/// Promise (Arithmetic): an answer during which the device is lost has the text of one that was not disturbed; the second loss
/// within ten minutes moves a model of `auto` to the processor, and the third ends the streams of a named device.
#[test]
fn streams_outlive_the_loss_of_their_device() {
    if !has_device() {
        return;
    }
    let story = Question::story();
    for device in ["vulkan", "auto"] {
        let failing = Failing::start(&format!("device-lost-{device}"), &["--device", device]);
        let wanted = story.ask(&failing.serving).unwrap();
        let in_loss = || failing.ask_in_failure(&story, FaultyDriver::lose);
        assert_eq!(in_loss().as_ref(), Ok(&wanted));
        failing.expect_said("the GPU failed and was opened again: streams continue");
        let second = in_loss().unwrap();
        if device == "vulkan" {
            assert_eq!(second, wanted);
            assert!(!failing.is_lost());
            let third = in_loss().unwrap_err();
            assert_eq!(third["error"]["code"], "device_failed", "{third}");
            assert!(failing.is_lost());
        } else {
            // The tokens after the loss are the processor's.
            failing.expect_said("the processor computes the model from now on");
            assert!(story.ask(&failing.serving).is_ok());
            let device = "millrace_device_info{model=\"millrace-mini\",device=\"cpu\"} ";
            assert_eq!(failing.metric(device), 1.0);
            assert!(!failing.is_lost());
        }
        failing.end();
    }
}

/// Promise (Arithmetic): a driver that has no memory while a model runs ends no process. Where there is memory again, streams
/// continue as after a loss. Where there is none, the processor computes a model of `auto`; streams of a named device end with
/// `device_failed`, and the next request finds the device again.
#[test]
fn streams_outlive_a_driver_without_memory() {
    if !has_device() {
        return;
    }
    let story = Question::story();
    for device in ["vulkan", "auto"] {
        let failing = Failing::start(&format!("device-full-{device}"), &["--device", device]);
        let wanted = story.ask(&failing.serving).unwrap();
        if device == "vulkan" {
            let error = failing.ask_in_failure(&story, FaultyDriver::fill);
            let error = error.unwrap_err();
            assert_eq!(error["error"]["code"], "device_failed", "{error}");
            failing.expect_said("the GPU failed and cannot be opened again");
            assert!(failing.is_lost());
            failing.driver.empty();
            assert_eq!(story.ask(&failing.serving).as_ref(), Ok(&wanted));
            assert!(!failing.is_lost());
        } else {
            let refused = failing.ask_in_failure(&story, FaultyDriver::refuse);
            assert_eq!(refused.as_ref(), Ok(&wanted));
            assert!(failing.ask_in_failure(&story, FaultyDriver::fill).is_ok());
            failing.expect_said("the processor computes the model from now on");
        }
        failing.expect_said("the GPU failed and was opened again: streams continue");
        failing.end();
    }
}

/// Promise (Arithmetic): a device that gives no answer for ten seconds has failed as one that is lost, and nothing waits for its
/// driver: not what is released of it, nor the end of the process.
#[test]
fn streams_outlive_a_device_that_gives_no_answer() {
    if !has_device() {
        return;
    }
    let story = Question::story();
    let failing = Failing::start("device-hangs", &["--device", "auto"]);
    let wanted = story.ask(&failing.serving).unwrap();
    let in_hang = || failing.ask_in_failure(&story, FaultyDriver::hang);
    assert_eq!(in_hang().as_ref(), Ok(&wanted));
    failing.expect_said("the GPU failed and was opened again: streams continue");
    assert!(in_hang().is_ok());
    failing.expect_said("the processor computes the model from now on");
    failing.end();
}

/// Promise (Arithmetic): a token that is drawn on a device costs the driver two submits and two small buffers, for what is uploaded
/// with them, and no memory.
#[test]
fn token_costs_two_submits_and_no_memory_of_the_driver() {
    if !has_device() {
        return;
    }
    let story = Question::story();
    let failing = Failing::start("device-counts", &["--device", "vulkan"]);
    // Memory for uploads is taken with the first tokens, and kept.
    let wanted = story.ask(&failing.serving).unwrap();
    let before = failing.driver.counts();
    assert_eq!(story.ask(&failing.serving).as_ref(), Ok(&wanted));
    let after = failing.driver.counts();
    let [submits, allocations, buffers] = std::array::from_fn(|call| after[call] - before[call]);
    // The prompt has a batch, or two; at the end, a batch was begun in vain.
    let most = LONG + BATCHES_BESIDES;
    let counted = format!("{submits} submits, {allocations} allocations, {buffers} buffers");
    assert!((2 * LONG..=2 * most).contains(&submits), "{counted}");
    assert!((LONG..=2 * most).contains(&buffers), "{counted}");
    assert_eq!(allocations, 0, "{counted}");
    failing.end();
}

/// Asks both questions on the device, and the first of them through losses until the processor computes, where both have the
/// answers of a model that never was elsewhere.
fn check_fallback(name: &str, args: &[&str], questions: &[Question; 2]) {
    let processor = [&["serve", "--bind", "127.0.0.1:0", "--device", "cpu"], args].concat();
    let processor = Serving::start(&processor);
    let wanted = questions
        .each_ref()
        .map(|question| question.ask(&processor));
    assert!(processor.terminate().success());
    assert_ne!(wanted[0], wanted[1], "{name}: the questions are equal");
    let failing = Failing::start(name, &[&["--device", "auto"], args].concat());
    let asked = || {
        questions
            .each_ref()
            .map(|question| question.ask(&failing.serving))
    };
    assert_eq!(asked(), wanted, "{name}: on the device");
    for losses in 1..3 {
        let found = failing.ask_in_failure(&questions[0], FaultyDriver::lose);
        assert_eq!(found, wanted[0], "{name}: {losses} losses");
    }
    failing.expect_said("the processor computes the model from now on");
    assert_eq!(asked(), wanted, "{name}: after the losses");
    failing.end();
}

/// A random tower and its model, in a folder: rows of images that are plain, on three axes with parts for further layers, and that
/// see each other.
fn write_seeing(folder: &Folder, preset: &str) -> [String; 2] {
    let spec = VisionSpec::preset(preset).unwrap();
    let [model, tower] = ["model.gguf", "tower.gguf"].map(|name| folder.0.join(name));
    let text = SynthSpec {
        context: 512,
        // No two tokens of the answers are close: the processor and the device choose the same.
        seed: 7,
        ..spec.text().unwrap()
    };
    text.create(None, &model).unwrap();
    std::fs::write(&tower, spec.to_bytes().unwrap()).unwrap();
    [model, tower].map(|path| path.display().to_string())
}

/// Promise (Images): an answer about an image whose device is lost continues from its tokens, on the device and then on the
/// processor, and is about that image.
#[test]
fn answers_about_images_outlive_the_loss_of_their_device() {
    if !has_device() {
        return;
    }
    let questions = [RED, BLUE].map(|color| Question::picture(color, LONG));
    check_fallback("device-images", &[&images::model()], &questions);
    for preset in ["tiny-qwen3vl_merger", "tiny-gemma3"] {
        let folder = Folder::new(&format!("device-images-{preset}-files"));
        let [model, tower] = write_seeing(&folder, preset);
        let questions = [RED, BLUE].map(|color| Question::picture(color, SHORT));
        let args = [&model, "--mmproj", &tower];
        check_fallback(&format!("device-images-{preset}"), &args, &questions);
    }
}

/// Promise (Arithmetic): an adapter is applied after the loss of a device, too, on the device and then on the processor.
#[test]
fn adapters_outlive_the_loss_of_their_device() {
    if !has_device() {
        return;
    }
    let files = AdapterFiles::new("device-adapters");
    let [model, a, b] = ["tiny.gguf", "a.gguf", "b.gguf"].map(|name| files.path(name));
    let args = [&model, "--lora", &a, "--lora", &b];
    let questions = [
        json!([{"id": 0, "scale": 1.0}, {"id": 1, "scale": -0.5}]),
        json!([]),
    ];
    let questions = questions.each_ref().map(Question::adapted);
    check_fallback("device-adapters-lost", &args, &questions);
}
