//! Real vocabularies, if available.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use testing::program::note_skipped_test;
use text::{TokenKind, VocabModel, VocabSpec};

/// The real vocabularies, by name.
#[allow(dead_code, reason = "not every test file goes through all of them")]
pub(crate) const NAMES: [&str; 6] = [
    "deepseek-llm",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "phi-3",
    "qwen2",
];

/// Vocabularies that are checked where the folder has them.
const MORE: [&str; 1] = ["gemma-4"];

/// The names of the real vocabularies in the folder.
#[allow(dead_code, reason = "not every test file goes through all of them")]
pub(crate) fn names(folder: &Path) -> Vec<&'static str> {
    let is_there = |name: &&str| folder.join(format!("ggml-vocab-{name}.gguf")).is_file();
    NAMES
        .into_iter()
        .chain(MORE.into_iter().filter(is_there))
        .collect()
}

/// The folder of the real vocabularies, or that in `MILLRACE_TEST_VOCABULARIES` (llama.cpp's `models`); prints a
/// message if missing.
pub(crate) fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/vocab");
    let folder = std::env::var_os("MILLRACE_TEST_VOCABULARIES").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    note_skipped_test("there is no ../shared/testdata/vocab beside the project");
    None
}

/// One real vocabulary as plain data.
pub(crate) fn spec(folder: &Path, name: &str) -> VocabSpec {
    let file = folder.join(format!("ggml-vocab-{name}.gguf"));
    spec_of(&std::fs::read(file).expect("the vocabulary can be read"))
}

/// Tokenizer metadata of a GGUF file. Panics for invalid files.
fn spec_of(file: &[u8]) -> VocabSpec {
    let mut values = metadata(file);
    let mut take = |key: &str| values.remove(&format!("tokenizer.ggml.{key}"));
    let model = match take("model") {
        Some(Value::Text(model)) if model == "gpt2" => VocabModel::Bpe,
        Some(Value::Text(model)) if model == "llama" => VocabModel::Spm,
        Some(Value::Text(model)) if model == "gemma4" => VocabModel::CharBpe,
        _ => panic!("not gpt2, llama or gemma4"),
    };
    let kind = |number: f64| match number as u32 {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    };
    VocabSpec {
        model,
        pre: take("pre").map(Value::text),
        tokens: take("tokens").expect("tokens").texts(),
        kinds: take("token_type").map_or(Vec::new(), |kinds| kinds.numbers().map(kind).collect()),
        scores: take("scores").map_or(Vec::new(), |scores| {
            scores.numbers().map(|score| score as f32).collect()
        }),
        merges: take("merges").map_or(Vec::new(), Value::texts),
        bos: take("bos_token_id").map(|id| id.number() as u32),
        eos: take("eos_token_id").map(|id| id.number() as u32),
        eot: take("eot_token_id").map(|id| id.number() as u32),
        infill: text::InfillIds::default(),
        unknown: take("unknown_token_id").map(|id| id.number() as u32),
        add_bos: take("add_bos_token").map(|flag| flag.number() != 0.0),
        add_eos: take("add_eos_token").map(|flag| flag.number() != 0.0),
        add_space_prefix: take("add_space_prefix").map(|flag| flag.number() != 0.0),
        merge_spaces: false,
        char_map: Vec::new(),
        lowercase: true,
        strip_accents: true,
    }
}

enum Value {
    Number(f64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            _ => panic!("not a number"),
        }
    }
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            _ => panic!("not a text"),
        }
    }
    fn list(self) -> std::vec::IntoIter<Self> {
        match self {
            Self::List(list) => list.into_iter(),
            _ => panic!("not a list"),
        }
    }
    fn texts(self) -> Vec<String> {
        self.list().map(Self::text).collect()
    }
    fn numbers(self) -> impl Iterator<Item = f64> {
        self.list().map(Self::number)
    }
}

fn metadata(file: &[u8]) -> HashMap<String, Value> {
    let mut reader = Reader(file);
    assert_eq!(reader.take(4), b"GGUF");
    let _version = reader.u32();
    let _tensors = reader.u64();
    (0..reader.u64())
        .map(|_| (reader.text(), reader.value()))
        .collect()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("as long as asked for")
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
    fn text(&mut self) -> String {
        let len = self.u64() as usize;
        String::from_utf8(self.take(len).to_vec()).expect("UTF-8")
    }
    fn value(&mut self) -> Value {
        let kind = self.u32();
        self.value_of(kind)
    }
    fn value_of(&mut self, kind: u32) -> Value {
        Value::Number(match kind {
            0 | 7 => f64::from(self.array::<1>()[0]),
            1 => f64::from(i8::from_le_bytes(self.array())),
            2 => f64::from(u16::from_le_bytes(self.array())),
            3 => f64::from(i16::from_le_bytes(self.array())),
            4 => f64::from(self.u32()),
            5 => f64::from(i32::from_le_bytes(self.array())),
            6 => f64::from(f32::from_le_bytes(self.array())),
            8 => return Value::Text(self.text()),
            9 => {
                let kind = self.u32();
                return Value::List((0..self.u64()).map(|_| self.value_of(kind)).collect());
            }
            10 => self.u64() as f64,
            11 => i64::from_le_bytes(self.array()) as f64,
            12 => f64::from_le_bytes(self.array()),
            _ => panic!("no such kind of value: {kind}"),
        })
    }
}
