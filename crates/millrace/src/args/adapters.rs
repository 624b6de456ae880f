//! Flags of adapters, as llama.cpp's server and vLLM spell them.

use clap::Args;
use serde::Deserialize;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AdapterArgs {
    /// Adapter (LoRA): a GGUF, or a folder of PEFT. Requests that say nothing about adapters use it.
    #[arg(long, value_name = "[NAME=]PATH", value_delimiter = ',')]
    pub(crate) lora: Vec<String>,
    /// Adapter with a scale.
    #[arg(long, value_name = "[NAME=]PATH:SCALE", value_delimiter = ',')]
    pub(crate) lora_scaled: Vec<String>,
    /// Adapters that a request uses only where it names them, also as its model.
    #[arg(long, value_name = "NAME=PATH", num_args = 1.., value_parser = module)]
    pub(crate) lora_modules: Vec<String>,
    /// Load adapters without using them in requests that do not name them.
    #[arg(long)]
    pub(crate) lora_init_without_apply: bool,
}

/// vLLM's description of an adapter in JSON.
#[derive(Deserialize)]
struct Module {
    name: String,
    path: String,
}

/// An adapter as `NAME=PATH`, or as JSON with `name` and `path`.
fn module(text: &str) -> Result<String, String> {
    if text.starts_with('{') {
        let module: Module = serde_json::from_str(text)
            .map_err(|_| "as JSON it must be {\"name\": NAME, \"path\": PATH}".to_owned())?;
        return Ok(format!("{}={}", module.name, module.path));
    }
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(text.to_owned()),
        _ => Err("must be NAME=PATH".to_owned()),
    }
}

impl AdapterArgs {
    /// `model.adapters`; `None`: no flag names an adapter. The numbers of adapters are in the order of the flags here.
    pub(crate) fn setting(&self) -> Option<Vec<String>> {
        let unused = |text: &String| format!("{text}:0");
        let applied = self.lora.iter().chain(&self.lora_scaled);
        let applied = applied.map(|text| {
            if self.lora_init_without_apply {
                unused(&without_scale(text))
            } else {
                text.clone()
            }
        });
        let all: Vec<String> = applied
            .chain(self.lora_modules.iter().map(unused))
            .collect();
        (!all.is_empty()).then_some(all)
    }
}

fn without_scale(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((path, scale)) if scale.parse::<f32>().is_ok() => path.to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        adapters: AdapterArgs,
    }

    fn setting(args: &[&str]) -> Option<Vec<String>> {
        let args = std::iter::once("millrace").chain(args.iter().copied());
        Command::try_parse_from(args).ok()?.adapters.setting()
    }

    #[test]
    fn flags_of_both_servers_are_one_setting() {
        let rows: [(&[&str], &[&str]); 5] = [
            (
                &["--lora", "a.gguf", "--lora", "n=b.gguf,c"],
                &["a.gguf", "n=b.gguf", "c"],
            ),
            (&["--lora-scaled", "a.gguf:0.5"], &["a.gguf:0.5"]),
            (&["--lora-modules", "n=x/y", "m=z"], &["n=x/y:0", "m=z:0"]),
            (
                &[
                    "--lora-modules",
                    r#"{"name":"n","path":"p","base_model_name":"b"}"#,
                ],
                &["n=p:0"],
            ),
            (
                &[
                    "--lora",
                    "a",
                    "--lora-scaled",
                    "b:2",
                    "--lora-init-without-apply",
                ],
                &["a:0", "b:0"],
            ),
        ];
        for (args, expected) in rows {
            let expected = expected.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(setting(args), Some(expected), "{args:?}");
        }
        assert_eq!(setting(&[]), None);
        assert_eq!(setting(&["--lora-modules", "x"]), None);
    }
}
