//! The location of tokens: a store, or a running server.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use rashomon_clock::{Clock, SystemClock};
use rashomon_server::access::{MAX_LISTED, TokenDocument, TokenId, TokenRequest, TokenStore};
use rashomon_upstream::{Client, ServerUrl, connect, refusal_reason};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    arguments::TokenLocationArguments,
    errors::CommandError,
    output,
    store::{IfMissing, Store},
};

/// The location of the tokens.
pub(super) enum Location {
    /// A store that this command has opened.
    Store { store: Box<Store>, tokens: TokenStore, clock: Arc<dyn Clock> },
    /// A running server.
    Server { server: ServerUrl, client: Client<Full<Bytes>> },
}

impl Location {
    pub(super) async fn open(
        arguments: &TokenLocationArguments,
        absent: IfMissing,
    ) -> Result<Self, CommandError> {
        if let Some(server) = &arguments.to {
            let client = connect(server).await?;
            output::warn_of_exposed_token(server, &client);
            return Ok(Self::Server { server: server.clone(), client });
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Box::pin(Store::open_offline(&arguments.store, Arc::clone(&clock), absent)).await;
        let advice = ", ask the server: add --to with its URL";
        let store = Box::new(store.map_err(|error| error.if_busy(advice))?);
        let tokens = TokenStore::new(store.tables(), Arc::clone(&clock));
        Ok(Self::Store { store, tokens, clock })
    }

    /// Makes a token, and returns its text.
    pub(super) async fn make(&mut self, request: &TokenRequest) -> Result<String, CommandError> {
        #[derive(Deserialize)]
        struct CreatedToken {
            token: String,
        }
        match self {
            Self::Store { tokens, clock, .. } => {
                let new = request.check(clock.now()).map_err(CommandError::Usage)?;
                Ok(tokens.create(new).await?.reveal().to_owned())
            }
            Self::Server { server, client } => {
                let body = serde_json::to_value(request).unwrap_or_default();
                let (status, answer) = client.json(Method::POST, "/v1/tokens", Some(&body)).await?;
                let made: CreatedToken = expect(server, status, answer)?;
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
            Self::Server { server, client } => {
                // A result page must fit into the size limit of an answer, even if the tokens have long notes.
                let mut query = "?limit=20".to_owned();
                loop {
                    let path = format!("/v1/tokens{query}");
                    let (status, answer) = client.json(Method::GET, &path, None).await?;
                    let list: List = expect(server, status, answer)?;
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
            Self::Server { server, client } => {
                let (status, answer) = client.json(Method::DELETE, &format!("/v1/tokens/{id}"), None).await?;
                match status {
                    StatusCode::NO_CONTENT => Ok(true),
                    // A server without a route for tokens answers 404, too. Only a missing token has this type.
                    StatusCode::NOT_FOUND if problem_is(&answer, "not-found") => Ok(false),
                    _ => Err(refused(server, status, &answer)),
                }
            }
        }
    }

    pub(super) async fn close(self) {
        match self {
            Self::Store { store, .. } => store.close().await,
            Self::Server { .. } => {}
        }
    }
}

/// The document of a successful answer.
fn expect<T: DeserializeOwned>(
    server: &ServerUrl,
    status: StatusCode,
    answer: Value,
) -> Result<T, CommandError> {
    if !status.is_success() {
        return Err(refused(server, status, &answer));
    }
    serde_json::from_value(answer).map_err(|error| {
        CommandError::Refused(format!("{server} did not answer like a rashomon server: {error}"))
    })
}

fn problem_is(answer: &Value, name: &str) -> bool {
    answer["type"].as_str().is_some_and(|kind| kind.ends_with(name))
}

fn refused(server: &ServerUrl, status: StatusCode, answer: &Value) -> CommandError {
    let reason = refusal_reason(answer);
    CommandError::Refused(format!("{server} refused the request ({status}): {reason}"))
}
