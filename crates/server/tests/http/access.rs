//! Tests of access: the rights of callers, and what the answers show to callers without a right.

mod attempts;
mod browsers;
mod buckets;
mod caching;
mod credentials;
mod import;
mod lists;
mod matrix;
mod operators;
mod reading;
mod rights;
mod tokens;
mod web_tokens;
mod writing;

use std::time::Duration;

use rashomon_pages::DomainName;
use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, DomainRights, Grant, NewToken, Right, Rights};

use crate::world::{Answer, World};

/// The domain that everybody may read.
pub(crate) const PUBLIC: &str = "pubwiki";

/// The URL of the main page of a domain.
fn page_of(domain: &str) -> String {
    format!("/v1/{domain}/page/Main_Page")
}

fn domain(name: &str) -> DomainName {
    DomainName::new(name).unwrap()
}

/// Makes a grant of rights on these domains, and on these buckets or on all buckets.
pub(crate) fn grant(rights: &[Right], domains: &[&str], buckets: Option<&[&str]>) -> Grant {
    Grant {
        rights: rights.iter().copied().collect(),
        domains: domains.iter().map(|text| text.parse().unwrap()).collect(),
        buckets: buckets.map(|all| all.iter().map(|text| text.parse().unwrap()).collect()),
    }
}

/// The rights with which everybody may read [`PUBLIC`], and nothing else.
pub(crate) fn public_domain() -> AnonymousRights {
    anonymous_on(PUBLIC, &[Right::Read])
}

/// Gives everybody these rights on one domain, and none elsewhere.
fn anonymous_on(name: &str, rights: &[Right]) -> AnonymousRights {
    let of_domain = DomainRights { anonymous: Some(rights.iter().copied().collect()), ..Default::default() };
    AnonymousRights { everywhere: Rights::NONE, domains: [(domain(name), of_domain)].into() }
}

/// Starts an open server, and a server of the same store with these rights for clients without a token.
pub(crate) async fn servers(settings: Settings, anonymous: AnonymousRights) -> (World, World) {
    let open = World::with(settings.clone()).await;
    let guarded = open.with_access(settings, anonymous);
    (open, guarded)
}

/// Starts an open server, and a server of the same store on which clients without a token may read only [`PUBLIC`].
async fn guarded() -> (World, World) {
    servers(Settings::default(), public_domain()).await
}

impl World {
    /// Makes a token with these rights, on all buckets. Returns the value of the header `Authorization`.
    async fn token(&self, rights: &[Right], domains: &[&str]) -> String {
        self.token_of(grant(rights, domains, None), None).await
    }

    /// Makes a token. Returns the value of the header `Authorization`.
    pub(crate) async fn token_of(&self, grant: Grant, expires_after: Option<Duration>) -> String {
        use rashomon_clock::Clock as _;
        let expires_at = expires_after.map(|after| self.clock.now().saturating_add(after));
        let token = self.access.create_token(NewToken { grant, expires_at, note: None }).await.unwrap();
        format!("Bearer {}", token.reveal())
    }

    /// Sends a request with a token, or without if the token is empty.
    async fn ask(
        &self,
        token: &str,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut headers = headers.to_vec();
        if !token.is_empty() {
            headers.push(("authorization", token));
        }
        self.request(method, url, &headers, body.to_owned()).await
    }

    /// Posts a URL-encoded form with a token, or without if the token is empty.
    async fn post_as(&self, token: &str, url: &str, form: &str) -> Answer {
        self.ask(token, "POST", url, &[FORM], form).await
    }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const HTML: (&str, &str) = ("content-type", "text/html");
const JSON: (&str, &str) = ("content-type", "application/json");
/// The header by which a browser is recognized.
const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml");

/// A request for a token that may read enwiki.
const TOKEN_REQUEST: &str = r#"{"rights": ["read"], "domains": ["enwiki"]}"#;

/// An export with one revision.
fn export(rev: u32, text: &str) -> String {
    format!(
        r#"<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <page><title>Main Page</title><ns>0</ns><id>1</id><revision><id>{rev}</id>
  <timestamp>2010-01-01T00:00:00Z</timestamp><contributor><username>Ann</username><id>1</id></contributor>
  <model>wikitext</model><format>text/x-wiki</format><text xml:space="preserve">{text}</text></revision></page>
</mediawiki>"#
    )
}

/// Stores a page with two revisions in a domain. Returns the tids of the revisions.
async fn fill(open: &World, domain: &str) -> [String; 2] {
    let list = format!("{}?rev/", page_of(domain));
    let first = open.post(&list, "_rev=1&html=one&wikitext=text+one").await.expect(201);
    open.clock.advance(Duration::from_secs(1));
    let second = open.post(&list, "_rev=2&_parent=1&html=two&wikitext=text+two&_user=Ann").await.expect(201);
    open.clock.advance(Duration::from_secs(60));
    [first, second].map(|answer| answer.json()["tid"].as_str().unwrap().to_owned())
}

/// Checks that an answer asks for a token.
#[track_caller]
fn expect_challenge(answer: Answer) -> Answer {
    let answer = answer.expect(401);
    assert_eq!(answer.header("www-authenticate"), "Bearer", "{answer:?}");
    assert_eq!(answer.json()["type"], "urn:rashomon:problem:unauthorized");
    answer
}

/// Removes the parts of an answer that differ between any two requests: the id of the request, and optionally the URL
/// in the body of a problem.
fn comparable(mut answer: Answer, without_instance: bool) -> Answer {
    answer.headers.remove("x-request-id");
    if without_instance
        && let Ok(mut problem) = serde_json::from_slice::<serde_json::Value>(&answer.body)
        && problem.as_object_mut().is_some_and(|members| members.remove("instance").is_some())
    {
        answer.headers.remove("content-length");
        answer.body = serde_json::to_vec(&problem).unwrap();
    }
    answer
}
