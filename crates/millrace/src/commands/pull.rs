//! `millrace pull`: downloads a model, with a progress bar.

use crate::args::PullArgs;
use crate::config::{MmprojChoice, Settings};
use crate::failure::Failure;
use crate::model_lookup::{absent, can_be_pulled};
use crate::model_store::ModelStore;
use crate::packed_cache::PackedCache;
use crate::progress_bar::PullBar;
use crate::pull::PullError;
use crate::terminal_text::Align;
use crate::{logging, pull, terminal_text};
use std::io::Write;

/// Part of the memory of all models that conversations get, when the table says which models fit.
const CONVERSATIONS_PART: u64 = 4;
/// Memory that conversations get at least.
const CONVERSATIONS_BYTES_MIN: u64 = 1 << 30;

/// Downloads a model and prints the command that runs the model, or shows the short names.
pub(crate) fn pull(args: &PullArgs) -> Result<(), Failure> {
    let mut config = args.library.settings()?;
    if args.no_vision {
        config.settings.model.mmproj = MmprojChoice::Off;
    }
    logging::start(&config.settings)?;
    logging::tell_ignored(&config);
    let settings = &config.settings;
    let Some(name) = args.name.as_deref().map(str::trim) else {
        write!(std::io::stdout().lock(), "{}", known_table(settings))?;
        return Ok(());
    };
    let store = ModelStore::local(settings);
    if !(args.if_absent && pull::is_present(&store, name).map_err(Failure::user)?) {
        fetch(&store, name).map_err(Failure::user)?;
        tell_packed(settings, &store, name);
    }
    writeln!(
        std::io::stdout().lock(),
        "{name} is ready: millrace run --model {name} \"Hello\""
    )?;
    Ok(())
}

/// The short names as a table, with what fits the memory for models.
fn known_table(settings: &Settings) -> String {
    let memory = settings.models.limits().memory_bytes;
    let needed = |bytes: u64, memory: u64| {
        bytes.saturating_add((memory / CONVERSATIONS_PART).max(CONVERSATIONS_BYTES_MIN))
    };
    let rows = pull::known_models().map(|known| {
        let fits = memory.map(|memory| needed(known.bytes, memory) <= memory);
        let fits = match fits {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        [
            known.name.to_owned(),
            terminal_text::bytes(known.bytes),
            known.purpose.to_owned(),
            fits.to_owned(),
        ]
    });
    let mut align = [Align::Left; 4];
    align[1] = Align::Right;
    let table = terminal_text::table(["NAME", "ABOUT", "FOR", "FITS"], align, rows);
    let measure = match memory {
        None => "this machine's memory is unknown".to_owned(),
        Some(memory) => format!(
            "FITS: the model and a quarter of {} for conversations (models.memory_budget_mib)",
            terminal_text::bytes(memory)
        ),
    };
    format!("{table}{measure}\nany other repository: millrace pull hf.co/OWNER/REPOSITORY\n")
}

/// Says that the packed weights of a pulled model take disk again.
fn tell_packed(settings: &Settings, store: &ModelStore, name: &str) {
    let model = store.find_local(name);
    let (Some(cache), Some(model)) = (PackedCache::of(settings), model) else {
        return;
    };
    if let Some(note) = packed_note(&cache, model.facts.file_bytes) {
        // A closed standard error fails no command.
        let _ = writeln!(std::io::stderr(), "{note}");
    }
}

/// What the packed weights of a model of so many bytes take; `None`: nothing.
fn packed_note(cache: &PackedCache, bytes: u64) -> Option<String> {
    cache.holds(bytes).then(|| {
        format!(
            "the first load writes packed weights, about {} once more, to {} (models.packed_cache: off spares them)",
            terminal_text::bytes(bytes),
            cache.path().display()
        )
    })
}

/// Downloads the model of the settings, if it is not on this machine and its name is one that `pull` certainly knows.
pub(super) fn pull_absent(settings: &Settings) -> Result<(), Failure> {
    let Some(path) = &settings.model.path else {
        return Ok(());
    };
    let name = path.to_str().filter(|_| can_be_pulled(path));
    let Some(name) = name.filter(|_| absent(settings, path).is_some()) else {
        return Ok(());
    };
    // A closed standard error fails no command.
    let _ = writeln!(
        std::io::stderr(),
        "{name} is not on this machine: pulling it"
    );
    fetch(&ModelStore::local(settings), name).map_err(|why| {
        Failure::user(format!(
            "{name} is not on this machine, and pulling it failed: {why}"
        ))
    })
}

/// Downloads a model with a progress bar.
fn fetch(store: &ModelStore, name: &str) -> Result<(), PullError> {
    let mut bar = PullBar::new();
    let pulled = pull::pull(store, name, &mut |news| bar.show(&news));
    bar.finish();
    pulled
}

#[cfg(test)]
mod tests {
    use super::{known_table, packed_note};
    use crate::config::{PackedCacheUse, Settings};
    use crate::packed_cache::PackedCache;

    #[test]
    fn table_marks_what_fits_the_memory() {
        let mut settings = Settings::default();
        settings.models.memory_budget_mib = Some(7 << 10);
        let table = known_table(&settings);
        let fits = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("{name}: {table}"))
                .ends_with("yes")
        };
        assert!(table.starts_with("NAME "), "{table}");
        assert!(fits("qwen3:0.6b ") && fits("qwen3:4b ") && fits("all-minilm:22m "));
        assert!(!fits("qwen3:14b ") && !fits("gpt-oss:120b "));
        assert!(table.contains("a quarter of 7.0 GiB"), "{table}");
    }

    #[test]
    fn packed_weights_are_announced_where_they_are_written() {
        let mut settings = Settings::default();
        settings.models.packed_cache_directory = Some("/packed".into());
        let note = |settings: &Settings, bytes| {
            let cache = PackedCache::of(settings).expect("a directory");
            packed_note(&cache, bytes)
        };
        let said = note(&settings, 3 << 30).expect("a note");
        assert!(said.contains("3.0 GiB once more, to /packed"), "{said}");
        assert_eq!(note(&settings, 1 << 20), None, "too small to be cached");
        settings.models.packed_cache = PackedCacheUse::Off;
        assert_eq!(note(&settings, 3 << 30), None);
    }
}
