//! The JSON form of a token, in the API and on the command line.

use rashomon_clock::rfc3339;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::TokenInfo;

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenDocument {
    /// The id.
    pub id: String,
    /// The rights that it grants.
    pub rights: Vec<String>,
    /// The domains on which it grants them.
    pub domains: Vec<String>,
    /// The buckets on which it grants them. Absent for all buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub buckets: Option<Vec<String>>,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created: String,
    /// When it expires. Absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub expires: Option<String>,
    /// When a server last accepted it, to about a minute. Absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub last_used: Option<String>,
    /// The note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub note: Option<String>,
}

impl From<TokenInfo> for TokenDocument {
    fn from(token: TokenInfo) -> Self {
        let TokenInfo { id, grant, created_at, expires_at, used_at, note } = token;
        Self {
            id: id.into(),
            rights: grant.rights.iter().map(|right| right.to_string()).collect(),
            domains: grant.domains.iter().map(ToString::to_string).collect(),
            buckets: grant.buckets.map(|buckets| buckets.iter().map(ToString::to_string).collect()),
            created: rfc3339::format(created_at),
            expires: expires_at.map(rfc3339::format),
            last_used: used_at.map(rfc3339::format),
            note,
        }
    }
}
