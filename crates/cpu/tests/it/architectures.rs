//! Tensors and keys of single families.

use crate::support::{bytes, ids, logits, try_load};
use model::Forward;
use weights::LoadError;
use weights::gguf::{Gguf, GgufWriter, TensorPlan};

/// The file with this value of a key, new or not.
pub(crate) fn with_u32(file: &[u8], key: &str, value: u32) -> Vec<u8> {
    let gguf = Gguf::from_bytes(file.to_vec()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().filter(|(other, _)| *other != key) {
        writer.value(key, value);
    }
    writer.u32(key, value);
    for tensor in gguf.tensors() {
        let (name, dims) = (tensor.name.to_owned(), tensor.dims.to_vec());
        let kind = tensor.kind;
        writer.tensor(TensorPlan { name, dims, kind });
    }
    let mut out = Vec::new();
    let fill = |plan: &TensorPlan, sink: &mut dyn std::io::Write| {
        sink.write_all(gguf.tensor(&plan.name).unwrap().bytes)
    };
    writer.write(&mut out, fill).unwrap();
    out
}

#[test]
fn layers_that_predict_further_tokens_change_nothing() {
    for family in ["glm4", "exaone4", "deepseek2"] {
        let line = |layers| bytes(&format!("x preset=tiny-{family} mix=F32 layers={layers}"));
        let key = format!("{family}.nextn_predict_layers");
        let said = |file: Vec<u8>| {
            let mut model = try_load(file, 1).unwrap();
            let prompt = ids(3, 20, model.dims().vocab);
            logits(&mut model, &prompt, 0)
        };
        let whole = said(line(3));
        let cut = said(with_u32(&line(3), &key, 1));
        assert!(cut == said(line(2)), "{family}");
        assert!(cut != whole, "{family}");
    }
}

#[test]
fn norms_of_each_head_have_a_row_for_each_head() {
    for (family, layers) in [("command-r", 64), ("stablelm", 40)] {
        let file = bytes(&format!("x preset=tiny-{family} mix=F32 layers={layers}"));
        let gguf = Gguf::from_bytes(file.clone()).unwrap();
        let dims = |name| gguf.tensor(name).unwrap().dims.to_vec();
        assert_eq!(dims("blk.3.attn_q_norm.weight"), [16, 4]);
        assert_eq!(dims("blk.3.attn_k_norm.weight"), [16, 2]);
        // One row of 32 has the same bytes.
        let name = b"blk.3.attn_k_norm.weight";
        let at = file.windows(name.len()).position(|part| part == name);
        let mut file = file.clone();
        let at = at.unwrap() + name.len() + 4;
        file[at..at + 16].copy_from_slice(&[32u64, 1].map(u64::to_le_bytes).concat());
        match try_load(file, 1).err() {
            Some(LoadError::Shape { tensor, wanted, .. }) => {
                assert_eq!(tensor, "blk.3.attn_k_norm.weight");
                assert_eq!(wanted, [16, 2]);
            }
            other => panic!("{family}: {other:?}"),
        }
    }
}
