//! The number of copies of each row.

use std::{collections::BTreeMap, fmt, str::FromStr};

use rashomon_pages::excerpt;
use rashomon_tables_cassandra as cassandra;
use serde::{Deserialize, Deserializer, Serialize, de};

/// An upper limit that catches typing errors. No cluster has more copies.
const MAX_COPIES: u32 = 100;

/// The number of copies: one for the whole cluster, or one for each data centre.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Replication {
    /// This many copies, on any nodes.
    Simple(u32),
    /// This many copies in each data centre.
    ByDatacenter(BTreeMap<String, u32>),
}

impl Replication {
    fn check(self) -> Result<Self, String> {
        let fits = |copies: &u32| (1..=MAX_COPIES).contains(copies);
        let all_fit = match &self {
            Self::Simple(copies) => fits(copies),
            Self::ByDatacenter(copies) => !copies.is_empty() && copies.values().all(fits),
        };
        if all_fit { Ok(self) } else { Err(format!("there must be 1 to {MAX_COPIES} copies of everything")) }
    }
}

impl From<&Replication> for cassandra::Replication {
    fn from(replication: &Replication) -> Self {
        match replication {
            Replication::Simple(copies) => Self::Simple(*copies),
            Replication::ByDatacenter(copies) => Self::ByDatacenter(copies.clone()),
        }
    }
}

impl From<cassandra::Replication> for Replication {
    fn from(replication: cassandra::Replication) -> Self {
        match replication {
            cassandra::Replication::Simple(copies) => Self::Simple(copies),
            cassandra::Replication::ByDatacenter(copies) => Self::ByDatacenter(copies),
        }
    }
}

impl FromStr for Replication {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(copies) = text.parse() {
            return Self::Simple(copies).check();
        }
        let datacenter = |part: &str| {
            let (name, copies) = part.split_once(':')?;
            let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let fits = !name.is_empty() && name.bytes().all(letters);
            Some((name.to_owned(), copies.parse().ok()?)).filter(|_| fits)
        };
        let parts: Option<Vec<_>> = text.split(',').map(datacenter).collect();
        let Some(parts) = parts else {
            return Err(format!(
                "'{}' is not a replication; write the number of copies, as in 3, or the number in each data \
                 centre, as in east:3,west:2",
                excerpt(text)
            ));
        };
        let (named, copies) = (parts.len(), parts.into_iter().collect::<BTreeMap<_, _>>());
        if copies.len() < named {
            return Err(format!("'{}' names a data centre twice", excerpt(text)));
        }
        Self::ByDatacenter(copies).check()
    }
}

impl fmt::Display for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(copies) => write!(f, "{copies}"),
            Self::ByDatacenter(copies) => {
                let parts: Vec<_> = copies.iter().map(|(name, copies)| format!("{name}:{copies}")).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Replication {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Replication;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of copies, or a table of data centres such as { east = 3, west = 2 }")
            }

            fn visit_i64<E: de::Error>(self, copies: i64) -> Result<Replication, E> {
                // A number outside of the type is refused like 0.
                Replication::Simple(copies.try_into().unwrap_or(0)).check().map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Replication, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Replication, A::Error> {
                let copies = Deserialize::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Replication::ByDatacenter(copies).check().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
