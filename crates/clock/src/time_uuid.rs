//! UUIDs of version 1 and their order.

use std::{cmp::Ordering, fmt};

use uuid::Uuid;

/// A UUID of version 1, which contains a time (in ticks of 100 ns since 1582-10-15).
///
/// UUIDs sort by their times first, then by the last eight bytes, each compared as a signed byte. This is the order
/// of Cassandra's `timeuuid`, and all stores use it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeUuid(Uuid);

impl TimeUuid {
    /// Converts a UUID. `None` unless it is of version 1 and of the variant of RFC 9562.
    #[must_use]
    pub fn new(uuid: Uuid) -> Option<Self> {
        (uuid.get_version_num() == 1 && uuid.get_variant() == uuid::Variant::RFC4122).then_some(Self(uuid))
    }

    /// The UUID.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }

    /// The time of the UUID, in ticks of 100 ns since 1582-10-15T00:00:00Z.
    #[must_use]
    pub fn ticks(self) -> u64 {
        let (low, mid, high, _) = self.0.as_fields();
        (u64::from(high & 0x0fff) << 48) | (u64::from(mid) << 32) | u64::from(low)
    }

    /// Encodes the UUID in sixteen bytes. The order of these bytes is the order of the UUIDs.
    #[must_use]
    pub fn to_ordered_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ticks().to_be_bytes());
        for (to, from) in bytes[8..].iter_mut().zip(&self.0.as_bytes()[8..]) {
            *to = from ^ 0x80;
        }
        bytes
    }

    /// Decodes the bytes of [`Self::to_ordered_bytes`]. `None` if the bytes are not those of a UUID of version 1.
    #[must_use]
    pub fn from_ordered_bytes(bytes: [u8; 16]) -> Option<Self> {
        let (time, rest) = bytes.split_at(8);
        let ticks = u64::from_be_bytes(time.try_into().ok()?);
        if ticks >> 60 != 0 {
            return None;
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = from ^ 0x80;
        }
        Self::new(Uuid::from_fields(
            (ticks & 0xffff_ffff) as u32,
            ((ticks >> 32) & 0xffff) as u16,
            ((ticks >> 48) & 0x0fff) as u16 | 0x1000,
            &last,
        ))
    }
}

impl Ord for TimeUuid {
    fn cmp(&self, other: &Self) -> Ordering {
        let signed = |uuid: &Self| -> [i8; 8] { std::array::from_fn(|i| uuid.0.as_bytes()[8 + i] as i8) };
        self.ticks().cmp(&other.ticks()).then_with(|| signed(self).cmp(&signed(other)))
    }
}

impl PartialOrd for TimeUuid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for TimeUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for TimeUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
