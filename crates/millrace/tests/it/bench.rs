//! `millrace bench` as a user runs it. No figure is judged here, only that it is there.

use crate::support::{Folder, Serving, millrace, stdout, synth};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&millrace(args))).unwrap()
}

#[test]
fn model_is_measured_beside_the_limits_of_the_machine() {
    let line = "bench model --synth tiny-llama:Q8_0 --rounds 1 --json --prompt 40 --gen 3 --batch 1,4 \
                --context 0,60,9999";
    let report = json(&line.split_whitespace().collect::<Vec<_>>());
    let names: Vec<&str> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["test"].as_str())
        .collect();
    let wanted = [
        "prompt 40",
        "decode 3 x 1",
        "decode 3 x 4",
        "prompt 40 @ 60",
        "decode 3 x 1 @ 60",
        "decode 3 x 4 @ 60",
    ];
    assert_eq!(names, wanted);
    for figure in [
        "tokens_per_s",
        "bytes_per_s",
        "bandwidth_share",
        "ops_per_s",
        "peak_share",
    ] {
        assert!(
            report["rows"][0][figure].as_f64() > Some(0.0),
            "{figure}: {report}"
        );
    }
    for limit in [
        "read_small_pages",
        "read_large_pages",
        "f32_ops",
        "int8_ops",
    ] {
        assert!(
            report["limits"][limit].as_f64() > Some(0.0),
            "{limit}: {report}"
        );
    }
    assert!(report["load_ms"].as_f64() > Some(0.0));
    assert!(report["memory"]["weights"].as_u64() > Some(0));
    assert_eq!(report["left_out"].as_object().unwrap().len(), 3, "{report}");
}

#[cfg(all(feature = "gpu", feature = "mini"))]
#[test]
fn decoding_on_a_device_is_measured_with_logits_read_back_and_ahead() {
    if !crate::device::has_device() {
        return;
    }
    // Attention, a choice of experts, and states of sequences.
    for model in ["tiny-llama:Q8_0", "tiny-qwen3moe:F32", "tiny-qwen35:F32"] {
        let line = "--prompt 0 --gen 3 --batch 1,4 --rounds 1 --ahead --device vulkan --json";
        let args = ["bench", "model", "--synth", model];
        let report = json(&[&args[..], &line.split(' ').collect::<Vec<_>>()].concat());
        let rows = report["rows"].as_array().unwrap();
        let names: Vec<_> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
        let wanted = [
            "decode 3 x 1",
            "decode 3 x 1, ahead",
            "decode 3 x 4",
            "decode 3 x 4, ahead",
        ];
        assert_eq!(names, wanted, "{model}");
    }
}

#[test]
fn invalid_benchmark_options_are_named() {
    let rows: [(&[&str], &str); 6] = [
        (&["model", "--synth", "tiny-llama"], "PRESET:FORMAT"),
        (&["model", "--synth", "huge:Q8_0"], "huge"),
        (&["model", "--model", "none.gguf"], "none.gguf"),
        (&["model"], "--model"),
        (
            &[
                "model",
                "--synth",
                "tiny-llama:Q8_0",
                "--prompt",
                "0",
                "--gen",
                "2",
                "--ahead",
            ],
            "does not run ahead",
        ),
        (&["serve", "--url", "https://example.org"], "use http"),
    ];
    for (args, named) in rows {
        let output = millrace(&[&["bench"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(named),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn server_is_measured_in_open_and_closed_loop() {
    let folder = Folder::new("bench");
    let serving = Serving::start(&["serve", &synth(&folder), "--bind", "127.0.0.1:0"]);
    let url = serving.url();
    let common = [
        "bench", "serve", "--url", &url, "--prompt", "40", "--gen", "8", "--json",
    ];
    let loops: [&[&str]; 3] = [
        &["--clients", "4", "--requests", "12", "--ignore-eos"],
        &["--rate", "200", "--requests", "12", "--ignore-eos"],
        &[
            "--clients",
            "2",
            "--requests",
            "12",
            "--ignore-eos",
            "--completions",
        ],
    ];
    for args in loops {
        let report = json(&[&common[..], args].concat());
        assert_eq!(report["answered"], 12, "{report}");
        assert_eq!(report["tokens"], 12 * 8, "{report}");
        assert_eq!(report["between_tokens_ms"]["count"], 12 * 7, "{report}");
        assert_eq!(report["counted_by_frames"], false);
    }
    assert!(serving.terminate().success());
}
