//! The registry of backends.

use std::sync::Arc;

use crate::{
    Backend, ConfigError, InputError, Servers,
    error::excerpt,
    path::{expand, segments},
};
use rashomon_protocol::DomainName;

/// Maps prefixes of paths to backends.
///
/// A prefix is a path inside the default domain (`/math-png`), or one that names a domain (`//dewiki`,
/// `//dewiki/math-png`). The prefix `/` matches everything, in all domains. The longest prefix wins. A prefix matches
/// whole parts between slashes: `/math` does not match `/math-png/a`.
///
/// ```
/// use rashomon_client::{Registry, Servers, Store};
///
/// let store = Store::of(
///     Registry::for_domain("enwiki")?
///         .servers("/math-png", Servers::new(["http://10.0.0.1:7231", "http://10.0.0.2:7231"]))
///         .servers("/", Servers::new(["http://10.0.0.3:7231"])),
/// )?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Registry {
    domain: Option<DomainName>,
    entries: Vec<(String, Destination)>,
}

#[derive(Debug)]
enum Destination {
    Servers(Servers),
    Backend(Arc<dyn Backend>),
}

impl Registry {
    /// An empty registry without a default domain.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry with a default domain.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Name`] if the text is not the name of a domain.
    pub fn for_domain(domain: &str) -> Result<Self, InputError> {
        Ok(Self { domain: Some(DomainName::new(domain)?), entries: Vec::new() })
    }

    /// Adds servers for a prefix.
    pub fn servers(mut self, prefix: impl Into<String>, servers: Servers) -> Self {
        self.entries.push((prefix.into(), Destination::Servers(servers)));
        self
    }

    /// Adds a backend of the program for a prefix.
    pub fn backend(mut self, prefix: impl Into<String>, backend: impl Backend) -> Self {
        self.entries.push((prefix.into(), Destination::Backend(Arc::new(backend))));
        self
    }

    /// Checks the prefixes and the settings, and makes the backends.
    pub(crate) fn open(self) -> Result<Routes, ConfigError> {
        let mut routes: Vec<Route> = Vec::new();
        for (text, destination) in self.entries {
            let prefix = parse(&text, self.domain.as_ref())?;
            if routes.iter().any(|route| route.prefix == prefix) {
                return Err(ConfigError::TwoBackends(excerpt(&text)));
            }
            let backend = match destination {
                Destination::Servers(servers) => Arc::new(servers.open()?),
                Destination::Backend(backend) => backend,
            };
            routes.push(Route { prefix, backend });
        }
        Ok(Routes { domain: self.domain, routes })
    }
}

/// The parts of a prefix: none, or a domain and what follows it.
fn parse(text: &str, default: Option<&DomainName>) -> Result<Vec<String>, ConfigError> {
    if text == "/" {
        return Ok(Vec::new());
    }
    let expanded = expand(text.trim_end_matches('/'), default).map_err(ConfigError::Prefix)?;
    if text.contains('?') {
        let reason = "a prefix has no query";
        return Err(ConfigError::Prefix(InputError::Path { path: excerpt(text), reason }));
    }
    Ok(segments(&expanded))
}

/// The routes of a registry whose prefixes and settings were checked.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) domain: Option<DomainName>,
    routes: Vec<Route>,
}

#[derive(Debug)]
struct Route {
    prefix: Vec<String>,
    backend: Arc<dyn Backend>,
}

impl Routes {
    /// The backend with the longest prefix of a path of the HTTP API.
    pub(crate) fn find(&self, path: &str) -> Result<&Arc<dyn Backend>, InputError> {
        let segments = segments(path);
        let matching = self.routes.iter().filter(|route| segments.starts_with(&route.prefix));
        let longest = matching.max_by_key(|route| route.prefix.len());
        longest.map(|route| &route.backend).ok_or_else(|| InputError::NoBackend(excerpt(path)))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;
    use crate::{Body, TransportError};

    #[derive(Debug)]
    struct Named(#[allow(dead_code)] &'static str); // `Debug` shows the name.

    impl Backend for Named {
        fn send(
            &self,
            _: http::Request<Body>,
        ) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
            Box::pin(async { Ok(http::Response::new(Body::empty())) })
        }
    }

    fn registry(names: &[&'static str]) -> Registry {
        let empty = Registry::for_domain("enwiki").unwrap();
        names.iter().fold(empty, |registry, name| registry.backend(*name, Named(name)))
    }

    #[test]
    fn longest_prefix_wins_by_whole_segments() {
        let names = ["/math", "/", "/math-png", "//dewiki", "//dewiki/math-png", "/page/Talk", "/page/A b"];
        let routes = registry(&names).open().unwrap();
        for (path, prefix) in [
            ("/v1/enwiki/math-png/a.png", "/math-png"),
            ("/v1/enwiki/math-png", "/math-png"),
            ("/v1/enwiki/math/a", "/math"),
            ("/v1/enwiki/math-svg/a", "/"),
            ("/v1/dewiki/math-png/a", "//dewiki/math-png"),
            ("/v1/dewiki/page/A?rev/", "//dewiki"),
            ("/v1/frwiki/math-png/a", "/"),
            ("/v1/enwiki/page/Talk/x?rev/", "/page/Talk"),
            ("/v1/enwiki/page/Talk%2Fx?rev/", "/page/Talk"),
            ("/v1/enwiki/page/Talker?rev/", "/"),
            ("/v1/enwiki/page/A_b?rev/", "/page/A b"),
            ("/v1/enwiki?page/Talk", "/"),
        ] {
            let found = routes.find(path).unwrap();
            assert_eq!(format!("{found:?}"), format!("Named({prefix:?})"), "{path}");
        }
    }

    #[test]
    fn path_without_a_backend_is_an_error() {
        let routes = registry(&["/math-png"]).open().unwrap();
        assert!(matches!(routes.find("/v1/enwiki/page/A"), Err(InputError::NoBackend(_))));
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for prefix in ["", "math-png", "//Dewiki", "/a/../b", "/page?rev/", "///"] {
            let refused = Registry::for_domain("enwiki").unwrap().backend(prefix, Named("x")).open();
            assert!(matches!(refused, Err(ConfigError::Prefix(_))), "{prefix}");
        }
        assert!(
            Registry::new().backend("/math-png", Named("x")).open().is_err(),
            "there is no default domain"
        );
        let twice = registry(&["/math-png", "//enwiki/math-png/"]).open();
        assert!(matches!(twice, Err(ConfigError::TwoBackends(_))));
    }
}
