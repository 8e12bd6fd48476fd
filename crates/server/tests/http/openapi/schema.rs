//! Checks values against the part of JSON Schema that the schemas of the API use. A keyword that is neither checked nor
//! in [`IGNORED_KEYWORDS`] is refused, so that no new rule goes unchecked.

use serde_json::{Map, Value};

/// Keywords that are not checked.
const IGNORED_KEYWORDS: [&str; 5] =
    ["description", "format", "examples", "contentMediaType", "propertyNames"];

/// Checks that a value matches a schema. The error names the position and the violated rule.
pub(crate) fn check_against(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else { return Err(format!("{schema} is no schema")) };
    if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        return check_against(document, target.ok_or(format!("{reference} leads nowhere"))?, value);
    }
    for (keyword, rule) in keywords {
        let holds = match keyword.as_str() {
            "type" => match rule {
                Value::Array(types) => types.iter().any(|one| is_of_type(one, value)),
                one => is_of_type(one, value),
            },
            "oneOf" => {
                let fitting = rule.as_array().into_iter().flatten();
                fitting.filter(|one| check_against(document, one, value).is_ok()).count() == 1
            }
            "enum" => rule.as_array().is_some_and(|values| values.contains(value)),
            "minimum" => {
                value.as_f64().is_none_or(|number| rule.as_f64().is_some_and(|least| number >= least))
            }
            "pattern" => value.as_str().is_none_or(|text| fits(rule.as_str().unwrap_or_default(), text)),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check_against(document, rule, item)?;
                }
                true
            }
            "minItems" => value
                .as_array()
                .is_none_or(|items| rule.as_u64().is_some_and(|least| items.len() as u64 >= least)),
            "maxItems" => value
                .as_array()
                .is_none_or(|items| rule.as_u64().is_some_and(|most| items.len() as u64 <= most)),
            "required" => {
                let names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                value
                    .as_object()
                    .is_none_or(|members| names.into_iter().all(|name| members.contains_key(name)))
            }
            "properties" => {
                check_members(document, keywords, value)?;
                true
            }
            "additionalProperties" if !keywords.contains_key("properties") => {
                check_members(document, keywords, value)?;
                true
            }
            "additionalProperties" => true,
            note if IGNORED_KEYWORDS.contains(&note) => true,
            other => return Err(format!("the keyword {other} is not known to this test")),
        };
        if !holds {
            return Err(format!("{value} is not of {keyword} {rule}"));
        }
    }
    Ok(())
}

/// Checks that each member matches its schema. A member without a schema is an error.
fn check_members(document: &Value, keywords: &Map<String, Value>, value: &Value) -> Result<(), String> {
    for (name, member) in value.as_object().into_iter().flatten() {
        let schema = keywords.get("properties").and_then(|properties| properties.get(name));
        let schema = schema.or_else(|| keywords.get("additionalProperties"));
        let schema = schema.ok_or(format!("the schema does not describe the member {name}"))?;
        check_against(document, schema, member).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

/// Whether a text matches one of the patterns in documents and forms.
fn fits(pattern: &str, text: &str) -> bool {
    let number =
        |text: &str| text.parse::<i64>().is_ok_and(|number| number > 0 && number.to_string() == text);
    match pattern {
        "^[0-9a-f]{40}$" => {
            text.len() == 40
                && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        }
        r"^([^?]+\?rev/)?[1-9][0-9]{0,18}$" => text
            .rsplit_once("?rev/")
            .map_or_else(|| number(text), |(title, rev)| !title.is_empty() && number(rev)),
        r"^(0|([^?]+\?rev/)?[1-9][0-9]{0,18})$" => {
            text == "0" || fits(r"^([^?]+\?rev/)?[1-9][0-9]{0,18}$", text)
        }
        other => panic!("{other} is a pattern that the tests do not know"),
    }
}

#[test]
fn violations_of_a_schema_are_found() {
    let document = serde_json::json!({
        "page": {
            "type": "object",
            "required": ["title"],
            "properties": {
                "title": {"type": "string"},
                "rev": {"type": ["integer", "null"], "minimum": 1},
                "latest": {"oneOf": [{"type": "null"}, {"$ref": "#/page"}]},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
            },
        },
    });
    let check = |value: Value| check_against(&document, &document["page"], &value).is_ok();
    for good in [
        r#"{"title": ""}"#,
        r#"{"title": "A", "rev": 1, "latest": {"title": "B", "latest": null}, "tags": ["a", "b"]}"#,
        r#"{"title": "A", "rev": null}"#,
    ] {
        assert!(check(serde_json::from_str(good).unwrap()), "{good}");
    }
    for bad in [
        r#"[]"#,
        r#"{}"#,
        r#"{"title": null}"#,
        r#"{"title": "A", "rev": 0}"#,
        r#"{"title": "A", "rev": 1.5}"#,
        r#"{"title": "A", "latest": {}}"#,
        r#"{"title": "A", "tags": ["c"]}"#,
        r#"{"title": "A", "tags": []}"#,
        r#"{"title": "A", "tags": ["a", "a", "a"]}"#,
        r#"{"title": "A", "other": 1}"#,
    ] {
        assert!(!check(serde_json::from_str(bad).unwrap()), "{bad}");
    }
}
