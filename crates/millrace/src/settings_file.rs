//! Reading of the files that an operator names: settings and keys.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

/// The content and the metadata of a regular file. Other files are an error: opening a FIFO or reading a terminal would
/// block.
///
/// # Errors
/// The file cannot be read, is no regular file, has more than `bytes_max` bytes, or is not UTF-8. The error names the path.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<(String, Metadata), String> {
    let shown = path.display();
    let wrong = |why: std::io::Error| format!("{shown}: {why}");
    if !std::fs::metadata(path).map_err(wrong)?.is_file() {
        return Err(format!("{shown}: must be a regular file"));
    }
    let file = File::open(path).map_err(wrong)?;
    let metadata = file.metadata().map_err(wrong)?;
    let mut text = String::new();
    // The file may grow during the read.
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    if read.map_err(wrong)? as u64 > bytes_max {
        let bytes = metadata.len();
        return Err(format!("{shown}: {bytes} bytes, at most {bytes_max}"));
    }
    Ok((text, metadata))
}

/// Parses YAML. Errors name the line and quote nothing: the lines around a mistake may have a secret.
///
/// # Errors
/// The text is not YAML of this type.
pub(crate) fn parse_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::parse_yaml;
    use serde_json::Value;

    #[test]
    fn errors_quote_no_lines() {
        let rows = [
            "keys:\n  - secret: whsec_LEAK\n    scopes: [x\n",
            "api_key: sk-LEAK\nserver: {bind: 1\n",
        ];
        for text in rows {
            let why = parse_yaml::<Value>(text).expect_err("an open bracket");
            assert!(!why.contains("LEAK") && why.contains("line"), "{why}");
        }
    }
}
