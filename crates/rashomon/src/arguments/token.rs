//! The command line of `rashomon token`.

use std::str::FromStr;

use clap::{Args, Subcommand};
use rashomon_pages::NameError;
use rashomon_server::access::TokenId;
use rashomon_upstream::ServerUrl;

use super::StoreArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it
    ///
    /// Standard output has the token and nothing else. The store keeps only the SHA-256 of the token, so nobody can
    /// print the token again. A client sends the token in the header `Authorization: Bearer TOKEN`. A missing store is
    /// created, so that a server can start with its first token.
    #[command(after_help = "\
Exit codes:
  0  the token is stored
  1  an error ended the command
  2  the command line is wrong, such as an unknown right; nothing was done

Examples:
  rashomon token new --rights read,write --domain enwiki --expires 90d --note 'the bot of Ann'
  rashomon token new --rights read,write,import,rewrite,admin --domain '*'
  RASHOMON_TOKEN=$(cat admin.token) rashomon token new --to https://wiki.example.org --rights read --domain enwiki")]
    New(NewTokenArguments),

    /// List the tokens, the oldest first
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command
  2  the command line is wrong, or there is no store")]
    List(ListTokensArguments),

    /// Revoke tokens
    ///
    /// All servers of the store refuse a revoked token within five seconds. A revoked token cannot be restored.
    #[command(after_help = "\
Exit codes:
  0  the tokens are revoked
  1  an error ended the command, or there is no token with one of the ids (the others are revoked)
  2  the command line is wrong, or there is no store

Example:
  rashomon token revoke 6a4e7f30a1b2c3d4e5f6")]
    Revoke(RevokeTokensArguments),
}

/// The location of the tokens: a store, or a running server.
#[derive(Debug, Args)]
pub(crate) struct TokenLocationArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Send requests to a running server instead of opening the store. The environment variable RASHOMON_TOKEN has the
    /// token for the requests. This token must grant `admin` on every domain and every bucket. A configuration file is
    /// not read
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) to: Option<ServerUrl>,
}

#[derive(Debug, Args)]
pub(crate) struct NewTokenArguments {
    #[command(flatten)]
    pub(crate) location: TokenLocationArguments,

    /// Rights that the token grants: read, write, import (import whole histories; together with write: set the time of
    /// a revision or render with _timestamp), rewrite (replace stored properties), admin (create, change and delete
    /// buckets; if granted on every domain and every bucket, also make, list and revoke tokens). No right implies
    /// another
    #[arg(long, value_name = "RIGHT,...", value_delimiter = ',', required = true)]
    pub(crate) rights: Vec<String>,

    /// Domains on which the token grants its rights; * at the end of a name matches any ending, and '*' alone
    /// matches all domains
    #[arg(long = "domain", value_name = "NAME,...", value_delimiter = ',', required = true)]
    pub(crate) domains: Vec<String>,

    /// Buckets on which the token grants its rights, in the same notation [default: all]
    #[arg(long = "bucket", value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) buckets: Vec<String>,

    /// When the token expires: a length of time such as 90d, or a time such as 2030-01-31T00:00:00Z [default:
    /// never]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,

    /// A note for people: who has the token, and what for
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListTokensArguments {
    #[command(flatten)]
    pub(crate) location: TokenLocationArguments,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeTokensArguments {
    #[command(flatten)]
    pub(crate) location: TokenLocationArguments,

    /// Ids of the tokens, as `rashomon token list` prints them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<NamedToken>,
}

/// The id of a token, given as the id or as the token itself. No error repeats a token.
#[derive(Debug, Clone)]
pub(crate) struct NamedToken(pub(crate) TokenId);

impl FromStr for NamedToken {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let of_token = TokenId::of_token(text);
        of_token.map_or_else(|| text.parse(), Ok).map(Self)
    }
}
