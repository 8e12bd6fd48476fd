//! Access rights, and the browser origins that may write.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

use rashomon_pages::{BucketName, DomainName};
use rashomon_server::OperatorPages;
use rashomon_server::access::{AnonymousRights, DomainRights, Policy, Right, Rights};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    errors::Problem,
    raw::deserialize_buckets,
    values::{Access, Network, Origin},
};

/// The audience of JSON Web Tokens, if the configuration names none.
const DEFAULT_AUDIENCE: &str = "rashomon";

/// An example of access rights, for the error of a server that has none.
pub(super) const EXAMPLE: &str = r#"    [access]
    anonymous = ["read"]        # rights without a token; [] for none
    operator_pages = "token"    # /metrics and /docs need a token, too"#;

/// The setting `access` in a file: a word, or a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawAccess {
    /// `access = "open"`
    Word(Access),
    /// `[access]`
    Table(Box<RawAccessTable>),
}

/// The table `[access]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAccessTable {
    /// The same as `access = "open"`.
    #[serde(default)]
    open: bool,
    #[serde(default)]
    origins: Vec<Origin>,
    anonymous: Option<Rights>,
    operator_pages: Option<OperatorPages>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    #[serde(default)]
    proxies: Vec<Network>,
    jwks_file: Option<PathBuf>,
    audience: Option<String>,
    #[serde(default)]
    domains: BTreeMap<DomainName, RawDomainRights>,
}

/// The table `[access.domains.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDomainRights {
    anonymous: Option<Rights>,
    #[serde(default, deserialize_with = "deserialize_buckets")]
    buckets: BTreeMap<BucketName, RawBucketRights>,
}

/// The table `[access.domains.NAME.buckets.BUCKET]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBucketRights {
    anonymous: Rights,
}

impl<'de> Deserialize<'de> for RawAccess {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RawAccess;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"open\", or a table with access rights")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<RawAccess, E> {
                Access::deserialize(de::value::StrDeserializer::new(word)).map(RawAccess::Word)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RawAccess, A::Error> {
                let table = RawAccessTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RawAccess::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The access rights in effect.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AccessSettings {
    /// Whether the configuration allows everything to every client.
    pub(crate) open: bool,
    /// The origins whose pages may send requests that change data.
    pub(crate) origins: BTreeSet<Origin>,
    /// The rights, if the configuration has any and is not open. Without them, a server on loopback is open.
    pub(crate) rights: Option<RightsSettings>,
    operator_pages: Option<OperatorPages>,
    /// The proxies whose `X-Forwarded-For` names the client.
    pub(crate) proxies: Vec<Network>,
}

/// The rights of clients without a token, and how JSON Web Tokens are verified.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RightsSettings {
    anonymous: AnonymousRights,
    jwks_file: Option<PathBuf>,
    audience: String,
}

impl AccessSettings {
    /// Combines the flags and the environment with the file.
    pub(super) fn merge(flag: Option<Access>, file: Option<RawAccess>, problems: &mut Vec<Problem>) -> Self {
        let table = match file {
            None => return Self { open: flag.is_some(), ..Self::default() },
            Some(RawAccess::Word(Access::Open)) => return Self { open: true, ..Self::default() },
            Some(RawAccess::Table(table)) => *table,
        };
        let RawAccessTable {
            open,
            origins,
            anonymous,
            operator_pages,
            proxies,
            jwks_file,
            audience,
            domains,
        } = table;
        let has_rights =
            anonymous.is_some() || jwks_file.is_some() || audience.is_some() || !domains.is_empty();
        let mut problem =
            |message: &str| problems.push(Problem { message: message.to_owned(), position: None });
        if open && has_rights {
            problem(
                "[access] has open = true, which lets every client do everything, and rights besides: remove open, \
                 or the rights",
            );
        }
        if audience.is_some() && jwks_file.is_none() {
            problem(
                "[access] has an audience, but no jwks_file with the keys of JSON Web Tokens: add jwks_file, or remove \
                 audience",
            );
        }
        let anonymous = AnonymousRights {
            everywhere: anonymous.unwrap_or_default(),
            domains: domains.into_iter().map(|(name, rights)| (name, rights.into())).collect(),
        };
        if anonymous.hold_somewhere(Right::Admin) {
            problem(
                "'admin' cannot be a right of clients without a token, since they could make tokens with every right: \
                 make a token with --rights admin",
            );
        }
        if audience.as_ref().is_some_and(String::is_empty) {
            problem("the audience of [access] is empty: name the audience that JSON Web Tokens have");
        }
        // A table with only `origins` says nothing about rights. An empty table allows nothing without a token.
        let has_only_origins =
            !has_rights && !origins.is_empty() && operator_pages.is_none() && proxies.is_empty();
        // A flag overrides the file.
        let open = open || flag.is_some();
        let rights = (!open && !has_only_origins).then(|| RightsSettings {
            anonymous,
            jwks_file,
            audience: audience.unwrap_or_else(|| DEFAULT_AUDIENCE.to_owned()),
        });
        Self { open, origins: origins.into_iter().collect(), rights, operator_pages, proxies }
    }

    /// Whether nothing was configured.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the configuration has access rights, or allows everything.
    pub(super) fn is_configured(&self) -> bool {
        self.open || self.rights.is_some()
    }

    /// The policy for clients without a token. Without configured rights, every client may do everything: the
    /// configuration is open, or the server listens on loopback.
    pub(crate) fn policy(&self) -> Policy {
        self.rights.as_ref().map_or(Policy::Open, |rights| Policy::Anonymous(rights.anonymous.clone()))
    }

    /// The file with the keys of JSON Web Tokens.
    pub(crate) fn jwks_file(&self) -> Option<&Path> {
        self.rights.as_ref().and_then(|rights| rights.jwks_file.as_deref())
    }

    /// The audience of JSON Web Tokens.
    pub(crate) fn audience(&self) -> &str {
        self.rights.as_ref().map_or(DEFAULT_AUDIENCE, |rights| &rights.audience)
    }

    /// Which clients may read the pages for operators. `is_private`: only programs of this machine reach the server,
    /// as far as the other settings say.
    pub(super) fn operator_pages(&self, is_private: bool) -> OperatorPages {
        let is_open = self.open || (is_private && self.is_default());
        self.operator_pages.unwrap_or(if is_open { OperatorPages::Open } else { OperatorPages::Token })
    }
}

impl From<RawDomainRights> for DomainRights {
    fn from(raw: RawDomainRights) -> Self {
        let buckets = raw.buckets.into_iter().map(|(name, rights)| (name, rights.anonymous)).collect();
        Self { anonymous: raw.anonymous, buckets }
    }
}

impl Serialize for AccessSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Table<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            open: Option<bool>,
            #[serde(skip_serializing_if = "BTreeSet::is_empty")]
            origins: &'a BTreeSet<Origin>,
            #[serde(skip_serializing_if = "Option::is_none")]
            operator_pages: Option<OperatorPages>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            proxies: &'a [Network],
            #[serde(skip_serializing_if = "Option::is_none")]
            anonymous: Option<Rights>,
            #[serde(skip_serializing_if = "Option::is_none")]
            jwks_file: Option<&'a Path>,
            #[serde(skip_serializing_if = "Option::is_none")]
            audience: Option<&'a str>,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            domains: BTreeMap<&'a DomainName, Domain<'a>>,
        }
        #[derive(Serialize)]
        struct Domain<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            anonymous: Option<Rights>,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            buckets: BTreeMap<&'a BucketName, Bucket>,
        }
        #[derive(Serialize)]
        struct Bucket {
            anonymous: Rights,
        }
        if self.open && self.origins.is_empty() && self.operator_pages.is_none() && self.proxies.is_empty() {
            return Access::Open.serialize(serializer);
        }
        let rights = self.rights.as_ref();
        let domains = rights.into_iter().flat_map(|rights| &rights.anonymous.domains);
        let table = Table {
            open: self.open.then_some(true),
            origins: &self.origins,
            operator_pages: self.operator_pages,
            proxies: &self.proxies,
            anonymous: rights.map(|rights| rights.anonymous.everywhere),
            jwks_file: self.jwks_file(),
            audience: self.jwks_file().map(|_| self.audience()),
            domains: domains
                .map(|(name, rights)| {
                    let buckets =
                        rights.buckets.iter().map(|(name, rights)| (name, Bucket { anonymous: *rights }));
                    (name, Domain { anonymous: rights.anonymous, buckets: buckets.collect() })
                })
                .collect(),
        };
        table.serialize(serializer)
    }
}
