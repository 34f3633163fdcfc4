//! Holds requests against the published description, so that it and the controller cannot disagree: every fault of a
//! body at once, each at its place and in plain words.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex_lite::Regex;
use selion_api::rest::FieldError;
use serde_json::{Map, Value};

/// Faults that are told of one body: enough to correct it, not enough to make the answer large.
const MOST: usize = 32;

/// The description, as JSON.
static DESCRIBED: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(super::openapi()).unwrap_or_default());

/// Every fault of `value` as the schema called `name`.
#[must_use]
pub fn faults(name: &str, value: &Value) -> Vec<FieldError> {
    let mut check = Check { found: Vec::new() };
    if let Some(schema) = named(name) {
        check.value(schema, value, "");
    }
    check.found
}

/// Why a parameter's text is not what `schema` wants; `None` if it is.
#[must_use]
pub fn parameter_fault(schema: &Value, text: &str) -> Option<String> {
    let whole = resolved(schema);
    let value = match kinds(whole).first().copied() {
        Some("integer") => text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
        Some("boolean") => text.parse::<bool>().map_or_else(|_| Value::from(text), Value::from),
        _ => Value::from(text),
    };
    let mut check = Check { found: Vec::new() };
    check.value(whole, &value, "");
    check.found.pop().map(|fault| fault.detail)
}

fn named(name: &str) -> Option<&'static Value> {
    DESCRIBED.pointer("/components/schemas")?.get(name)
}

/// What a reference leads to, and of "that or nothing" the part that is something.
fn resolved(schema: &Value) -> &Value {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return target.rsplit('/').next().and_then(named).map_or(schema, resolved);
    }
    let some = alternatives(schema).filter(|one| kinds(one) != ["null"]).collect::<Vec<_>>();
    match some.as_slice() {
        [only] => resolved(only),
        _ => schema,
    }
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ["oneOf", "anyOf"].into_iter().filter_map(|name| schema.get(name)?.as_array()).flatten()
}

fn kinds(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
        _ => Vec::new(),
    }
}

/// Whether nothing may stand in its place.
fn takes_null(schema: &Value) -> bool {
    let listed = schema.get("type").and_then(Value::as_array);
    listed.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"))
        || alternatives(schema).any(|one| one.get("type").is_some_and(|kind| kind == "null"))
}

struct Check {
    found: Vec<FieldError>,
}

impl Check {
    fn fault(&mut self, at: &str, code: &str, detail: impl Into<String>) {
        if self.found.len() < MOST {
            self.found.push(FieldError { pointer: at.to_owned(), code: code.to_owned(), detail: detail.into() });
        }
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        if value.is_null() && takes_null(schema) {
            return;
        }
        let schema = resolved(schema);
        let variants: Vec<&Value> = alternatives(schema).collect();
        if !variants.is_empty() {
            return self.variant(&variants, value, at);
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.value(part, value, at);
        }
        match (kinds(schema).first().copied(), value) {
            (Some("object"), Value::Object(map)) => self.object(schema, map, at),
            (Some("array"), Value::Array(list)) => self.array(schema, list, at),
            (Some("string"), Value::String(text)) => self.text(schema, text, at),
            (Some("integer"), Value::Number(number)) => self.number(schema, number, at),
            (Some("boolean"), Value::Bool(_)) | (None, _) => {}
            (Some(kind), found) => {
                let detail = format!("{} belongs here, not {}", kind_name(schema, kind), found_name(found));
                self.fault(at, "bad_value", detail);
            }
        }
    }

    /// One of several forms, told apart by a member that has one value in each.
    fn variant(&mut self, variants: &[&Value], value: &Value, at: &str) {
        let tag = |schema: &Value| {
            let properties = schema.get("properties")?.as_object()?;
            properties.iter().find_map(|(name, property)| {
                let values = property.get("enum")?.as_array()?;
                (values.len() == 1).then(|| Some((name.clone(), values.first()?.as_str()?.to_owned())))?
            })
        };
        let tags: Vec<(String, String)> = variants.iter().filter_map(|one| tag(resolved(one))).collect();
        let Some((name, _)) = tags.first().filter(|_| tags.len() == variants.len()) else {
            let fits = |one: &&Value| {
                let mut check = Check { found: Vec::new() };
                check.value(one, value, at);
                check.found.is_empty()
            };
            if !variants.iter().any(fits) {
                self.fault(at, "bad_value", "none of the forms that belong here; GET /openapi.json shows them");
            }
            return;
        };
        let Value::Object(map) = value else {
            return self.fault(at, "bad_value", format!("an object belongs here, not {}", found_name(value)));
        };
        let known = tags.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ");
        let place = format!("{at}/{}", escaped(name));
        match map.get(name).map(Value::as_str) {
            None => self.fault(&place, "missing_field", format!("`{name}` is missing; it is one of {known}")),
            Some(given) => match tags.iter().position(|(_, value)| Some(value.as_str()) == given) {
                Some(at_variant) => self.object(resolved(variants[at_variant]), map, at),
                None => self.fault(&place, "unknown_value", format!("`{name}` is one of {known}")),
            },
        }
    }

    fn object(&mut self, schema: &Value, map: &Map<String, Value>, at: &str) {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                self.fault(&format!("{at}/{}", escaped(name)), "missing_field", format!("`{name}` is missing"));
            }
        }
        let others = schema.get("additionalProperties");
        for (name, value) in map {
            let place = format!("{at}/{}", escaped(name));
            match (properties.get(name), others) {
                (Some(property), _) => self.value(property, value, &place),
                (None, Some(Value::Bool(false))) => {
                    let known = properties.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    self.fault(&place, "unknown_field", format!("there is no such field; known are {known}"));
                }
                (None, Some(schema @ Value::Object(_))) => self.value(schema, value, &place),
                (None, _) => {}
            }
        }
    }

    fn array(&mut self, schema: &Value, list: &[Value], at: &str) {
        let bound = |name| schema.get(name).and_then(Value::as_u64);
        let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems").unwrap_or(u64::MAX));
        let count = list.len() as u64;
        if count < least || count > most {
            self.fault(at, "bad_value", format!("it has {} here, not {count}", range("entries", least, most)));
        }
        if let Some(items) = schema.get("items") {
            for (index, value) in list.iter().enumerate() {
                self.value(items, value, &format!("{at}/{index}"));
            }
        }
    }

    fn text(&mut self, schema: &Value, text: &str, at: &str) {
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            if !values.iter().any(|value| value == text) {
                let known = values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
                self.fault(at, "unknown_value", format!("`{}` is not one of {known}", shortened(text)));
            }
            return;
        }
        let bound = |name| schema.get(name).and_then(Value::as_u64);
        let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength").unwrap_or(u64::MAX));
        let count = text.chars().count() as u64;
        if count < least || count > most {
            return self.fault(at, "bad_value", format!("it has {}, not {count}", range("characters", least, most)));
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if pattern.is_some_and(|pattern| !matches(pattern, text)) {
            let what = schema.get("description").and_then(Value::as_str).unwrap_or("of the right form");
            self.fault(at, "bad_value", format!("`{}` is not {what}", shortened(text)));
        }
    }

    fn number(&mut self, schema: &Value, number: &serde_json::Number, at: &str) {
        let bound = |name| schema.get(name).and_then(Value::as_u64);
        let (least, most) = (bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(u64::MAX));
        if number.as_u64().is_none_or(|number| number < least || number > most) {
            let detail = match (least, most) {
                (least, u64::MAX) => format!("a whole number from {least} on belongs here, not {number}"),
                (least, most) => format!("a whole number from {least} to {most} belongs here, not {number}"),
            };
            self.fault(at, "bad_value", detail);
        }
    }
}

/// A member's name as a part of a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn range(what: &str, least: u64, most: u64) -> String {
    match (least, most) {
        (least, u64::MAX) => format!("at least {least} {what}"),
        (0, most) => format!("at most {most} {what}"),
        (least, most) => format!("{least} to {most} {what}"),
    }
}

/// What belongs here, in words.
fn kind_name(schema: &Value, kind: &str) -> String {
    let described = schema.get("description").and_then(Value::as_str);
    match (kind, described.filter(|_| schema.get("pattern").is_some())) {
        ("string", Some(what)) => format!("{what}, as text,"),
        ("string", None) => "a text".to_owned(),
        ("integer", _) => "a whole number".to_owned(),
        ("boolean", _) => "true or false".to_owned(),
        ("array", _) => "a list".to_owned(),
        _ => "an object".to_owned(),
    }
}

fn found_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 64;
    if text.chars().count() <= SHOWN { text.to_owned() } else { text.chars().take(SHOWN).chain(['\u{2026}']).collect() }
}

/// Patterns are those of the description, so there are few. One that does not compile refuses nothing: what the types
/// cannot read they refuse themselves.
fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if !compiled.contains_key(pattern) {
        compiled.insert(pattern.to_owned(), Regex::new(pattern).ok());
    }
    compiled.get(pattern).and_then(Option::as_ref).is_none_or(|regex| regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(name: &str, value: &Value) -> Vec<(String, String)> {
        faults(name, value).into_iter().map(|fault| (fault.pointer, fault.code)).collect()
    }

    #[test]
    fn every_fault_of_a_body_is_told_at_once_and_in_words() {
        let body = json!({
            "members": [{"slice": {"kind": "half"}}, {"slice": {"kind": "whole"}, "node": "0x12", "cpu": 1}, {}],
            "duration_ms": 0,
            "wait_ms": "10m",
            "classes": ["best"],
            "max_rate": 800_000,
            "env": {"A/B": 1},
        });
        let pair = |pointer: &str, code: &str| (pointer.to_owned(), code.to_owned());
        let mut found = told("NewLease", &body);
        found.sort();
        assert_eq!(
            found,
            [
                pair("/classes/0", "unknown_value"),
                pair("/duration_ms", "bad_value"),
                pair("/env/A~1B", "bad_value"),
                pair("/max_rate", "bad_value"),
                pair("/members/0/slice/kind", "unknown_value"),
                pair("/members/1/cpu", "unknown_field"),
                pair("/members/1/node", "bad_value"),
                pair("/members/2/slice", "missing_field"),
                pair("/wait_ms", "bad_value"),
            ]
        );
        for fault in faults("NewLease", &body) {
            for word in ["struct", "u64", "enum", "String", "expected", "variant"] {
                assert!(!fault.detail.contains(word), "{}: {}", fault.pointer, fault.detail);
            }
        }
    }

    #[test]
    fn a_list_is_no_object_and_a_good_body_has_no_faults() {
        assert_eq!(told("NewLease", &json!([[], null, 1])), [(String::new(), "bad_value".to_owned())]);
        assert_eq!(
            told("NewLease", &json!({"members": [{"slice": ["whole"]}], "duration_ms": 1, "command": ["a"]})),
            [("/members/0/slice".to_owned(), "bad_value".to_owned())]
        );
        let good = json!({"members": [{"slice": {"kind": "mig", "profile": "1g.10gb"}, "node": null}],
            "duration_ms": 60_000, "command": ["true"], "max_rate": "17", "on_node_loss": null});
        assert_eq!(told("NewLease", &good), []);
    }

    #[test]
    fn the_faults_that_are_told_are_bounded() {
        let many: Map<String, Value> = (0..1_000).map(|n| (format!("f{n}"), Value::Null)).collect();
        assert_eq!(faults("NewLease", &Value::Object(many)).len(), MOST);
    }
}
