//! Optional members of JSON objects for which `null` is not the same as absent.

use serde::{Deserialize, Deserializer};

/// Deserialises a member that is present. `null` is read like any other value: a type without `null` refuses it. An
/// absent `buckets`, for example, means all buckets, and `null` must not mean the same.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
