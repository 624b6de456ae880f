//! Places where a model's tower is found: Ollama's store, Hugging Face's cache, the model's own file, a folder of safetensors.
//!
//! Promise (Images): the tower of Ollama's projector layer, of a snapshot of Hugging Face's, and of the model's own files is used
//! without being named; `show` says where it is.

use crate::support::{Folder, millrace, millrace_with, stdout};
use kernels::Format;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use synth::{Mix, VisionSpec};
use weights::gguf::{Gguf, GgufWriter, TensorPlan};

const QUESTION: &str = "Which color is the square?";

fn mini(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("mini")
        .join(name)
}

fn model() -> Vec<u8> {
    fs::read(mini("millrace-mini-vision.gguf")).unwrap()
}

fn tower() -> Vec<u8> {
    fs::read(mini("millrace-mini-vision.mmproj.gguf")).unwrap()
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A red square on white, as a BMP file.
fn red_square(folder: &Path) -> String {
    let edge = 64_u32;
    let mut file = b"BM".to_vec();
    file.extend((54 + edge * edge * 3).to_le_bytes());
    file.extend([0; 4]);
    for number in [54, 40, edge, edge] {
        file.extend(number.to_le_bytes());
    }
    file.extend([1, 0, 24, 0]);
    file.extend([0; 24]);
    let inside = 16..48;
    for at in 0..edge * edge {
        let is_inside = inside.contains(&(at / edge)) && inside.contains(&(at % edge));
        file.extend(if is_inside { [30, 30, 220] } else { [255; 3] });
    }
    let path = folder.join("red.bmp");
    put(&path, &file);
    path.display().to_string()
}

/// The answer to the question about a red square names its color.
fn assert_sees(folder: &Folder, model: &str, vars: &[(&str, &str)]) {
    let image = red_square(&folder.0);
    let args = [
        "run",
        "--model",
        model,
        "--image",
        &image,
        "--temperature",
        "0",
        "-n",
        "12",
        QUESTION,
    ];
    let said = stdout(&millrace_with(&args, vars));
    assert!(said.contains("red"), "{model}: {said}");
}

#[test]
fn projector_layer_of_ollamas_store_is_the_tower() {
    let folder = Folder::new("tower-ollama");
    let root = folder.0.join("ollama");
    let digest = |digit: &str| digit.repeat(64);
    put(
        &root.join(format!("blobs/sha256-{}", digest("a"))),
        &model(),
    );
    put(
        &root.join(format!("blobs/sha256-{}", digest("b"))),
        &tower(),
    );
    let layer = |kind: &str, digit: &str| {
        let kind = format!("application/vnd.ollama.image.{kind}");
        json!({"mediaType": kind, "digest": format!("sha256:{}", digest(digit)), "size": 1})
    };
    for (name, layers) in [
        ("seeing", vec![layer("model", "a"), layer("projector", "b")]),
        // A digest that leads out of the store is no tower.
        (
            "blind",
            vec![
                layer("model", "a"),
                json!({"mediaType": "application/vnd.ollama.image.projector", "digest": "sha256:../x"}),
            ],
        ),
    ] {
        let manifest = json!({"schemaVersion": 2, "layers": layers}).to_string();
        let path = format!("manifests/registry.ollama.ai/library/{name}/latest");
        put(&root.join(path), manifest.as_bytes());
    }
    let (root, own) = (
        root.display().to_string(),
        json!([folder.0.join("own")]).to_string(),
    );
    let vars = [
        ("OLLAMA_MODELS", root.as_str()),
        ("MILLRACE_MODELS_DIRECTORIES", own.as_str()),
    ];
    assert_sees(&folder, "seeing:latest", &vars);
    let shown = stdout(&millrace_with(&["show", "seeing:latest"], &vars));
    let line = format!("sees images: sha256-{}, projector idefics3", digest("b"));
    assert!(shown.contains(&line), "{shown}");
    let listed = stdout(&millrace_with(&["ls", "--log", "error"], &vars));
    let line = |name: &str| {
        listed
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(line("seeing:latest").contains("vision"), "{listed}");
}

#[test]
fn tower_in_a_snapshot_of_hugging_face_is_found() {
    let folder = Folder::new("tower-hub");
    let repository = folder.0.join("hub/models--org--mini-GGUF");
    put(&repository.join("blobs/1"), &model());
    put(&repository.join("blobs/2"), &tower());
    put(&repository.join("refs/main"), b"c0ffee\n");
    let snapshot = repository.join("snapshots/c0ffee");
    fs::create_dir_all(&snapshot).unwrap();
    symlink("../../blobs/1", snapshot.join("Mini-F16.gguf")).unwrap();
    symlink("../../blobs/2", snapshot.join("mmproj-Mini-F16.gguf")).unwrap();
    let (hub, own) = (
        folder.0.join("hub").display().to_string(),
        json!([folder.0.join("own")]).to_string(),
    );
    let vars = [
        ("HF_HUB_CACHE", hub.as_str()),
        ("MILLRACE_MODELS_DIRECTORIES", own.as_str()),
    ];
    let name = "org/mini-GGUF/Mini-F16";
    assert_sees(&folder, name, &vars);
    let shown = stdout(&millrace_with(&["show", name], &vars));
    assert!(
        shown.contains("sees images: mmproj-Mini-F16.gguf, projector idefics3"),
        "{shown}"
    );
    let listed = stdout(&millrace_with(&["ls", "--log", "error"], &vars));
    assert!(!listed.contains("mmproj"), "a tower is no model: {listed}");
}

/// The model's file with the keys and tensors of its tower.
fn joined() -> Vec<u8> {
    let [model, tower] = [model(), tower()].map(|bytes| Gguf::from_bytes(bytes).unwrap());
    let mut writer = GgufWriter::new();
    let of_tower = tower.metadata().filter(|(key, _)| key.starts_with("clip."));
    for (key, value) in model.metadata().chain(of_tower) {
        writer.value(key, value);
    }
    let mut contents = Vec::new();
    for tensor in model.tensors().chain(tower.tensors()) {
        let (name, dims, kind) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.kind);
        writer.tensor(TensorPlan { name, dims, kind });
        contents.push(tensor.bytes.to_vec());
    }
    let (mut next, mut out) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

#[test]
fn tower_inside_of_the_models_file_is_used() {
    let folder = Folder::new("tower-inside");
    let path = folder.0.join("whole.gguf");
    put(&path, &joined());
    let path = path.display().to_string();
    assert_sees(&folder, &path, &[]);
    let shown = stdout(&millrace(&["show", &path]));
    assert!(
        shown.contains("sees images: whole.gguf (its own files), projector idefics3"),
        "{shown}"
    );
    // A file with a tower inside can be named for another model of that width.
    let other = folder.0.join("text/model.gguf");
    put(&other, &model());
    let named = [("MILLRACE_MODEL_MMPROJ", path.as_str())];
    assert_sees(&folder, &other.display().to_string(), &named);
    // As 8 bits, and with other rows.
    let settings = [
        ("MILLRACE_VISION_QUANTIZE", "q8_0"),
        ("MILLRACE_VISION_IMAGE_TOKENS_MAX", "64"),
    ];
    assert_sees(&folder, &path, &settings);
}

#[test]
fn tower_in_a_folder_of_safetensors_is_shown() {
    let folder = Folder::new("tower-safetensors");
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cpu/tests/goldens/towers");
    let own = folder.0.join("gemma");
    put(
        &own.join("config.json"),
        &fs::read(goldens.join("gemma3.config.json")).unwrap(),
    );
    put(
        &own.join("model.safetensors"),
        &fs::read(goldens.join("gemma3.safetensors")).unwrap(),
    );
    let own = own.display().to_string();
    let shown = stdout(&millrace(&["show", &own]));
    assert!(shown.contains("runs here: gemma3"), "{shown}");
    assert!(
        shown.contains("sees images: gemma (its own files), projector gemma3"),
        "{shown}"
    );
    assert!(
        shown.contains("rows of an image: 16 (256 x 256)"),
        "{shown}"
    );
}

/// Promise (Images): of several towers next to a model, one that fits it is used: F16, else BF16, else `Q8_0`, else F32.
#[test]
fn best_format_of_the_towers_that_fit_is_used() {
    let folder = Folder::new("tower-formats");
    let spec = VisionSpec::preset("tiny-idefics3").unwrap();
    let write = |name: &str, format: Format, width: u32| {
        let tower = VisionSpec {
            mix: Mix::Uniform(format),
            projection_dim: width,
            ..spec.clone()
        };
        put(&folder.0.join(name), &tower.to_bytes().unwrap());
    };
    let path = folder.0.join("text.gguf");
    put(&path, &spec.text().unwrap().to_bytes().unwrap());
    write("mmproj-another.gguf", Format::F16, 2 * spec.projection_dim);
    // The best one is neither the first by name nor by size.
    let towers = [
        ("mmproj-c.gguf", Format::F16),
        ("mmproj-d.gguf", Format::BF16),
        ("mmproj-a.gguf", Format::Q8_0),
        ("mmproj-b.gguf", Format::F32),
    ];
    for (name, format) in towers {
        write(name, format, spec.projection_dim);
    }
    let model = path.display().to_string();
    for (name, _) in towers {
        let shown = stdout(&millrace(&["show", &model]));
        let line = format!("sees images: {name}, projector idefics3");
        assert!(shown.contains(&line), "{name}: {shown}");
        fs::remove_file(folder.0.join(name)).unwrap();
    }
    let shown = stdout(&millrace(&["show", &model]));
    assert!(!shown.contains("sees images"), "{shown}");
}

#[test]
fn rows_out_of_bounds_are_refused() {
    let model = mini("millrace-mini-vision.gguf").display().to_string();
    for (vars, part) in [
        (
            [("MILLRACE_VISION_IMAGE_TOKENS_MAX", "15")],
            "vision.image_tokens_max",
        ),
        (
            [("MILLRACE_VISION_IMAGE_TOKENS_HIGH", "16385")],
            "vision.image_tokens_high",
        ),
        (
            [("MILLRACE_VISION_IMAGE_TOKENS_MAX", "5000")],
            "more than vision.image_tokens_high (4096)",
        ),
        ([("MILLRACE_VISION_QUANTIZE", "q4_k")], "vision.quantize"),
    ] {
        let output = millrace_with(&["run", "--model", &model, "-n", "1", "Hello"], &vars);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(part),
            "{part}: {said}"
        );
    }
}
