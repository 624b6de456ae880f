//! New settings for a running server: those that apply at once, and those that need a restart.

use super::catalog::SETTINGS;
use super::{Config, check, tree};
use serde_json::Value;

/// New settings compared with those in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changes {
    /// The new settings, with the old values of those that need a restart.
    pub(crate) config: Config,
    /// Keys whose new value applies.
    pub(crate) live: Vec<&'static str>,
    /// Keys whose new value needs a restart.
    pub(crate) restart: Vec<&'static str>,
}

impl Changes {
    /// From `old` to `new`.
    ///
    /// # Errors
    /// The old values that stay contradict the new ones.
    pub(crate) fn between(old: &Config, new: Config) -> Result<Self, String> {
        let before = tree::of(&old.settings);
        let mut after = tree::of(&new.settings);
        let (mut live, mut restart) = (Vec::new(), Vec::new());
        for setting in SETTINGS.iter() {
            let key = setting.key.as_str();
            let was = tree::get(&before, key).unwrap_or(&Value::Null);
            let Some(place) = tree::place(&mut after, key).filter(|value| *value != was) else {
                continue;
            };
            if setting.is_live && !(key == "keys.file" && changes_authentication(old, &new)) {
                live.push(key);
            } else {
                *place = was.clone();
                restart.push(key);
            }
        }
        let settings = serde_json::from_value(Value::Object(after)).map_err(|e| e.to_string())?;
        let of_server = check::server_problems(&settings, has_keys(old));
        let mut problems = check::problems(&settings).into_iter().chain(of_server);
        if let Some((key, why)) = problems.next() {
            return Err(format!("{key}: {why} (until a restart)"));
        }
        let config = Config { settings, ..new };
        Ok(Self {
            config,
            live,
            restart,
        })
    }
}

/// Whether authentication would be switched on or off, which never happens by accident while the server runs.
fn changes_authentication(old: &Config, new: &Config) -> bool {
    has_keys(old) != has_keys(new)
}

fn has_keys(config: &Config) -> bool {
    config.settings.keys.file.is_some() || !config.api_keys.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::{Layers, Origin};
    use super::*;

    /// The defaults with these values over them.
    fn config(values: &[(&str, Value)]) -> Config {
        let layers = values
            .iter()
            .fold(Layers::defaults(), |layers, (key, value)| {
                layers.flag(key, Some(value))
            });
        layers.finish().unwrap()
    }

    #[test]
    fn live_settings_change_and_others_are_named() {
        let old = config(&[("engine.sequences_max", 8.into())]);
        let new = config(&[
            ("engine.sequences_max", 16.into()),
            ("engine.step_target_ms", 99.into()),
            ("clocks.total_ms", 7.into()),
            ("server.bind", "127.0.0.1:1".into()),
            ("journal.sync_ms", 7.into()),
            ("keys.file", "keys.yaml".into()),
        ]);
        let changes = Changes::between(&old, new).unwrap();
        assert_eq!(changes.live, ["engine.step_target_ms", "clocks.total_ms"]);
        let restart = [
            "engine.sequences_max",
            "server.bind",
            "keys.file",
            "journal.sync_ms",
        ];
        assert_eq!(changes.restart, restart);
        let settings = &changes.config.settings;
        assert_eq!(settings.engine.sequences_max, 8);
        assert_eq!(settings.engine.step_target_ms, 99);
        assert_eq!(settings.clocks.total_ms, 7);
        assert_eq!(settings.keys.file, None);
        assert_eq!(settings.server.bind, old.settings.server.bind);
        assert_eq!(changes.config.origins["clocks.total_ms"], Origin::Flag);
    }

    #[test]
    fn equal_settings_change_nothing() {
        let old = config(&[("preset", "chat".into())]);
        let changes = Changes::between(&old, old.clone()).unwrap();
        assert_eq!((changes.live.len(), changes.restart.len()), (0, 0));
        assert_eq!(changes.config, old);
    }

    #[test]
    fn removed_key_file_needs_a_restart() {
        let old = config(&[("keys.file", "old.yaml".into())]);
        let new = config(&[("keys.file", "new.yaml".into())]);
        assert_eq!(Changes::between(&old, new).unwrap().live, ["keys.file"]);
        let open = config(&[]);
        let changes = Changes::between(&old, open).unwrap();
        assert_eq!(
            changes.restart,
            ["keys.file"],
            "authentication is not removed while running"
        );
    }
}
