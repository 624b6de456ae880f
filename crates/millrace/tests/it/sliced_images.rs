//! MiniCPM-V: models that cut images into slices, each of which has the rows of learned queries, or of merged patches.

use crate::encoders::body;
use crate::images::{RED, chat, square};
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::json;
use std::fs;
use synth::VisionSpec;
use weights::gguf::{Gguf, GgufWriter, TensorPlan, Value};

/// Writes a small random model with a tower of this preset. Returns its path.
fn model(folder: &Folder, preset: &str) -> String {
    let spec = VisionSpec::preset(preset).unwrap();
    let mut text = spec.text().unwrap();
    text.context = 2048;
    let path = folder.0.join("sliced.gguf");
    fs::write(&path, text.to_bytes().unwrap()).unwrap();
    let tower = folder.0.join("sliced.mmproj.gguf");
    fs::write(tower, spec.to_bytes().unwrap()).unwrap();
    path.display().to_string()
}

/// Promise (Images): MiniCPM-V has rows for the whole image and for each slice, one slice with low detail, in requests, on the
/// terminal and in what `show` says.
#[test]
fn slices_have_rows_in_requests_and_on_the_terminal() {
    for (preset, projector, rows) in [
        ("tiny-resampler", "resampler", 8),
        ("tiny-minicpmv4_6", "minicpmv4_6", 1),
    ] {
        let folder = Folder::new(preset);
        let model = model(&folder, preset);
        let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
        let props = body(&serving.get("/props"), 200);
        assert_eq!(props["modalities"]["vision"], true, "{preset}");
        // 64 by 64 pixels: four slices of 32, and the whole.
        for (detail, slices) in [("auto", 5), ("high", 5), ("low", 1)] {
            let mut request = chat(&square(RED));
            request["messages"][0]["content"][0]["image_url"]["detail"] = json!(detail);
            let answer = serving.post("/v1/chat/completions", &request.to_string());
            let usage = body(&answer, 200)["usage"].clone();
            let found = usage["prompt_tokens_details"]["image_tokens"].as_u64();
            assert_eq!(found, Some(slices * rows), "{preset} {detail}: {usage}");
        }
        let shown = stdout(&millrace(&["show", &model]));
        assert!(shown.contains(&format!("projector {projector}")), "{shown}");
        let image = folder.0.join("red.bmp");
        fs::write(&image, square(RED)).unwrap();
        let image = image.display().to_string();
        let args = [
            "run", "--model", &model, "--image", &image, "-n", "4", "What?",
        ];
        assert!(millrace(&args).status.success(), "{preset}");
    }
}

/// A version of the resampler that is not known may have other arithmetic: it is an error, and no guess.
#[test]
fn unknown_versions_of_the_resampler_are_named() {
    let folder = Folder::new("unknown-resampler");
    let model = model(&folder, "tiny-resampler");
    let tower = folder.0.join("sliced.mmproj.gguf");
    let gguf = Gguf::from_bytes(fs::read(&tower).unwrap()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        let is_version = key == "clip.minicpmv_version";
        writer.value(key, if is_version { Value::U32(7) } else { value });
    }
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        let (name, dims, kind) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.kind);
        writer.tensor(TensorPlan { name, dims, kind });
        contents.push(tensor.bytes.to_vec());
    }
    let (mut next, mut bytes) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut bytes, fill).unwrap();
    let other = folder.0.join("other.gguf");
    fs::write(&other, bytes).unwrap();
    let other = other.display().to_string();
    let output = millrace(&["run", "--model", &model, "--mmproj", &other, "Hello"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let part = "minicpmv_version` is 7, must be one of 2 (MiniCPM-V 2.5), 3 (2.6)";
    assert!(!output.status.success() && said.contains(part), "{said}");
}
