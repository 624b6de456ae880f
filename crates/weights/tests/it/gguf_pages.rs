//! Memory of a mapped file is released when the weights have been packed.

use std::path::{Path, PathBuf};
use weights::gguf::{Gguf, GgufWriter, TensorInfo, TensorKind, TensorPlan};

const TENSOR_BYTES: usize = 4 << 20;

/// A file of two tensors.
fn write(path: &Path) {
    let mut writer = GgufWriter::new();
    for name in ["first", "second"] {
        let dims = vec![TENSOR_BYTES as u64];
        writer.tensor(TensorPlan {
            name: name.to_owned(),
            dims,
            kind: TensorKind::from_id(24),
        });
    }
    let mut file = std::fs::File::create(path).unwrap();
    writer
        .write(&mut file, |_, sink| sink.write_all(&vec![1; TENSOR_BYTES]))
        .unwrap();
}

/// Resident bytes of the file's mapping, as reported by the system.
fn resident(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let mapping = maps.lines().skip_while(|line| !line.contains(name));
    let line = mapping
        .skip(1)
        .find(|line| line.starts_with("Rss:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

fn sum(tensor: &TensorInfo<'_>) -> usize {
    tensor.bytes.iter().map(|&byte| usize::from(byte)).sum()
}

#[test]
fn released_tensors_are_not_resident() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages-of-two-tensors.gguf");
    write(&path);
    let gguf = Gguf::open(&path).unwrap();
    let [first, second] = ["first", "second"].map(|name| gguf.tensor(name).unwrap());
    assert_eq!(sum(&first) + sum(&second), 2 * TENSOR_BYTES);
    let both = resident(&path);
    assert!(both >= 2 * TENSOR_BYTES, "{both} bytes resident");
    gguf.release(&first);
    let one = resident(&path);
    assert!(
        (TENSOR_BYTES..both - TENSOR_BYTES / 2).contains(&one),
        "{one} of {both} resident"
    );
    gguf.release_pages();
    assert_eq!(resident(&path), 0);
    assert_eq!(sum(&first), TENSOR_BYTES, "it can still be read");
}
