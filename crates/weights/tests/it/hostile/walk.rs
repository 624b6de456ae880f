//! Reads everything of a file, for tests and for the fuzz target.

use weights::gguf::{Array, Gguf, Text, Value};

/// Opens the bytes and, if they are a GGUF, reads every value and every byte of every tensor. Returns the
/// error's text, or the number of bytes read. Does not panic for any bytes.
pub(crate) fn walk(bytes: Vec<u8>) -> Result<u64, String> {
    let len = bytes.len();
    let gguf = Gguf::from_bytes(bytes).map_err(|error| error.to_string())?;
    let mut seen = 0;
    for (key, value) in gguf.metadata() {
        assert!(gguf.get(key).is_some(), "{key} is listed and not found");
        seen += value_bytes(value);
        // Only panics matter, not results.
        _ = gguf.need::<u32>(key).map_err(|error| error.to_string());
        _ = gguf.need::<&str>(key).map_err(|error| error.to_string());
        _ = gguf
            .find_array::<f32>(key)
            .map_err(|error| error.to_string());
        _ = gguf
            .find_array::<Text<'_>>(key)
            .map(|array| array.map(Iterator::count));
    }
    let mut data = 0;
    for tensor in gguf.tensors() {
        let found = gguf.tensor(tensor.name).expect("listed and not found");
        assert_eq!(found.offset, tensor.offset, "{}", tensor.name);
        data += tensor.bytes.iter().map(|_| 1).sum::<u64>();
        if let Some((weights, block)) = tensor.kind.block() {
            assert_eq!(
                tensor.bytes.len() as u64,
                tensor.elements() as u64 / weights * block
            );
        }
        _ = tensor.format().map_err(|error| error.to_string());
        gguf.will_need(&tensor);
        gguf.release(&tensor);
    }
    assert!(
        data <= len as u64,
        "tensors that share no byte have {data} of {len}"
    );
    assert_eq!(gguf.tensors().count(), gguf.tensors_len());
    assert_eq!(gguf.metadata().count(), gguf.metadata_len());
    Ok(seen + data)
}

fn value_bytes(value: Value<'_>) -> u64 {
    match value {
        Value::String(text) => text.to_lossy().len() as u64,
        Value::Array(array) => array_bytes(array),
        _ => 1,
    }
}

fn array_bytes(array: Array<'_>) -> u64 {
    let values = array.values();
    assert_eq!(values.len(), array.len());
    assert_eq!(values.clone().count(), array.len(), "an array ended early");
    values.map(value_bytes).sum()
}
