//! The location of tokens: a store, or a running server.

use std::sync::Arc;

use http::{Method, StatusCode};
use rashomon_clock::{Clock, SystemClock};
use rashomon_protocol::ProblemKind;
use rashomon_server::access::{MAX_LISTED, TokenDocument, TokenId, TokenRequest, TokenStore};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    arguments::TokenLocationArguments,
    errors::CommandError,
    remote::{Remote, request},
    store::{IfMissing, Store},
};

/// The location of the tokens.
pub(super) enum Location {
    /// A store that this command has opened.
    Store { store: Box<Store>, tokens: TokenStore, clock: Arc<dyn Clock> },
    /// A running server.
    Server(Box<Remote>),
}

impl Location {
    pub(super) async fn open(
        arguments: &TokenLocationArguments,
        absent: IfMissing,
    ) -> Result<Self, CommandError> {
        if let Some(server) = &arguments.to {
            return Ok(Self::Server(Box::new(Remote::new(server)?)));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Box::pin(Store::open_offline(&arguments.store, Arc::clone(&clock), absent)).await;
        let advice = ", ask the server: add --to with its URL";
        let store = Box::new(store.map_err(|error| error.if_busy(advice))?);
        let tokens = TokenStore::new(store.tables(), Arc::clone(&clock));
        Ok(Self::Store { store, tokens, clock })
    }

    /// Makes a token, and returns its text.
    pub(super) async fn make(&mut self, new: &TokenRequest) -> Result<String, CommandError> {
        #[derive(Deserialize)]
        struct CreatedToken {
            token: String,
        }
        match self {
            Self::Store { tokens, clock, .. } => {
                let new = new.check(clock.now()).map_err(CommandError::Usage)?;
                Ok(tokens.create(new).await?.reveal().to_owned())
            }
            Self::Server(remote) => {
                let body = serde_json::to_string(new).unwrap_or_default();
                let answer = remote.tell(request(Method::POST, "/v1/tokens"), body).await?;
                let made: CreatedToken = remote.parse(answer)?;
                Ok(made.token)
            }
        }
    }

    /// Lists all tokens.
    pub(super) async fn list(&mut self) -> Result<Vec<TokenDocument>, CommandError> {
        #[derive(Deserialize)]
        struct List {
            tokens: Vec<TokenDocument>,
            next: Option<String>,
        }
        let mut all = Vec::new();
        match self {
            Self::Store { tokens, .. } => {
                let mut after = None;
                loop {
                    let list = tokens.list(after.as_ref(), MAX_LISTED).await?;
                    all.extend(list.items.into_iter().map(TokenDocument::from));
                    after = list.next;
                    if after.is_none() {
                        return Ok(all);
                    }
                }
            }
            Self::Server(remote) => {
                // A result page must fit into the size limit of an answer, even if the tokens have long notes.
                let mut query = "?limit=20".to_owned();
                loop {
                    let path = format!("/v1/tokens{query}");
                    let list: List = remote.parse(remote.ask(Method::GET, &path).await?)?;
                    all.extend(list.tokens);
                    match list.next {
                        Some(next) if next != query => query = next,
                        _ => return Ok(all),
                    }
                }
            }
        }
    }

    /// Revokes a token. Returns whether there was one.
    pub(super) async fn revoke(&mut self, id: &TokenId) -> Result<bool, CommandError> {
        match self {
            Self::Store { tokens, .. } => Ok(tokens.revoke(id).await?),
            Self::Server(remote) => {
                let answer = remote.ask(Method::DELETE, &format!("/v1/tokens/{id}")).await?;
                match answer.status {
                    StatusCode::NO_CONTENT => Ok(true),
                    // A server without a route for tokens answers 404, too. Only a missing token has this type.
                    StatusCode::NOT_FOUND if is_missing(&answer.document) => Ok(false),
                    _ => Err(remote.refused(&answer)),
                }
            }
        }
    }

    pub(super) async fn close(self) {
        match self {
            Self::Store { store, .. } => store.close().await,
            Self::Server(_) => {}
        }
    }
}

/// Whether a problem document says that something does not exist.
fn is_missing(answer: &Value) -> bool {
    answer["type"].as_str().and_then(ProblemKind::of_type) == Some(ProblemKind::NotFound)
}
