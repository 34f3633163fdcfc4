//! Settings as a file that `--config` reads.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

/// The settings of `config` that are not those of `usual`, in TOML.
///
/// # Errors
///
/// What has no form there, in words.
pub(super) fn differing(config: &impl Serialize, usual: &impl Serialize) -> Result<String, String> {
    let (config, usual) = (table(config)?, table(usual)?);
    let mut text =
        "# Settings of the agent; docs/provider.md lists them. Restart the agent after a change.\n".to_owned();
    let mut tables = String::new();
    for (name, value) in config.iter().filter(|(name, value)| usual.get(*name) != Some(value)) {
        match value {
            Value::Null => {}
            Value::Object(table) => {
                let _ = write!(tables, "\n[{}]\n", key(name));
                lines(&mut tables, table);
            }
            value => {
                let _ = writeln!(text, "{} = {}", key(name), inline(value));
            }
        }
    }
    Ok(text + &tables)
}

/// Settings as a table.
fn table(settings: &impl Serialize) -> Result<Map<String, Value>, String> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(table)) => Ok(table),
        Ok(other) => Err(format!("settings are a table, and not {other}")),
        Err(error) => Err(error.to_string()),
    }
}

fn lines(text: &mut String, table: &Map<String, Value>) {
    for (name, value) in table.iter().filter(|(_, value)| !value.is_null()) {
        let _ = writeln!(text, "{} = {}", key(name), inline(value));
    }
}

fn key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { quoted(name) }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(table) => {
            let pairs = table.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> = pairs.map(|(name, value)| format!("{} = {}", key(name), inline(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        // Numbers and truth values are written alike.
        other => other.to_string(),
    }
}

/// A basic string: JSON's escapes are all of TOML's too, but for one character that JSON does not escape.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
