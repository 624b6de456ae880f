//! Writes the synthetic model of a case, for the oracle (`tools/oracle/oracle.py`).
//!
//! `synth CASE OUT`: CASE is a line of `tests/goldens/cases.txt`. Its adapters are written to `OUT.lora0`, `OUT.lora1`, ...; their
//! scales are printed.

#[path = "../tests/it/support/case.rs"]
mod case;

use std::error::Error;

#[expect(clippy::print_stdout, reason = "the scales, for the script")]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [line, out] = args.as_slice() else {
        return Err("usage: synth CASE OUT".into());
    };
    if let Some(encoder) = case::encoder(line) {
        return Ok(std::fs::write(out, encoder.to_bytes()?)?);
    }
    let case = case::Case::parse(line)?;
    case.spec.create(None, std::path::Path::new(out))?;
    for (i, (adapter, scale)) in case.adapters.iter().enumerate() {
        std::fs::write(format!("{out}.lora{i}"), case.spec.adapter_bytes(adapter)?)?;
        println!("{scale}");
    }
    Ok(())
}
