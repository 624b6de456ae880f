//! `millrace pull` and `/api/pull`, from a hub that the test makes: whatever interrupts a pull, the next one goes on,
//! and only what is right gets its name.
//!
//! Promise (Models): a pull that is cut or killed at any byte resumes; a damaged file never gets its name and is
//! reported; a token is sent to the hub only.
//!
//! Promise (Models): a model that is on this machine needs no hub: `pull --if-absent` sends no request, `pull` warns
//! while the hub is down; a revision has a name and a folder of its own.
//!
//! Promise (Models): a pull compares the free space first, and gives up without progress; without a network it names
//! hub, proxy, address and folder; control characters of file names reach no terminal.
//! Also held by `millrace/src/pull/progress.rs`.
//!
//! Promise (Models): a hub that answers 429 or 5xx is asked five times with the pauses that it requests, and named in
//! the final error.

use crate::support::hub::{Asked, Hub, Manners};
use crate::support::{Folder, Serving, millrace, millrace_with, stdout};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// A repository with one model, and where it goes.
struct Rig {
    hub: Hub,
    folder: Folder,
    bytes: Vec<u8>,
}

impl Rig {
    fn start(name: &str, manners: Manners) -> Self {
        let folder = Folder::new(name);
        let file = folder.0.join("made.gguf");
        stdout(&millrace(&["synth", &file.display().to_string()]));
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        let files = vec![("Tiny-Q8_0.gguf", bytes.clone())];
        Self {
            hub: Hub::start(files, manners),
            folder,
            bytes,
        }
    }

    fn vars(&self) -> [(&'static str, String); 2] {
        let directories = json!([self.folder.0]).to_string();
        [
            ("HF_ENDPOINT", self.hub.url()),
            ("MILLRACE_MODELS_DIRECTORIES", directories),
        ]
    }

    /// Runs a command with the hub and the folder, and with further variables.
    fn run(&self, args: &[&str], more: &[(&str, &str)]) -> Output {
        let mut program = crate::support::command(args);
        program.envs(self.vars()).envs(more.iter().copied());
        program.output().unwrap()
    }

    fn pull(&self, name: &str) -> Output {
        self.run(&["pull", name], &[])
    }

    fn target(&self) -> PathBuf {
        self.folder.0.join("org/repo/Tiny-Q8_0.gguf")
    }

    /// What came and is not whole.
    fn part(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.folder.0.join("org/repo")).ok()?;
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|ending| ending == "part"))
    }

    fn expect_whole(&self) {
        assert!(
            std::fs::read(self.target()).unwrap() == self.bytes,
            "what came is what there was"
        );
        assert_eq!(self.part(), None);
    }

    fn offsets(&self) -> Vec<u64> {
        self.hub
            .with(|manners| manners.asked.iter().map(|asked| asked.offset).collect())
    }
}

fn words(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Numbers that look drawn, the same each time.
fn draw(seed: &mut u64, below: usize) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % below
}

#[test]
fn cut_connection_loses_nothing() {
    let mut seed = 7;
    for round in 0..4 {
        let rig = Rig::start(&format!("cuts-{round}"), Manners::default());
        let share = rig.bytes.len() / 6;
        let cuts: Vec<usize> = (0..5).map(|_| 1 + draw(&mut seed, share)).collect();
        rig.hub
            .with(|manners| manners.cuts = cuts.iter().copied().collect());
        stdout(&rig.pull("hf.co/org/repo:Q8_0"));
        rig.expect_whole();
        let mut reached = vec![0];
        for cut in cuts {
            reached.push(reached.last().unwrap() + cut as u64);
        }
        assert_eq!(
            rig.offsets(),
            reached,
            "each goes on where the one before was cut"
        );
        let record =
            std::fs::read_to_string(rig.folder.0.join("names/hf.co%2Forg%2Frepo%3AQ8_0.json"));
        assert!(record.unwrap().contains("\"sha256\""));
    }
}

#[test]
fn progress_without_a_terminal_is_plain_lines() {
    let rig = Rig::start("progress", Manners::default());
    let output = rig.pull("hf.co/org/repo:Q8_0");
    stdout(&output);
    let progress = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = progress.lines().collect();
    assert_eq!(lines.first(), Some(&"listing the repository's files"));
    assert_eq!(lines.last(), Some(&"verifying the checksum"));
    let tenths = lines[1..lines.len() - 1].iter();
    let tenths: Vec<&str> = tenths
        .map(|line| line.strip_prefix("downloading: ").unwrap())
        .collect();
    assert!(tenths.len() <= 11, "one line for each tenth: {progress}");
    assert!(tenths.last().unwrap().starts_with("100 %, "), "{progress}");
    assert!(!progress.contains(['\r', '\x1b']), "{progress:?}");
}

#[test]
fn killed_pull_resumes() {
    let mut seed = 11;
    for round in 0..3 {
        let rig = Rig::start(&format!("killed-{round}"), Manners::default());
        let cut = 1 + draw(&mut seed, rig.bytes.len() - 1);
        rig.hub
            .with(|manners| (manners.cuts, manners.holds) = ([cut].into(), true));
        let mut child = crate::support::command(&["pull", "org/repo"])
            .envs(rig.vars())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        rig.hub.wait_sent(cut);
        let came = || rig.part().map_or(0, |part| part.metadata().unwrap().len());
        while came() == 0 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        rig.hub.with(|manners| manners.holds = false);
        let came = came();
        assert!(
            came <= cut as u64 && !rig.target().exists(),
            "no half file has its name"
        );
        stdout(&rig.pull("org/repo"));
        rig.expect_whole();
        assert_eq!(rig.offsets(), [0, came]);
    }
}

#[test]
fn damaged_file_is_rejected_with_advice() {
    let rig = Rig::start("damaged", Manners::default());
    let mut seed = 13;
    let spoiled = draw(&mut seed, rig.bytes.len());
    rig.hub.with(|manners| manners.spoils = Some(spoiled));
    let said = words(&rig.pull("org/repo"));
    for word in ["damaged", "SHA-256", "thrown away: pull again", "proxy"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(!rig.target().exists() && rig.part().is_none());
    rig.hub.with(|manners| manners.spoils = None);
    stdout(&rig.pull("org/repo"));
    rig.expect_whole();
    // And what was damaged on the disk is fetched again.
    let mut bytes = rig.bytes.clone();
    bytes[spoiled] ^= 1;
    std::fs::write(rig.target(), bytes).unwrap();
    stdout(&rig.pull("org/repo"));
    rig.expect_whole();
    let fetched = rig.offsets().len();
    stdout(&rig.pull("org/repo"));
    assert_eq!(
        rig.offsets().len(),
        fetched,
        "what is there is not fetched again"
    );
}

#[test]
fn busy_hub_is_asked_again_and_named_in_the_end() {
    const BUSY: [(&str, Option<u32>); 3] = [
        ("429 Too Many Requests", Some(1)),
        ("503 Service Unavailable", None),
        ("502 Bad Gateway", Some(0)),
    ];
    let rig = Rig::start("busy", Manners::default());
    rig.hub.with(|manners| manners.busy.extend(BUSY));
    stdout(&rig.pull("org/repo"));
    rig.expect_whole();
    let rows = [
        (
            "503 Service Unavailable",
            Some(0),
            "overloaded or under maintenance",
            5,
        ),
        (
            "429 Too Many Requests",
            Some(3600),
            "a pause of 3600 s; it limits requests",
            1,
        ),
    ];
    for (status, pause, words_of, attempts) in rows {
        let rig = Rig::start("busy-for-long", Manners::default());
        let all = std::iter::repeat_n((status, pause), 9);
        rig.hub.with(|manners| manners.busy.extend(all));
        let output = rig.pull("org/repo");
        let said = words(&output);
        assert!(!output.status.success(), "{said}");
        for part in [status, words_of, &rig.hub.url(), "by another way"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(rig.hub.with(|manners| 9 - manners.busy.len()), attempts);
    }
}

#[test]
fn hub_without_range_requests_sends_the_whole_file() {
    let manners = Manners {
        cuts: [1000, 2000].into(),
        ignores_ranges: true,
        ..Manners::default()
    };
    let rig = Rig::start("ranges", manners);
    stdout(&rig.pull("org/repo"));
    rig.expect_whole();
    assert_eq!(rig.offsets(), [0, 1000, 2000]);
}

#[test]
fn token_is_sent_to_the_hub_only() {
    let manners = Manners {
        redirects: true,
        ..Manners::default()
    };
    let rig = Rig::start("token", manners);
    stdout(&rig.run(&["pull", "org/repo"], &[("HF_TOKEN", "hf_secret")]));
    rig.expect_whole();
    let elsewhere = Asked {
        offset: 0,
        token: None,
    };
    assert_eq!(rig.hub.with(|manners| manners.asked.clone()), [elsewhere]);
}

#[test]
fn unavailable_file_is_named() {
    let rig = Rig::start("refused", Manners::default());
    let rows = [
        (None, "org/repo:Q2_K", "Tiny-Q8_0"),
        (None, "org/other", "not found"),
        (None, "nobody-knows-it", "qwen3:0.6b"),
        (None, "org/../repo", "say hf.co/OWNER/REPOSITORY"),
        (Some("401 Unauthorized"), "org/repo", "HF_TOKEN"),
        (Some("500 Internal Server Error"), "org/repo", "500"),
    ];
    for (status, name, word) in rows {
        rig.hub.with(|manners| manners.status = status);
        let said = words(&rig.pull(name));
        assert!(said.contains(word), "{name}: {said}");
    }
    let evil = Hub::start(
        vec![("../../evil-Q8_0.gguf", b"x".to_vec())],
        Manners::default(),
    );
    let rig = Rig { hub: evil, ..rig };
    assert!(words(&rig.pull("org/repo")).contains("leaves the repository"));
    assert!(
        !Path::new(&rig.folder.0)
            .parent()
            .unwrap()
            .join("evil-Q8_0.gguf")
            .exists()
    );
}

#[test]
fn without_a_network_the_error_names_hub_proxy_address_and_folder() {
    let rig = Rig::start("no-network", Manners::default());
    let vars = rig.vars();
    let directories = vars[1].1.clone();
    let pull = |name: &str, more: &[(&str, &str)]| {
        let endpoint = "http://user:secret@127.0.0.1:1/hub";
        let own = [
            ("HF_ENDPOINT", endpoint),
            ("MILLRACE_MODELS_DIRECTORIES", &directories),
        ];
        let said = words(&millrace_with(&["pull", name], &[&own, more].concat()));
        assert!(!said.contains("secret"), "{said}");
        said
    };
    let folder = rig.folder.0.join("Qwen/Qwen3-0.6B-GGUF");
    let said = pull("qwen3:0.6b", &[]);
    for part in [
        "the hub cannot be reached: ",
        "hub: http://127.0.0.1:1/hub (HF_ENDPOINT",
        "without a proxy (HTTPS_PROXY",
        "the .gguf file with Q8_0 in its name",
        "of http://127.0.0.1:1/hub/Qwen/Qwen3-0.6B-GGUF/tree/main",
        &format!("into {};", folder.display()),
        "`millrace list`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let proxy = [("HTTP_PROXY", "http://me:secret@127.0.0.1:2")];
    let said = pull("org/repo:deep/File-Q8_0.gguf", &proxy);
    for part in [
        "through the proxy 127.0.0.1:2 (",
        "put http://127.0.0.1:1/hub/org/repo/resolve/main/deep/File-Q8_0.gguf into",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A download that breaks off again and again names the file itself.
    rig.hub
        .with(|manners| manners.cuts = std::iter::repeat_n(0, 20).collect());
    let said = words(&rig.pull("org/repo"));
    let address = format!("{}/org/repo/resolve/main/Tiny-Q8_0.gguf", rig.hub.url());
    assert!(
        said.contains("the download was interrupted: ") && said.contains(&address),
        "{said}"
    );
}

#[test]
fn short_names_are_listed_without_a_network() {
    let table = stdout(&millrace(&["pull", "--list"]));
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "ABOUT", "FOR", "FITS"]);
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
    let small = row("all-minilm:22m ");
    assert!(small.contains("MiB  embeddings  "), "{small}");
    assert!(row("qwen3:0.6b ").contains("MiB  text"), "{table}");
    let said = millrace(&["pull"]);
    assert!(!said.status.success(), "a name or --list");
}

#[test]
fn disk_without_room_is_an_error_before_the_download() {
    let rig = Rig::start("small-disk", Manners::default());
    let vars = rig.vars();
    let disk = Folder::new("small-disk-itself");
    let mut program = crate::support::command(&["pull", "org/repo"]);
    program
        .env("HF_ENDPOINT", &vars[0].1)
        .env("MILLRACE_MODELS_DIRECTORIES", json!([disk.0]).to_string());
    let kib = rig.bytes.len() / 2 / 1024;
    let Some(mut program) = crate::support::on_small_disk(&program, &disk.0, kib) else {
        return; // not permitted here
    };
    let said = words(&program.output().unwrap());
    assert!(
        said.contains("the download needs ") && said.contains("free: free some"),
        "{said}"
    );
    assert_eq!(rig.offsets(), [] as [u64; 0], "nothing was downloaded");
}

#[test]
fn control_characters_of_file_names_reach_no_terminal() {
    let rig = Rig::start("control", Manners::default());
    let escape = "\u{1b}]0;owned\u{7}";
    let bad = format!("{escape}-Q8_0.gguf");
    let files = vec![(bad.as_str(), rig.bytes.clone())];
    let rig = Rig {
        hub: Hub::start(files, Manners::default()),
        ..rig
    };
    for (name, why) in [
        ("org/repo", "has control characters"),
        ("org/repo:Q2_K", "has no such file"),
        ("org/repo:Q8_0", "has control characters"),
    ] {
        let said = words(&rig.pull(name));
        assert!(said.contains(why), "{name}: {said:?}");
        assert!(!said.contains(['\u{1b}', '\u{7}']), "{name}: {said:?}");
    }
    // Nor those of a file that is there.
    std::fs::write(rig.folder.0.join(format!("{escape}.gguf")), &rig.bytes).unwrap();
    let listed = stdout(&rig.run(&["list"], &[]));
    assert!(
        listed.contains("\\u{1b}]0;owned\\u{7}") && !listed.contains('\u{1b}'),
        "{listed:?}"
    );
}

#[test]
fn model_that_is_present_needs_no_hub() {
    let rig = Rig::start("present", Manners::default());
    let name = "hf.co/org/repo:Q8_0";
    stdout(&rig.pull(name));
    let run = |args: &[&str], more: &[(&str, &str)]| rig.run(args, more);
    // A hub that answers nothing, one that is down, and none that may be asked.
    rig.hub
        .with(|manners| manners.status = Some("503 Service Unavailable"));
    let kept = run(&["pull", name], &[]);
    stdout(&kept);
    let said = String::from_utf8_lossy(&kept.stderr).into_owned();
    assert!(said.contains("stays as it is on this machine"), "{said}");
    stdout(&run(&["pull", name], &[("HF_HUB_OFFLINE", "1")]));
    let nowhere = [("HF_ENDPOINT", "http://127.0.0.1:1")];
    stdout(&run(&["pull", name], &nowhere));
    let asked = rig.offsets().len();
    let quiet = run(&["pull", "--if-absent", name], &nowhere);
    assert!(stdout(&quiet).contains("is ready"));
    assert_eq!(
        String::from_utf8_lossy(&quiet.stderr),
        "",
        "no request, no warning"
    );
    assert_eq!(rig.offsets().len(), asked);
    rig.expect_whole();
    // What is not here is an error, whatever the flag.
    let said = words(&run(&["pull", "--if-absent", "hf.co/org/other"], &nowhere));
    assert!(said.contains("cannot be reached"), "{said}");
    let said = words(&run(&["pull", "org/other"], &[("HF_HUB_OFFLINE", "1")]));
    assert!(said.contains("HF_HUB_OFFLINE"), "{said}");
}

#[test]
fn revision_has_a_folder_and_a_name_of_its_own() {
    let rig = Rig::start("revision", Manners::default());
    stdout(&rig.pull("hf.co/org/repo@v1.0:Q8_0"));
    let pulled = rig.folder.0.join("org/repo@v1.0/Tiny-Q8_0.gguf");
    assert!(std::fs::read(pulled).unwrap() == rig.bytes && !rig.target().exists());
    let shown = stdout(&rig.run(&["list"], &[]));
    assert!(shown.contains("hf.co/org/repo@v1.0:Q8_0"), "{shown}");
    let absent = words(&rig.pull("org/repo@v2.0"));
    assert!(absent.contains("not found"), "{absent}");
}

#[test]
fn server_pulls_and_then_serves() {
    let rig = Rig::start("served", Manners::default());
    rig.hub.with(|manners| manners.cuts = [777].into());
    let vars = rig.vars();
    let vars = vars.each_ref().map(|(name, value)| (*name, value.as_str()));
    let serving = Serving::start_with(&["serve", "--bind", "127.0.0.1:0"], &vars, Stdio::null());
    let told = serving.post("/api/pull", r#"{"model":"hf.co/org/repo"}"#);
    assert!(
        told.starts_with("HTTP/1.1 200") && told.contains("{\"status\":\"success\"}"),
        "{told}"
    );
    assert!(told.contains("\"digest\":\"sha256:"), "{told}");
    rig.expect_whole();
    let ask = r#"{"model":"hf.co/org/repo","prompt":"A","max_tokens":2}"#;
    let reply = serving.post("/v1/completions", ask);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let tags = serving.get("/api/tags");
    let tags: Value = serde_json::from_str(tags.split_once("\r\n\r\n").unwrap().1).unwrap();
    let sum = std::fs::read_to_string(rig.folder.0.join("names/hf.co%2Forg%2Frepo.json")).unwrap();
    let digest = tags["models"][1]["digest"].as_str().unwrap();
    assert!(sum.contains(digest), "the sum of its content: {tags}");
    let gone = serving.send("DELETE", "/api/delete", "", r#"{"model":"hf.co/org/repo"}"#);
    assert!(gone.starts_with("HTTP/1.1 200"), "{gone}");
    assert!(!rig.target().exists());
    assert!(
        serving
            .post("/v1/completions", ask)
            .starts_with("HTTP/1.1 404")
    );
    let abandoned = serving.post("/api/pull", r#"{"model":"org/other"}"#);
    assert!(
        abandoned.contains("\"error\":\"model 'org/other' not found\""),
        "{abandoned}"
    );
    assert!(serving.terminate().success());
}

/// A repository of safetensors; its files are in the folder, and two more in the hub.
fn saved() -> (Rig, crate::support::folder::Saved, Vec<(String, Vec<u8>)>) {
    let (saved, _) = crate::support::folder::both();
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        (entry.file_name().into_string().unwrap(), bytes)
    };
    let files: Vec<_> = std::fs::read_dir(&saved.folder)
        .unwrap()
        .map(read)
        .collect();
    let listed = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.clone()));
    let unused = [
        ("pytorch_model.bin", vec![1; 64]),
        ("onnx/model.safetensors", vec![2; 64]),
    ];
    let rig = Rig {
        hub: Hub::start(listed.chain(unused).collect(), Manners::default()),
        folder: Folder::new("safetensors-pulled"),
        bytes: Vec::new(),
    };
    (rig, saved, files)
}

#[test]
fn safetensors_repository_is_pulled_completely() {
    let (rig, saved, files) = saved();
    rig.hub.with(|manners| manners.cuts = [5, 300, 1000].into());
    stdout(&rig.pull("org/repo"));
    let home = rig.folder.0.join("org/repo");
    for (name, bytes) in &files {
        assert_eq!(&std::fs::read(home.join(name)).unwrap(), bytes, "{name}");
    }
    let count = std::fs::read_dir(&home).unwrap().count();
    assert_eq!(count, files.len(), "and nothing else");
    let rest = ["A", "-n", "3", "--temperature", "0"];
    let named = [&["run", "--model", "org/repo"][..], &rest].concat();
    let path = saved.folder.display().to_string();
    let alone = [&["run", "--model", &path][..], &rest].concat();
    assert_eq!(stdout(&rig.run(&named, &[])), stdout(&millrace(&alone)));
    std::fs::write(home.join("config.json"), b"{}").unwrap();
    let fetched = rig.offsets().len();
    stdout(&rig.pull("org/repo"));
    assert_eq!(
        rig.offsets().len(),
        fetched + 1,
        "what was changed here is fetched again"
    );
    rig.hub.with(|manners| manners.spoils = Some(1));
    std::fs::remove_file(home.join("config.json")).unwrap();
    let said = words(&rig.pull("org/repo"));
    assert!(
        said.contains("config.json is damaged: its git sum"),
        "{said}"
    );
}
