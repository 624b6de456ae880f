//! Pages of keys and values: copied, exported and imported.

use crate::support::{PAGE, device, ids, on_device, pages, spec};
use model::{Batch, ExportPages, Forward, Want};

/// The logits of a token after a page of a prompt.
fn next(model: &mut gpu::Model, token: u32, table: &[u32]) -> Vec<f32> {
    let mut batch = Batch::default();
    batch.push(&[token], PAGE, table, Want::Last);
    model.forward(&batch).expect("a batch").to_vec()
}

#[test]
fn copied_and_imported_pages_have_the_bits_of_the_first() {
    let Some(device) = device() else { return };
    for preset in ["tiny-gemma3", "tiny-gemma4-31b"] {
        let spec = spec(preset, "Q8_0");
        let mut model = on_device(&spec, &device);
        let vocab = model.dims().vocab;
        let prompt = ids(5, PAGE, vocab);
        let mut batch = Batch::default();
        batch.push(&prompt, 0, &pages(3, PAGE), Want::None);
        model.forward(&batch).expect("a batch");
        let wanted = next(&mut model, 9, &[3, 4]);
        // More copies than are kept back.
        for to in (5..31).chain(5..31).chain(5..31) {
            model.copy_page(3, to);
        }
        assert!(next(&mut model, 9, &[17, 4]) == wanted, "{preset}: copied");
        let mut bytes = vec![0; model.page_bytes()];
        assert!(!bytes.is_empty(), "{preset}");
        model.export_page(30, &mut bytes).expect("a page");
        let mut other = on_device(&spec, &device);
        assert!(
            next(&mut other, 9, &[7, 4]) != wanted,
            "{preset}: an empty page"
        );
        other.import_page(7, &bytes);
        assert!(next(&mut other, 9, &[7, 4]) == wanted, "{preset}: imported");
    }
}
