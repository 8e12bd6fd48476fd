//! Rows with named columns. The columns of a table are listed only once, in the order of its schema, so that reading
//! and writing cannot disagree.

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Cursor, Key, Row, Schema, Value};
use serde::{Serialize, de::DeserializeOwned};

use super::{to_json, unreadable};
use crate::{BucketName, DomainName, EntryKey, PropertyName, Result, Revision, Sha1, Tid, Title};

/// The type of a column that always has a value.
pub trait ColumnValue: Sized {
    /// Reads a stored value. `None` if the value has another type, or is not a valid value of this type.
    fn from_value(value: &Value) -> Option<Self>;

    /// The value to store.
    fn to_value(&self) -> Value;
}

/// The type of a value column. An `Option` is the type of a column that may be empty.
pub trait Column: Sized {
    /// Reads a stored column. `None` if the column has an invalid value or a value of another type, or if it is empty
    /// although it must not be.
    fn read(value: Option<&Value>) -> Option<Self>;

    /// The value to store; `None` for an empty column.
    fn to_column(&self) -> Option<Value>;
}

impl<T: ColumnValue> Column for Option<T> {
    fn read(value: Option<&Value>) -> Option<Self> {
        match value {
            None => Some(None),
            Some(value) => T::from_value(value).map(Some),
        }
    }

    fn to_column(&self) -> Option<Value> {
        self.as_ref().map(T::to_value)
    }
}

/// Implements [`ColumnValue`] and [`Column`]. `$read` converts a stored value into the type, and `$write` converts the
/// type into a stored value.
macro_rules! column_type {
    ($type:ty, $value:ident => $read:expr, $this:ident => $write:expr) => {
        impl ColumnValue for $type {
            fn from_value($value: &Value) -> Option<Self> {
                $read
            }

            fn to_value(&self) -> Value {
                let $this = self;
                $write
            }
        }

        impl Column for $type {
            fn read(value: Option<&Value>) -> Option<Self> {
                Self::from_value(value?)
            }

            fn to_column(&self) -> Option<Value> {
                Some(self.to_value())
            }
        }
    };
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn blob(value: &Value) -> Option<&Bytes> {
    match value {
        Value::Blob(bytes) => Some(bytes),
        _ => None,
    }
}

column_type!(i64, value => int(value), this => Value::Int(*this));
column_type!(u64, value => u64::try_from(int(value)?).ok(),
    this => Value::Int(i64::try_from(*this).unwrap_or(i64::MAX)));
column_type!(bool, value => int(value).map(|number| number != 0), this => Value::Int((*this).into()));
column_type!(Revision, value => int(value).and_then(Revision::new), this => Value::Int(this.get()));
column_type!(String, value => text(value).map(str::to_owned), this => this.as_str().into());
column_type!(PropertyName, value => PropertyName::new(text(value)?).ok(), this => this.as_str().into());
column_type!(DomainName, value => DomainName::new(text(value)?).ok(), this => this.as_str().into());
column_type!(BucketName, value => BucketName::from_key(text(value)?), this => this.as_key().into());
column_type!(EntryKey, value => EntryKey::new(text(value)?).ok(), this => this.as_str().into());
column_type!(Title, value => Title::new(text(value)?).ok(), this => this.as_str().into());
column_type!(Bytes, value => blob(value).cloned(), this => Value::Blob(this.clone()));
column_type!(Cursor, value => blob(value).cloned().map(Cursor), this => Value::Blob(this.0.clone()));
column_type!([u8; 16], value => blob(value)?.as_ref().try_into().ok(),
    this => Value::Blob(Bytes::copy_from_slice(this)));
column_type!(Sha1, value => blob(value)?.as_ref().try_into().ok().map(Sha1),
    this => Value::Blob(Bytes::copy_from_slice(&this.0)));
column_type!(Timestamp, value => match value {
    Value::Timestamp(time) => Some(*time),
    _ => None,
}, this => (*this).into());
column_type!(Tid, value => match value {
    Value::TimeUuid(uuid) => Some(Tid::from(*uuid)),
    _ => None,
}, this => this.as_time_uuid().into());

/// A value that is stored as JSON in a text column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned> ColumnValue for Json<T> {
    fn from_value(value: &Value) -> Option<Self> {
        serde_json::from_str(text(value)?).ok().map(Json)
    }

    fn to_value(&self) -> Value {
        to_json(&self.0)
    }
}

impl<T: Serialize + DeserializeOwned> Column for Json<T> {
    fn read(value: Option<&Value>) -> Option<Self> {
        Self::from_value(value?)
    }

    fn to_column(&self) -> Option<Value> {
        Some(self.to_value())
    }
}

/// A row of one table, with named columns. [`typed_row!`](crate::typed_row) defines such a type.
pub trait TypedRow: Sized {
    /// The table.
    fn table() -> &'static Schema;

    /// The names of all columns except those of the partition, in the order of the type.
    fn column_names() -> Vec<&'static str>;

    /// Reads a row. `None` if a column has another type, or a required column is missing or empty.
    fn read(row: &Row) -> Option<Self>;

    /// The clustering columns.
    fn clustering(&self) -> Vec<Value>;

    /// The value columns.
    fn values(&self) -> Vec<Option<Value>>;

    /// Reads a row. Fails with `Corrupt` where [`Self::read`] returns `None`.
    fn from_row(row: &Row) -> Result<Self> {
        Self::read(row).ok_or_else(|| unreadable(Self::table().name(), row))
    }

    /// Adds a write of the row to a batch of its partition.
    fn put(&self, batch: &mut Batch, written_at: Timestamp) {
        batch.put(Self::table(), self.clustering(), self.values(), written_at);
    }

    /// Adds a write of the row to a batch of its partition. The row expires at `expires_at`.
    fn put_until(&self, batch: &mut Batch, written_at: Timestamp, expires_at: Timestamp) {
        batch.put_until(Self::table(), self.clustering(), self.values(), written_at, expires_at);
    }
}

/// The clustering columns of a table, with names. [`row_key!`](crate::row_key) defines such a type. A key can
/// be read even if the values of the row are damaged.
pub trait RowKey: Sized {
    /// The table.
    fn table() -> &'static Schema;

    /// The names of the columns, in the order of the type.
    fn column_names() -> Vec<&'static str>;

    /// Reads a key. `None` if a column is missing or has another type.
    fn read(key: &Key) -> Option<Self>;

    /// The clustering columns.
    fn clustering(&self) -> Vec<Value>;

    /// Reads the key of a row. Fails with `Corrupt` if a column is missing or has another type.
    fn of(row: &Row) -> Result<Self> {
        Self::read(&row.key).ok_or_else(|| unreadable(Self::table().name(), row))
    }
}

/// Checks that a type has the columns of its table, in the same order, and panics otherwise. This is for tests.
pub fn check_columns<T: TypedRow>() {
    let schema = T::table();
    let clustering = schema.clustering().iter().map(|(column, _)| column);
    let expected: Vec<_> = clustering.chain(schema.values()).map(|column| column.name).collect();
    assert_eq!(T::column_names(), expected, "{}", schema.name());
}

/// Defines a type for the rows of a table.
///
/// ```text
/// typed_row! {
///     /// The revision of a render.
///     pub struct TidRow in REVISIONS_BY_TID {
///         key { tid: Tid }
///         values { rev: Revision }
///     }
/// }
/// ```
///
/// The columns have the names and the order of the schema. A value of the type `Option` may be empty.
#[macro_export]
macro_rules! typed_row {
    ($(#[$attribute:meta])* $vis:vis struct $name:ident in $table:ident {
        key { $($key:ident: $key_type:ty),* $(,)? }
        values { $($(#[$value_attribute:meta])* $value:ident: $value_type:ty),* $(,)? }
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $(#[doc = concat!("The clustering column `", stringify!($key), "`.")] $vis $key: $key_type,)*
            $(#[doc = concat!("The column `", stringify!($value), "`.")] $(#[$value_attribute])* $vis $value: $value_type,)*
        }

        impl $crate::rows::TypedRow for $name {
            fn table() -> &'static ::rashomon_tables::Schema {
                &$table
            }

            fn column_names() -> Vec<&'static str> {
                vec![$(stringify!($key),)* $(stringify!($value),)*]
            }

            fn read(row: &::rashomon_tables::Row) -> Option<Self> {
                let [$($key),*] = row.key.clustering.as_slice() else { return None };
                let mut values = row.values.iter().map(Option::as_ref);
                // A row of an earlier version has fewer columns. The columns that the row lacks are empty.
                $(let $value = <$value_type as $crate::rows::Column>::read(values.next().flatten())?;)*
                let _ = values;
                Some(Self {
                    $($key: <$key_type as $crate::rows::ColumnValue>::from_value($key)?,)*
                    $($value,)*
                })
            }

            fn clustering(&self) -> Vec<::rashomon_tables::Value> {
                vec![$($crate::rows::ColumnValue::to_value(&self.$key)),*]
            }

            fn values(&self) -> Vec<Option<::rashomon_tables::Value>> {
                vec![$($crate::rows::Column::to_column(&self.$value)),*]
            }
        }
    };
}

/// Defines a type for the clustering columns of a table.
///
/// ```text
/// row_key! {
///     /// A render.
///     pub struct RenderKey of RENDERS { rev: Revision, tid: Tid }
/// }
/// ```
#[macro_export]
macro_rules! row_key {
    ($(#[$attribute:meta])* $vis:vis struct $name:ident of $table:ident { $($key:ident: $key_type:ty),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        $vis struct $name {
            $(#[doc = concat!("The column `", stringify!($key), "`.")] $vis $key: $key_type,)*
        }

        impl $crate::rows::RowKey for $name {
            fn table() -> &'static ::rashomon_tables::Schema {
                &$table
            }

            fn column_names() -> Vec<&'static str> {
                vec![$(stringify!($key),)*]
            }

            fn read(key: &::rashomon_tables::Key) -> Option<Self> {
                let [$($key),*] = key.clustering.as_slice() else { return None };
                Some(Self { $($key: <$key_type as $crate::rows::ColumnValue>::from_value($key)?,)* })
            }

            fn clustering(&self) -> Vec<::rashomon_tables::Value> {
                vec![$($crate::rows::ColumnValue::to_value(&self.$key)),*]
            }
        }
    };
}
