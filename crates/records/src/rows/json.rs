//! The codec of columns that contain JSON.

use std::{collections::BTreeMap, io};

use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, Value};
use serde::{Deserialize, Serialize, Serializer};

use super::{Column, ColumnValue, text};
use crate::{Headers, PropertyInfo, PropertyName, Sha1, Tid};

/// The properties of a revision or of a render.
pub type Properties = BTreeMap<PropertyName, PropertyInfo>;

/// Encodes a value as JSON text.
pub fn to_json(value: &impl Serialize) -> Value {
    Value::Text(serde_json::to_string(value).expect("plain data with text keys"))
}

/// Returns the number of bytes of the JSON text of a value, without making the text.
#[must_use]
pub fn json_size(value: &impl Serialize) -> usize {
    struct Counter(usize);

    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("plain data with text keys");
    counter.0
}

/// A property in the JSON of an index row. The names are short, since each render repeats them.
#[derive(Serialize, Deserialize)]
struct PropertyJson<H = Headers, S = String> {
    #[serde(flatten)]
    headers: H,
    size: u64,
    sha1: S,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    rewritten_at: Option<i64>,
}

/// The properties of an index row.
struct PropertiesJson<'a>(&'a Properties);

impl Serialize for PropertiesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, info)| {
            let json = PropertyJson {
                headers: &info.headers,
                size: info.size,
                sha1: Sha1Json(info.sha1),
                rewritten_at: info.rewritten_at.map(Timestamp::as_micros),
            };
            (name, json)
        }))
    }
}

/// A SHA-1 as hex.
struct Sha1Json(Sha1);

impl Serialize for Sha1Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl ColumnValue for Properties {
    fn from_value(value: &Value) -> Option<Self> {
        properties_from_json(text(value)?)
    }

    fn to_value(&self) -> Value {
        to_json(&PropertiesJson(self))
    }
}

impl Column for Properties {
    fn read(value: Option<&Value>) -> Option<Self> {
        Self::from_value(value?)
    }

    fn to_column(&self) -> Option<Value> {
        Some(self.to_value())
    }
}

/// Returns the number of bytes that properties take in an index row.
#[must_use]
pub fn index_size(properties: &Properties) -> usize {
    json_size(&PropertiesJson(properties))
}

fn properties_from_json(json: &str) -> Option<Properties> {
    let json: BTreeMap<PropertyName, PropertyJson> = serde_json::from_str(json).ok()?;
    (json.into_iter())
        .map(|(name, json)| {
            let info = PropertyInfo {
                headers: json.headers,
                size: json.size,
                sha1: json.sha1.parse::<Sha1>().ok()?,
                rewritten_at: json.rewritten_at.map(Timestamp::from_micros),
            };
            Some((name, info))
        })
        .collect()
}

/// Encodes a value of a key as JSON that people and programs can read.
#[must_use]
pub fn value_to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Int(number) => (*number).into(),
        Value::Timestamp(time) => time.as_micros().into(),
        Value::TimeUuid(uuid) => Tid::from(*uuid).to_string().into(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

/// Decodes the JSON of [`value_to_json`], for a column of this type.
#[must_use]
pub fn value_from_json(column: ColumnType, json: &serde_json::Value) -> Option<Value> {
    Some(match column {
        ColumnType::Text => json.as_str()?.into(),
        ColumnType::Int => json.as_i64()?.into(),
        ColumnType::Timestamp => Timestamp::from_micros(json.as_i64()?).into(),
        ColumnType::TimeUuid => json.as_str()?.parse::<Tid>().ok()?.as_time_uuid().into(),
        ColumnType::Blob => {
            let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
            let bytes: Option<Vec<u8>> = json.as_str()?.as_bytes().chunks(2).map(byte).collect();
            Value::Blob(bytes?.into())
        }
    })
}
