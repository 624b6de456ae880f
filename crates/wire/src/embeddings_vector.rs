//! Postprocessing and serialization of embedding vectors.

use crate::{base64, json};
use bytes::BytesMut;

/// The first `dimensions` entries of a vector, normalized to length 1 if `norm` is set.
pub fn cut_and_normalize(vector: &[f32], dimensions: Option<usize>, norm: bool) -> Vec<f32> {
    let mut vector = vector[..dimensions.unwrap_or(vector.len()).min(vector.len())].to_vec();
    let squares = vector.iter().map(|&x| f64::from(x) * f64::from(x));
    let length = squares.sum::<f64>().sqrt();
    if norm && length > 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "at most 1")]
        vector
            .iter_mut()
            .for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    vector
}

/// Writes a vector as a JSON list of numbers.
pub fn write_floats(vector: &[f32], out: &mut BytesMut) {
    json::raw(out, "[");
    for (i, &entry) in vector.iter().enumerate() {
        json::raw(out, if i == 0 { "" } else { "," });
        json::raw(out, ryu::Buffer::new().format_finite(entry));
    }
    json::raw(out, "]");
}

/// Writes a vector as little-endian f32 in base64, as a JSON string.
pub fn write_base64(vector: &[f32], out: &mut BytesMut) {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|entry| entry.to_le_bytes())
        .collect();
    json::raw(out, "\"");
    base64::encode(&bytes, out);
    json::raw(out, "\"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_is_cut_before_normalization() {
        let rows: [(&[f32], _, _, &[f32]); 5] = [
            (&[3.0, 4.0], None, true, &[0.6, 0.8]),
            (&[3.0, 4.0, 12.0], Some(2), true, &[0.6, 0.8]),
            (&[3.0, 4.0], None, false, &[3.0, 4.0]),
            (&[0.0, 0.0], None, true, &[0.0, 0.0]),
            (&[3.0, 4.0], Some(9), false, &[3.0, 4.0]),
        ];
        for (vector, dimensions, norm, want) in rows {
            assert_eq!(cut_and_normalize(vector, dimensions, norm), want);
        }
    }

    #[test]
    fn written_vector_parses_to_itself() {
        let vector = [1.0f32, -0.5, 1e-7];
        let mut out = BytesMut::new();
        write_floats(&vector, &mut out);
        assert_eq!(serde_json::from_slice::<Vec<f32>>(&out).unwrap(), vector);
        out.clear();
        write_base64(&[1.0, -0.5], &mut out);
        // Python: base64.b64encode(struct.pack("<2f", 1, -0.5)).
        assert_eq!(&out[..], b"\"AACAPwAAAL8=\"");
    }
}
