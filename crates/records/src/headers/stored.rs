//! Which `X-` headers are stored and returned.

use serde::{Deserialize, Serialize};

use super::ignored::{HeaderPattern, is_added_by_proxies};

/// The `x-` headers that this server sets itself.
const OWN_HEADERS: [&str; 3] = ["x-rev", "x-parent", "x-content-type-options"];

/// The beginnings of the names of `x-` headers with which an answer steers a server in front of this one, or a browser.
/// A writer could use such a header to make a proxy send its own files, to redirect the readers of a page, to change
/// what a cache keeps and under which keys, or to weaken the protection of browsers.
const STEERING_PREFIXES: [&str; 114] = [
    // Files and URLs that a server sends instead of the answer: nginx, Caddy, lighttpd, Apache, LiteSpeed, Perlbal, App
    // Engine, mod_zip, and the cache of Symfony.
    "x-accel-",
    "x-appengine-",
    "x-archive-charset",
    "x-archive-files",
    "x-archive-name",
    "x-archive-pass-headers",
    "x-body-",
    "x-content-digest",
    "x-lighttpd-",
    "x-litespeed-",
    "x-lsadc-",
    "x-lscache",
    "x-lsphp-",
    "x-mogilefs-",
    "x-reproxy-",
    "x-send-file",
    "x-sendfile",
    // Rules, routes and redirects: object stores, gateways, load balancers, and hosts of sites.
    "x-amz-",
    "x-apigee-",
    "x-arr-",
    "x-azure-",
    "x-bce-",
    "x-cf-",
    "x-cos-",
    "x-goog-",
    "x-haproxy-",
    "x-http-method",
    "x-iis-",
    "x-istio-",
    "x-kong-",
    "x-middleware-",
    "x-ms-",
    "x-netlify-",
    "x-nextjs-",
    "x-nf-",
    "x-obs-",
    "x-original-",
    "x-oss-",
    "x-proxy-",
    "x-redirect-",
    "x-rewrite-",
    "x-route-",
    "x-router-",
    "x-traefik-",
    "x-upstream-",
    "x-vercel-",
    // What caches keep, for how long and under which names: Varnish, Fastly, Akamai, Squid, Traffic Server, and others.
    "x-akamai-",
    "x-ats-",
    "x-backend",
    "x-ban-",
    "x-bypass-cache",
    "x-cache",
    "x-cdn",
    "x-check-cacheable",
    "x-do-esi",
    "x-drupal-cache",
    "x-drupal-dynamic-cache",
    "x-ec-",
    "x-edge-",
    "x-edgeconnect-",
    "x-esi",
    "x-fastcgi-cache",
    "x-fastly-",
    "x-hashtwo",
    "x-hiawatha-",
    "x-host",
    "x-invalidat",
    "x-key",
    "x-magento-",
    "x-mod-pagespeed",
    "x-next-cache-",
    "x-nginx-",
    "x-no-cache",
    "x-page-speed",
    "x-pagespeed",
    "x-pantheon-",
    "x-psa-",
    "x-purge",
    "x-qc-",
    "x-rack-cache",
    "x-reverse-proxy-",
    "x-served-by",
    "x-souin-",
    "x-squid-",
    "x-sucuri-",
    "x-surrogate-",
    "x-swift-",
    "x-symfony-",
    "x-tags",
    "x-timer",
    "x-true-cache-",
    "x-ts-",
    "x-ttl",
    "x-turpentine-",
    "x-url",
    "x-varnish",
    "x-vary-",
    "x-xkey",
    // Browsers: their protection, and where they and the scripts of pages go.
    "x-auto-login",
    "x-chrome-",
    "x-content-security-policy",
    "x-dns-prefetch-control",
    "x-download-options",
    "x-frame-options",
    "x-permitted-cross-domain-policies",
    "x-pingback",
    "x-pjax-",
    "x-refresh",
    "x-sourcemap",
    "x-turbolinks-",
    "x-ua-compatible",
    "x-up-",
    "x-webkit-csp",
    "x-xss-protection",
];

/// Names that begin like one of [`STEERING_PREFIXES`], and steer nothing.
const HARMLESS_PREFIXES: [&str; 1] = ["x-keyword"];

/// Which `X-` headers are stored with properties and entries, and returned with them: all except those that steer
/// servers or browsers or, if the configuration has a list, only those of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredHeaders {
    /// The list of the configuration.
    only: Option<Vec<HeaderPattern>>,
    /// The header in which answers have their surrogate keys, in lower case.
    surrogate_keys: Option<Box<str>>,
}

impl StoredHeaders {
    /// The maximum number of patterns in a list. The name of each stored header is compared with all of them.
    pub const MAX_PATTERNS: usize = 64;

    /// Creates the rule. `only`: the list of the configuration. `surrogate_keys`: the header in which answers have
    /// their surrogate keys; it is never stored.
    #[must_use]
    pub fn new(only: Option<Vec<HeaderPattern>>, surrogate_keys: Option<&str>) -> Self {
        Self { only, surrogate_keys: surrogate_keys.map(|name| name.to_ascii_lowercase().into()) }
    }

    /// Whether a header of a property, other than `content-type`, is stored and returned. `name` has to be in lower
    /// case.
    #[must_use]
    pub fn keep(&self, name: &str) -> bool {
        name == "content-language" || (name.starts_with("x-") && self.keep_extension(name))
    }

    /// Whether a header of an entry of a key-value bucket, other than `content-type`, is stored and returned. `name`
    /// has to be in lower case.
    #[must_use]
    pub fn keep_with_entry(&self, name: &str) -> bool {
        matches!(name, "content-disposition" | "cache-control") || self.keep(name)
    }

    /// Whether an `x-` header is stored.
    fn keep_extension(&self, name: &str) -> bool {
        let is_ours = OWN_HEADERS.contains(&name) || self.surrogate_keys.as_deref() == Some(name);
        if is_ours || is_added_by_proxies(name) {
            return false;
        }
        match &self.only {
            Some(patterns) => patterns.iter().any(|pattern| pattern.matches(name)),
            None => {
                let begins = |prefix: &&str| name.starts_with(*prefix);
                HARMLESS_PREFIXES.iter().any(&begins) || !STEERING_PREFIXES.iter().any(begins)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_steer_servers_or_browsers_are_not_kept() {
        let rule = StoredHeaders::default();
        for name in [
            "x-accel-redirect",
            "x-akamai-edgescape",
            "x-body-eval",
            "x-amz-website-redirect-location",
            "x-cache",
            "x-cache-tags",
            "x-content-type-options",
            "x-fastly-request-id",
            "x-frame-options",
            "x-lighttpd-send-file",
            "x-litespeed-purge",
            "x-lsadc-backend",
            "x-parent",
            "x-reproxy-url",
            "x-rev",
            "x-sendfile2",
            "x-do-esi",
            "x-pjax-url",
            "x-turbolinks-location",
            "x-up-location",
            "x-fastcgi-cache",
            "x-http-method-override",
            "x-iis-cache",
            "x-ts-cache",
            "x-vary-options",
            "x-webkit-csp",
            "x-sendfile-temporary",
            "x-varnish",
            "x-xss-protection",
            "x-forwarded-host",
            "x-envoy-immediate-health-check-fail",
            "set-cookie",
            "surrogate-key",
            "cache-control",
        ] {
            assert!(!rule.keep(name), "{name}");
        }
        for name in
            ["content-language", "x-review", "x-spec-version", "x-keywords", "x-robots-tag", "x-revised"]
        {
            assert!(rule.keep(name) && rule.keep_with_entry(name), "{name}");
        }
        assert!(rule.keep_with_entry("cache-control") && rule.keep_with_entry("content-disposition"));
        assert!(!rule.keep_with_entry("x-cache-control"));
    }

    #[test]
    fn list_of_the_configuration_replaces_the_rule() {
        let list = ["x-frame-options", "x-my-*", "x-rev*", "x-tags"].map(|text| text.parse().unwrap());
        let rule = StoredHeaders::new(Some(list.into()), Some("X-Tags"));
        for (name, expected) in [
            ("x-frame-options", true),
            ("x-my-note", true),
            ("x-review", true),
            ("content-language", true),
            ("x-spec-version", false),
            ("x-cache", false),
            // Headers of the server itself and of proxies are never stored.
            ("x-rev", false),
            ("x-tags", false),
            ("x-forwarded-for", false),
        ] {
            assert_eq!(rule.keep(name), expected, "{name}");
        }
        assert!(!StoredHeaders::new(Some(Vec::new()), None).keep("x-review"));
        assert!(!StoredHeaders::new(None, Some("x-tags")).keep("x-tags"));
    }

    #[test]
    fn list_of_prefixes_is_sound() {
        for prefix in STEERING_PREFIXES {
            assert!(prefix.starts_with("x-") && prefix == prefix.to_ascii_lowercase(), "{prefix}");
            let covered = |other: &str| other != prefix && prefix.starts_with(other);
            assert!(!STEERING_PREFIXES.into_iter().any(covered), "{prefix}");
        }
    }
}
