use std::time::Duration;

use rashomon_pages::{ArchivePolicy, Current, Fill, StoredHeaders, Strategy};

use super::*;

/// Loads a file together with settings that override it.
fn load_above(file: &str, raw: RawSettings) -> Result<Settings, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rashomon.toml");
    std::fs::write(&path, file).unwrap();
    let place = format!("{}/", directory.path().display());
    Settings::load(raw, Some(&path)).map_err(|error| error.to_string().replace(&place, ""))
}

fn load(file: &str) -> Result<Settings, String> {
    load_above(file, RawSettings::default())
}

fn refused(file: &str, expected: &str) {
    let error = load(file).expect_err(file);
    assert!(error.contains(expected), "{file}\n{error}");
}

#[test]
fn empty_configuration_has_the_defaults() {
    let settings = Settings::load(RawSettings::default(), None).unwrap();
    assert_eq!(settings, load("").unwrap());
    assert_eq!(settings.merged.listen.to_string(), "127.0.0.1:7231");
    assert_eq!(settings.store.to_string(), "sqlite:./rashomon-data");
    let headers = StoredHeaders::new(None, Some("xkey"));
    assert_eq!(settings.buckets().definitions, Definitions::default().with_headers(headers));
}

#[test]
fn printed_configuration_has_the_same_effect() {
    let file = "store = 'memory:'\ncache_size = '1 GiB'\nentry_cache_size = '1 GiB'\nmax_idempotency_keys = 7\ncollect_every = '2h'\nlisten = '0.0.0.0:80'\n\
                hosts = ['wiki.internal', '*']\nignored_headers = ['x-varnish', 'x-my-proxy-*']\nstored_headers = ['x-review', 'x-my-*']\nshutdown_grace = '1m'\nskew = '1s'\nread_only = true\n\
                body_limit = 70000000\nbody_timeout = '1m'\nidle_timeout = '1m'\nread_timeout = '1m'\nbatch_timeout = '2m'\n\
                 min_upload_rate = '2 KiB'\nstaging_memory = '128 MiB'\nstaging_wait = '1s'\n\
                url_limit = '1 KiB'\nmax_connections = 1\nhead_timeout = '2m'\nstall_timeout = '2m'\nmax_writes = 1\nmax_unpacks = 3\noverload_wait = '70ms'\nmax_imports = 1\nmax_spool = '1 GiB'\nprepared_answers = 0\nreplay_memory = '1 MiB'\npurge_again_after = '3s'\nsurrogate_key_header = 'surrogate-key'\nlog_format = 'json'\nlog_level = 'debug'\naccess_log = 'all'\naudit_log = 'stderr'\n[properties.html]\nmax_size = '1 MB'\n\
                [properties.notes]\nversions = 'revision'\n[domains.enwiki]\nhosts = ['en.example.org']\n[domains.a]\n\
                [access]\nopen = true\norigins = ['https://en.example.org']\n";
    let settings = load(file).unwrap();
    let printed = toml::to_string(&settings).unwrap();
    assert_eq!(load(&printed).unwrap(), settings);
    for access in [
        "access = 'open'",
        "[access]",
        "[access]\nanonymous = ['read']\noperator_pages = 'token'\nproxies = ['127.0.0.1', '10.0.0.0/8']\n\
         [access.domains.a]\nanonymous = []\n[access.domains.b.buckets.page]\nanonymous = ['write', 'read']",
        "[access]\nanonymous = ['read']\n[access.domains.a.buckets.docs]\nanonymous = []\n\
         [access.domains.a.buckets.thumbnails]\nanonymous = ['read']\n\
         [access.domains.a.buckets.clicks]\nanonymous = ['write']\n\
         [domains.a.buckets.docs]\ntype = 'revisioned'\n[domains.a.buckets.thumbnails]\ntype = 'blob'\n\
         [domains.a.buckets.clicks]\ntype = 'counter'",
    ] {
        let settings = load(access).unwrap();
        assert_eq!(load(&toml::to_string(&settings).unwrap()).unwrap(), settings, "{access}");
    }
    // The file changes every setting, so each must be read and printed.
    let defaults = toml::to_string(&load("").unwrap()).unwrap();
    for line in printed.lines().take_while(|line| !line.starts_with('[')).filter(|line| !line.is_empty()) {
        assert!(defaults.lines().all(|default| default != line), "{line}");
    }
}

#[test]
fn flags_override_the_file() {
    let raw = || RawSettings {
        listen: Some("127.0.0.1:1".parse().unwrap()),
        skew: Some("1s".parse().unwrap()),
        ..RawSettings::default()
    };
    let settings = load_above("listen = '127.0.0.1:2'\nstore = 'memory:'\n", raw()).unwrap();
    assert_eq!(settings.merged.listen.to_string(), "127.0.0.1:1");
    assert_eq!(settings.merged.skew.to_string(), "1s");
    assert_eq!(settings.store, StoreSettings::Memory);
}

#[test]
fn wrong_key_is_reported_with_its_line_and_the_nearest_right_one() {
    let error = load("listen = '127.0.0.1:1'\nbody_limt = '1 MB'\n").unwrap_err();
    let expected = "rashomon.toml:2:1: there is no setting 'body_limt'; did you mean 'body_limit'?\n  \
                    |\n2 | body_limt = '1 MB'\n  | ^^^^^^^^^";
    assert_eq!(error, expected);
    refused("body-limit = 1", "1:1: there is no setting 'body-limit'; did you mean 'body_limit'?");
    refused("[properties.html]\nsize = 1", "2:1: there is no setting 'size'");
    refused("[domain.a]\n", "1:2: there is no setting 'domain'; did you mean 'domains'?");
    refused("[domains.a]\nhost = []", "2:1: there is no setting 'host'; did you mean 'hosts'?");
}

#[test]
fn wrong_value_is_reported_with_its_line_and_allowed_ones() {
    refused("listen = 'here'", "1:10: an address to listen on is");
    refused("\n\nskew = '5'", "3:8: '5' is not a length of time");
    refused("skew = 5", "1:8: integer '5' is not allowed here: write a length of time, such as \"30s\"");
    refused("body_limit = -1", "1:14: a size cannot be negative");
    refused("body_limit = 'much'", "'much' is not a size");
    refused("store = 'redis:x'", "1:9: 'redis:' is not a kind of store; a store is one of sqlite:DIRECTORY");
    refused("[access]\nopn = true", "2:1: there is no setting 'opn'; did you mean 'open'?");
    refused("[access]\norigins = ['en.example.org']", "2:12: 'en.example.org' is not an origin");
    refused("hosts = ['https://x']", "1:10: 'https://x' is not a host");
    refused("[access]\nanonymous = ['reed']", "2:13: 'reed' is not a right: the rights are read, write");
    refused("[access]\noperator_pages = 'all'", "2:18:");
    refused("[access]\nproxies = ['proxy']", "2:12: 'proxy' is neither an IP address");
    refused("[access.domains.'*']\nanonymous = []", "a domain is 1 to 128");
    refused("[access.domains.a.buckets.import]\nanonymous = []", "'import' is reserved");
    refused("[access.domains.a]\nread = true", "there is no setting 'read'");
    refused("access = 'opn'", "1:10: 'opn' is not a value of this setting; did you mean 'open'?");
    refused("[properties.Html]", "1:13: a property is");
    refused("[domains.batch]", "1:10: 'batch' is reserved");
    refused("[domains.a]\nhosts = ['https://x']", "2:10: 'https://x' is not a host");
    refused("listen = '127.0.0.1:1'\nlisten = '127.0.0.1:2'", "2:1: duplicate key");
    refused("audit_log = ''", "1:13: the audit log is a file, or stderr for standard error");
    refused("audit_log = true", "a file, such as");
    refused(
        "ignored_headers = ['x varnish']",
        "'x varnish' is not the name of a header; write it as in x-varnish",
    );
    refused("ignored_headers = ['*-varnish']", "x-my-proxy-* for all names with this beginning");
    refused("ignored_headers = ['x-a', 'content-*']", "'content-*' matches content-type");
    refused("listen = ", "1:10:");
}

#[test]
fn ignored_headers_are_bounded() {
    let file = |count: usize| {
        let names: Vec<_> = (0..count).map(|number| format!("'x-{number}'")).collect();
        format!("ignored_headers = [{}]", names.join(", "))
    };
    assert!(load(&file(64)).unwrap().api().ignored_headers.contains("x-63"));
    refused(&file(65), "ignored_headers has 65 names, and at most 64 are allowed: write one name with a *");
}

#[test]
fn list_of_stored_headers_replaces_the_usual_rule() {
    let file = |names: &str| format!("stored_headers = [{names}]\nsurrogate_key_header = 'X-Tags'");
    let rule = load(&file("'X-Frame-Options', 'x-my-*', 'x-tags'")).unwrap().buckets().definitions.headers;
    let kept = ["x-frame-options", "x-my-note", "x-review", "x-tags"].map(|name| rule.keep(name));
    assert_eq!(kept, [true, true, false, false]);
    let usual = load("").unwrap().buckets().definitions.headers;
    assert!(usual.keep("x-review") && !usual.keep("x-cache"));
    refused(&file("'x-a', 'set-cookie'"), "stored_headers has 'set-cookie'");
    refused(&file(&vec!["'x-a'"; 65].join(", ")), "stored_headers has 65 names");
}

#[test]
fn contradictions_are_all_reported_at_once() {
    let file = "listen = '0.0.0.0:7231'\nbody_limit = '1 MiB'\n[properties.big]\nmax_size = '2 MiB'\n\
                [properties.wikitext]\nversions = 'render'\n\
                [domains.a]\nhosts = ['x.org']\n[domains.b]\nhosts = ['X.org']\n";
    let error = load(file).unwrap_err();
    for expected in [
        "use --access open",
        "rashomon.toml:3:1: max_size of property 'big' is 2 MiB",
        "rashomon.toml:5:1: property 'wikitext' holds the text of a revision",
        "rashomon.toml:10:10: host 'x.org' already belongs to domain 'a'",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn staging_memory_has_room_for_writes_beside_all_imports() {
    refused(
        "staging_memory = '100 MiB'",
        "staging_memory is 100 MiB, but 4 imports and two writes at the same time need 104 MiB: raise \
         staging_memory, or lower max_imports",
    );
    load("staging_memory = '104 MiB'").unwrap();
    load("staging_memory = '32 MiB'\nmax_imports = 1").unwrap();
    refused("max_imports = 1000000000000000", "raise staging_memory, or lower max_imports");
}

#[test]
fn addresses_other_than_loopback_require_access_rights() {
    assert!(load("listen = '127.0.0.1:1'").is_ok());
    assert!(load("listen = '[::1]:1'").is_ok());
    refused("listen = '192.0.2.1:1'", "--access open");
    refused("listen = '[::]:1'", "--access open");
    assert!(load("listen = '[::]:1'\naccess = 'open'").is_ok());
    assert!(load("listen = '[::]:1'\n[access]\nopen = true").is_ok());
    assert!(load("listen = '[::]:1'\n[access]").is_ok());
    assert!(load("listen = '[::]:1'\n[access]\nanonymous = ['read']").is_ok());
    // The error shows the lines that are missing.
    refused("listen = '[::]:1'", "    [access]\n    anonymous = [\"read\"] ");
    refused("listen = '[::]:1'", "\n    operator_pages = \"token\" ");
    // Origins alone do not give access rights.
    refused("listen = '[::]:1'\n[access]\norigins = ['https://en.example.org']", "--access open");
}

#[test]
fn rights_are_those_of_the_file_unless_a_flag_opens_everything() {
    use rashomon_server::OperatorPages::{Open, Token};
    use rashomon_server::access::{BucketKind, Policy, Right};
    let policy = |file: &str| load(file).unwrap().access.policy();
    assert_eq!(policy(""), Policy::Open);
    assert_eq!(policy("[access]\norigins = ['https://en.example.org']"), Policy::Open);
    for closed in ["operator_pages = 'token'", "proxies = ['127.0.0.1']"] {
        assert!(matches!(policy(&format!("[access]\n{closed}")), Policy::Anonymous(_)), "{closed}");
    }
    let Policy::Anonymous(none) = policy("[access]") else { panic!("an empty table allows nothing") };
    assert!(!none.hold_somewhere(Right::Read));
    let file = "[access]\nanonymous = ['read']\n[access.domains.a]\nanonymous = []";
    let Policy::Anonymous(rights) = policy(file) else { panic!("the file has rights") };
    let on = |domain: &str| {
        rights.on(&DomainName::new(domain).unwrap(), &BucketName::page(), BucketKind::Revisioned)
    };
    assert!(on("b").contains(Right::Read) && !on("b").contains(Right::Write) && on("a").is_empty());
    let flag = || RawSettings { access: Some(Access::Open), ..RawSettings::default() };
    assert_eq!(load_above(file, flag()).unwrap().access.policy(), Policy::Open);
    let pages = |file: &str| load(file).unwrap().api().operator_pages;
    for (file, expected) in [
        ("", Open),
        ("hosts = ['store.example.org']", Token),
        ("hosts = ['*']", Token),
        ("[domains.a]\nhosts = ['a.localhost']", Open),
        ("[access]", Token),
        ("[access]\nanonymous = ['read']", Token),
        ("[access]\nproxies = ['127.0.0.1']", Token),
        ("[access]\norigins = ['https://en.example.org']", Token),
        ("[access]\noperator_pages = 'token'", Token),
        ("hosts = ['*']\n[access]\noperator_pages = 'open'", Open),
        ("access = 'open'", Open),
        ("hosts = ['store.example.org']\naccess = 'open'", Open),
        ("listen = '[::]:1'\naccess = 'open'", Open),
        ("listen = '[::]:1'\n[access]", Token),
        ("listen = '[::]:1'\n[access]\nanonymous = ['read']\noperator_pages = 'open'", Open),
    ] {
        assert_eq!(pages(file), expected, "{file}");
    }
}

#[test]
fn contradictions_of_access_are_refused() {
    refused("[access]\nopen = true\nanonymous = ['read']", "remove open, or the rights");
    refused("[access]\naudience = 'x'", "no jwks_file");
    refused(
        "[access]\nanonymous = ['read', 'admin']",
        "'admin' cannot be a right of clients without a token",
    );
    refused("[access.domains.a.buckets.page]\nanonymous = ['admin']", "'admin' cannot be a right");
    refused("[access]\njwks_file = '/nonexistent/jwks.json'", "jwks_file of [access]: ");
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("jwks.json");
    std::fs::write(&keys, "{\"keys\": 1}").unwrap();
    refused(&format!("[access]\njwks_file = '{}'", keys.display()), "no set of keys as in RFC 7517");
}

#[test]
fn definitions_extend_the_built_in_ones() {
    let file = "[properties.html]\nmax_size = '1 MiB'\n[properties.notes]\ncontent_type = 'text/plain'\n";
    let definitions = load(file).unwrap().buckets().definitions;
    let get = |name: &str| definitions.get(&name.parse().unwrap()).clone();
    assert_eq!(
        (get("html").content_type.as_str(), get("html").max_size),
        ("text/html; charset=utf-8", 1 << 20)
    );
    assert_eq!((get("notes").content_type.as_str(), get("notes").versions), ("text/plain", Versions::Render));
    assert_eq!(get("wikitext").versions, Versions::Revision);
}

#[test]
fn missing_file_is_named() {
    let error = Settings::load(RawSettings::default(), Some(Path::new("/no/such.toml"))).unwrap_err();
    assert!(error.to_string().contains("cannot read the configuration /no/such.toml"), "{error}");
}

#[test]
fn misspelled_variable_is_reported() {
    let known = BTreeSet::from(["RASHOMON_LISTEN", "RASHOMON_STORE"].map(str::to_owned));
    let warning = |name: &str| unknown_variable(name, &known);
    let expected = "the variable RASHOMON_LISTN is not a setting; did you mean RASHOMON_LISTEN?";
    assert_eq!(warning("RASHOMON_LISTN").as_deref(), Some(expected));
    assert_eq!(
        warning("RASHOMON_SERVICE_HOST").as_deref(),
        Some("the variable RASHOMON_SERVICE_HOST is not a setting")
    );
    assert_eq!([warning("RASHOMON_STORE"), warning("HOME")], [None, None]);
}

#[test]
fn retention_table_turns_retention_on_and_a_bucket_table_overrides_it() {
    assert_eq!(load("").unwrap().buckets().retention.policy, None);
    let settings = load(
        "[retention]\ngrace = '2h'\nmin_keep = 3\n[domains.a.buckets.page.retention]\ngrace = '1h'\n\
         [domains.b.buckets.page.retention]\nstrategy = 'keep-everything'\n",
    );
    let settings = settings.unwrap();
    let retention = settings.buckets().retention;
    let all = retention.policy.clone().unwrap();
    assert_eq!((all.grace, all.slack), (Duration::from_secs(7200), Duration::from_secs(1800)));
    let of = |domain: &str| retention.of_bucket(&domain.parse().unwrap(), &BucketName::page()).cloned();
    let own = of("a").unwrap();
    assert_eq!((own.grace, own.slack), (Duration::from_secs(3600), Duration::from_secs(900)));
    assert_eq!(own.min_keep, all.min_keep);
    assert_eq!(of("b"), None);
    assert_eq!(of("c"), Some(all));
    let printed = toml::to_string(&settings).unwrap();
    assert_eq!(load(&printed).unwrap(), settings);
}

#[test]
fn strategy_is_chosen_for_all_buckets_or_for_one() {
    let settings = load(
        "[retention]\nstrategy = 'table-per-query'\noption = 'B'\nfill = 'copy-on-read'\n\
         [domains.a.buckets.page.retention]\nstrategy = 'two-table'\n\
         [domains.b.buckets.page.retention]\nstrategy = 'table-per-query'\noption = 'A'\n\
         [domains.c.buckets.page.retention]\nstrategy = 'table-per-query'\nfill = 'write-through'\n",
    );
    let retention = settings.unwrap().buckets().retention;
    let of = |domain: &str| {
        let policy = retention.of_bucket(&domain.parse().unwrap(), &BucketName::page());
        policy.map(|policy| policy.strategy).unwrap()
    };
    assert_eq!(of("other"), Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnRead));
    assert_eq!(of("a"), Strategy::TwoTable);
    assert_eq!(of("b"), Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnRead));
    assert_eq!(of("c"), Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough));
    let defaults = load("[retention]\nstrategy = 'table-per-query'").unwrap().buckets().retention.policy;
    let defaults = defaults.unwrap().strategy;
    assert_eq!(defaults, Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
}

#[test]
fn impossible_retention_is_refused() {
    for (file, expected) in [
        ("[retention]\ngrace = '0s'", "longer than 0s"),
        ("[retention]\ndelete_probability = 1.5", "between 0 and 1"),
        ("[retention]\nslack = '1ms'", "at least 100ms"),
        ("[retention]\nslack = '1s'\nskew = '2s'", "raise slack"),
        ("[retention]\nindex_ttl = '1h'", "raise index_ttl to at least"),
        (
            "[retention]\nstrategy = 'none'",
            "expected one of keep-everything, app-ttl, two-table, table-per-query",
        ),
        ("[retention]\noption = 'B'", "remove them"),
        ("[retention]\nstrategy = 'two-table'\nfill = 'write-through'", "use strategy = \"table-per-query\""),
        ("[retention]\nstrategy = 'table-per-query'\noption = 'C'", "A"),
        ("[retention]\nstrategy = 'table-per-query'\nmin_keep = 2", "app-ttl or two-table"),
        ("[retention]\nstrategy = 'table-per-query'\ncull = 'renders'", "app-ttl or two-table"),
        ("[domains.a.buckets.page.retention]\nsample = '1s'", "move them to [retention]"),
        ("[domains.a.buckets.pages.retention]\ngrace = '2h'", "1:1: [domains.a.buckets.pages] has no type"),
        ("[domains.a.buckets.import.retention]\ngrace = '2h'", "1:1: [domains.a.buckets.import]: "),
        (
            "[retention]\nmin_keep = 0",
            "2:12: integer '0' is not allowed here: write a whole number from 1 to 4294967295",
        ),
        (
            "[retention]\ngrace = 2",
            "2:9: integer '2' is not allowed here: write a length of time, such as \"30s\"",
        ),
        ("[retention]\ngrase = '1h'", "grase"),
        ("[archive]\n[retention]\nstrategy = 'two-table'", "use strategy = \"app-ttl\""),
        ("[archive]\n[retention]\nstrategy = 'table-per-query'", "or remove [archive]"),
        ("[archive]\n[domains.a.buckets.page.retention]\nstrategy = 'two-table'", "or remove [archive]"),
    ] {
        refused(file, expected);
    }
}

/// With a skew of five minutes, a write may count as made five minutes later than its time, and so may the
/// write that it superseded.
#[test]
fn too_short_slack_on_a_cluster_is_refused() {
    let at = |store: &str, rest: &str| format!("store = '{store}'\n{rest}");
    let cluster = |rest: &str| at("cassandra://db.example/wiki", rest);
    for (rest, expected) in [
        // A grace of 44 minutes has a slack of 11 minutes, which is too short; with 45 minutes the slack is
        // long enough.
        (
            "[retention]\ngrace = '44m'",
            "2:1: slack is 11m, but on a cluster superseded values may be culled as late as 11m 5s",
        ),
        ("[retention]\nslack = '11m'", "raise slack to the sum, or lower the skew of the server"),
        ("skew = '1s'\n[retention]\nskew = '1s'\nslack = '3s'", "as late as 4s after their grace"),
        ("skew = '0s'\n[retention]\nskew = '1s'\nslack = '1s'", "as late as 1s 333ms"),
        ("[domains.a.buckets.page.retention]\ngrace = '30m'", "2:1: slack is 7m 30s"),
    ] {
        refused(&cluster(rest), expected);
        assert!(load(&at("memory:", rest)).is_ok() && load(&at("sqlite:data", rest)).is_ok(), "{rest}");
    }
    for rest in [
        "",
        "[retention]",
        "[retention]\ngrace = '45m'",
        "[retention]\nslack = '11m 5s'",
        "skew = '1s'\n[retention]\nskew = '1s'\nslack = '4s'",
        "skew = '0s'\n[retention]\nslack = '250ms'\nskew = '100ms'",
        "[retention]\nstrategy = 'keep-everything'\nslack = '5s'",
    ] {
        assert!(load(&cluster(rest)).is_ok(), "{rest}");
    }
}

/// Values that retention would delete are sealed, so the sweep culls nothing.
#[test]
fn nothing_is_culled_with_an_archive() {
    let settings = load("[archive]\n[retention]\n[domains.a.buckets.page.retention]\ngrace = '2h'").unwrap();
    let buckets = settings.buckets();
    assert!(buckets.archive.is_some() && !buckets.retention.is_on());
}

#[test]
fn archive_of_a_bucket_overrides_that_of_all() {
    let mut settings = load(
        "[archive]\nafter = '3h'\n[domains.a.buckets.page.archive]\npolicy = 'first-render'\n\
         [domains.b.buckets.page.archive]\nafter = '4h'\n[domains.c.buckets.page.retention]\ngrace = '5h'\n\
         [domains.d.buckets.page.retention]\ngrace = '5h'\n[domains.d.buckets.page.archive]\nafter = '6h'\n",
    )
    .unwrap();
    let of = |settings: &Settings, domain: &str| {
        let own =
            settings.buckets().archive.unwrap().of_bucket(&domain.parse().unwrap(), &BucketName::page());
        (own.policy, own.after.as_secs() / 3600)
    };
    let (every, first) = (ArchivePolicy::Every, ArchivePolicy::FirstRender);
    let all = ["a", "b", "c", "d", "e"].map(|domain| of(&settings, domain));
    assert_eq!(all, [(first, 3), (every, 4), (every, 5), (every, 6), (every, 3)]);
    assert_eq!(load(&toml::to_string(&settings).unwrap()).unwrap(), settings);
    settings.enable_archive_for_sealing(Some("0s".parse().unwrap()), None).unwrap();
    assert_eq!(of(&settings, "a"), (first, 0));
    assert_eq!(of(&settings, "d"), (every, 0));
}

#[test]
fn impossible_archive_of_a_bucket_is_refused() {
    let page = "[domains.a.buckets.page.archive]";
    refused(&format!("{page}\nafter = '3h'"), "add the table [archive]");
    refused(&format!("[archive]\nenabled = false\n{page}\npolicy = 'every'"), "add the table [archive]");
    refused(&format!("[archive]\n{page}\nafter = '3s'"), "raise after to at least 1h");
    refused(&format!("[archive]\n{page}\ncache_size = '1MiB'"), "cache_size");
    let mut settings = load("[domains.a.buckets.page.retention]\ngrace = '5h'").unwrap();
    assert!(settings.enable_archive_for_sealing(None, None).unwrap_err().contains("add [archive] to it"));
}

#[test]
fn invalid_archive_is_reported_with_the_right_notation() {
    for page in ["[archive]", "[archive]\n[domains.a.buckets.page.archive]"] {
        for (policy, expected) in [
            ("'interval'", "an interval needs its time: policy = { interval = \"1d\" }"),
            ("{}", "an interval needs its time"),
            ("{ interval = '0s' }", "write a time such as 1d, or use policy = \"every\""),
            ("{ intervall = '1d' }", "did you mean 'interval'?"),
            ("'first-rendering'", "did you mean 'first-render'?"),
            ("true", "write \"every\", \"first-render\", or { interval = \"1d\" }"),
        ] {
            refused(&format!("{page}\npolicy = {policy}"), expected);
        }
    }
    refused("archive = 1", "write true, false, or a table of its own: [archive]");
    refused("archive = 'off'", "write true, false, or a table of its own: [archive]");
    refused("[archive]\nafterr = '3h'", "did you mean 'after'?");
    refused("[archive]\n[domains.a.buckets.page]\narchive = 1", "[domains.NAME.buckets.page.archive]");
    let file = "[archive]\npolicy = { interval = '2d' }";
    let settings = load(file).unwrap();
    assert_eq!(settings.archive.all.policy, archive::ArchivePolicy::Interval("2d".parse().unwrap()));
    assert_eq!(load(&toml::to_string(&settings).unwrap()).unwrap(), settings);
}

/// Sealing removes the renders that a policy leaves out.
#[test]
fn archive_that_removes_renders_before_their_grace_is_over_is_refused() {
    let retention = "[retention]\ngrace = '24h'\n";
    let page = "[domains.a.buckets.page.archive]";
    let cure = "raise after to at least 24h, lower grace, or use policy = \"every\"";
    for policy in ["'first-render'", "{ interval = '1d' }"] {
        let file = format!("{retention}[archive]\nafter = '2h'\npolicy = {policy}");
        refused(&file, "3:1: after is 2h, and the grace of retention is 24h");
        refused(&file, cure);
        let file = format!("{retention}[archive]\nafter = '2h'\n{page}\npolicy = {policy}");
        refused(&file, "5:1: after is 2h");
        refused(&file, cure);
        // The grace of the bucket overrides the grace of all buckets.
        let own = "[domains.a.buckets.page.retention]\ngrace = '48h'";
        let file = format!("[archive]\n{own}\n{page}\nafter = '24h'\npolicy = {policy}");
        refused(&file, "raise after to at least 48h");
    }
    for allowed in [
        format!("{retention}[archive]\npolicy = 'first-render'"),
        format!("{retention}[archive]\nafter = '24h'\npolicy = 'first-render'"),
        format!("{retention}[archive]\nafter = '2h'"),
        format!("{retention}[archive]\nenabled = false\nafter = '2h'\npolicy = 'first-render'"),
        "[archive]\nafter = '2h'\npolicy = 'first-render'".to_owned(),
        format!("{retention}[archive]\nafter = '2h'\n{page}\nafter = '24h'\npolicy = 'first-render'"),
    ] {
        assert!(load(&allowed).is_ok(), "{allowed}\n{:?}", load(&allowed));
    }
    // A command with `--after 0s` is refused too.
    let now = || Some("0s".parse().unwrap());
    let mut settings = load(&format!("{retention}[archive]\npolicy = 'first-render'")).unwrap();
    let error = settings.enable_archive_for_sealing(now(), None).unwrap_err();
    assert!(error.starts_with("--after 0s: after is 0s, and the grace of retention is 24h"), "{error}");
    let mut settings = load(&format!("{retention}[archive]\n{page}\npolicy = 'first-render'")).unwrap();
    assert!(settings.enable_archive_for_sealing(now(), None).is_err());
    assert!(load(&format!("{retention}[archive]")).unwrap().enable_archive_for_sealing(now(), None).is_ok());
}

#[test]
fn renderer_is_configured_for_all_buckets_or_for_one() {
    assert!(load("").unwrap().generator().unwrap().is_none());
    let file = "[generator]\nhosts = ['wiki.example.org']\ntimeout = '5s'\n[generator.properties.html]\n\
                url = 'http://wiki.example.org/{rev}'\ncontent_type = 'text/html'\n\
                [domains.a.buckets.page.generator]\n";
    let settings = load(file).unwrap();
    let generator = settings.generator().unwrap().unwrap();
    let makes = |domain: &str| {
        let page = rashomon_pages::Page {
            domain: domain.parse().unwrap(),
            bucket: BucketName::page(),
            title: rashomon_pages::Title::new("A").unwrap(),
        };
        rashomon_pages::Generator::makes(&generator, &page).len()
    };
    assert_eq!((makes("b"), makes("a")), (1, 0));
    assert_eq!(load(&toml::to_string(&settings).unwrap()).unwrap(), settings);
}

/// A configured `keep-everything` is intended. Without a configuration, only `--grace` allows deletes.
#[test]
fn flags_override_a_table_of_retention() {
    const OWN: &str = "[domains.a.buckets.page.retention]\ngrace = '5h'\n";
    const KEPT: &str = "[retention]\nstrategy = 'keep-everything'\ngrace = '4h'\n";
    // The graces of the domains a and b in hours, for a configuration and flags: deletes, domain, grace,
    // min_keep.
    let graces = |file: &str, deletes, domain: Option<&str>, grace: Option<u64>, min_keep: Option<u32>| {
        let mut settings = load(file).unwrap();
        let domain: Option<DomainName> = domain.map(|domain| domain.parse().unwrap());
        let grace = grace.map(|hours| Span(Duration::from_secs(hours * 3600)));
        let min_keep = min_keep.and_then(std::num::NonZeroU32::new);
        settings
            .apply_retention_flags(RetentionFlags { domain: domain.as_ref(), grace, min_keep, deletes })
            .ok()?;
        let retention = settings.buckets().retention;
        Some(["a", "b"].map(|domain| {
            let policy = retention.of_bucket(&domain.parse().unwrap(), &BucketName::page());
            policy.map(|policy| policy.grace.as_secs() / 3600)
        }))
    };
    for deletes in [true, false] {
        let is_dry_run = !deletes;
        let if_dry_run = |graces| is_dry_run.then_some(graces);
        assert_eq!(graces("", deletes, None, None, None), if_dry_run([Some(24), Some(24)]));
        assert_eq!(graces("", deletes, None, None, Some(2)), if_dry_run([Some(24), Some(24)]));
        assert_eq!(graces("", deletes, None, Some(2), None), Some([Some(2), Some(2)]));
        assert_eq!(graces("", deletes, Some("b"), Some(2), None), Some([None, Some(2)]));
        assert_eq!(graces(KEPT, deletes, None, None, None), Some([None, None]));
        assert_eq!(graces(KEPT, deletes, None, Some(2), None), if_dry_run([Some(2), Some(2)]));
        assert_eq!(graces(KEPT, deletes, None, None, Some(2)), if_dry_run([Some(4), Some(4)]));
        assert_eq!(graces(KEPT, deletes, Some("a"), Some(2), None), if_dry_run([Some(2), None]));
        assert_eq!(graces(OWN, deletes, None, None, None), Some([Some(5), None]));
        assert_eq!(graces(OWN, deletes, None, Some(2), None), Some([Some(2), Some(2)]));
        assert_eq!(graces(OWN, deletes, Some("a"), Some(2), None), Some([Some(2), None]));
        assert_eq!(graces("[retention]", deletes, Some("a"), Some(2), None), Some([Some(2), Some(24)]));
        let both = format!("{KEPT}{OWN}");
        assert_eq!(graces(&both, deletes, None, None, None), Some([Some(5), None]));
        assert_eq!(graces(&both, deletes, Some("a"), Some(2), None), Some([Some(2), None]));
    }
}

#[test]
fn current_version_of_a_rewrite_is_given_or_configured() {
    let file = "[transformers]\nhosts = ['a.example:8000']\n\
        [[transformers.steps]]\nfrom = 'x/1.0'\nto = 'x/2.0'\nurl = 'http://a.example:8000/one'\n\
        [[transformers.steps]]\nfrom = 'x/0.1'\nto = 'x/2.0'\nurl = 'http://a.example:8000/one'\n\
        [[transformers.steps]]\nfrom = 'x/1.0'\nto = 'x/2.0'\nurl = 'http://a.example:8000/two'\n\
        [[transformers.steps]]\nfrom = 'x/2.0'\nto = 'x/3.0'\nurl = 'http://a.example:8000/two'\n";
    let profile = |text: &str| rashomon_upstream::transformer::Profile::parse(text).unwrap();
    let settings = load(file).unwrap();
    let current = |url: Option<&str>, version: Option<&str>| {
        let made =
            crate::configuration::transformers_for_rewrite(&settings, url, version.map(profile).as_ref());
        made.map(|(transformers, current)| {
            (transformers.can_make(&profile("x/0.5"), &current), current.to_string())
        })
    };
    let made = |can_make: bool, version: &str| Ok((can_make, version.to_owned()));
    assert_eq!(current(Some("http://a.example:8000/one"), None), made(true, "x/2.0"));
    assert_eq!(current(Some("http://A.example:8000/one"), None), made(true, "x/2.0"));
    assert_eq!(current(Some("http://a.example:8000/one"), Some("x/7.0")), made(true, "x/7.0"));
    assert_eq!(current(Some("http://other.example/"), Some("x/7.0")), made(true, "x/7.0"));
    assert_eq!(current(None, Some("x/3.0")), made(true, "x/3.0"));
    assert_eq!(current(None, Some("x/7.0")), made(false, "x/7.0"));
    for (url, cure) in [
        (Some("http://a.example:8000/two"), "make several versions: name one with --to-version"),
        (Some("http://other.example/"), "no step of [transformers] has the URL http://other.example/"),
        (None, "name the current version with --to-version"),
    ] {
        let error = current(url, None).unwrap_err();
        assert!(error.contains(cure), "{error}");
    }
    let error =
        crate::configuration::transformers_for_rewrite(&load("").unwrap(), None, Some(&profile("x/3.0")))
            .unwrap_err();
    assert!(error.contains("name a transformer with --with URL"), "{error}");
}

#[test]
fn transformers_are_configured_by_their_steps() {
    assert!(load("").unwrap().transformers().unwrap().is_none());
    let file = "[transformers]\nhosts = ['a.example:8000']\ntimeout = '5s'\n[[transformers.steps]]\n\
                from = 'https://x.example/2.0.0'\nto = 'https://x.example/1.0.0'\nurl = 'http://a.example:8000/'\n";
    let settings = load(file).unwrap();
    assert!(settings.transformers().unwrap().is_some());
    assert_eq!(load(&toml::to_string(&settings).unwrap()).unwrap(), settings);
}

#[test]
fn unusable_components_are_refused() {
    for (file, expected) in [
        (
            "[[transformers.steps]]\nfrom = 'a/2.0'\nto = 'a/1.0'\nurl = 'http://b/'",
            "[transformers]: the URL 'http://b/'",
        ),
        (
            "[[transformers.steps]]\nfrom = 'a'\nto = 'a/1.0'\nurl = 'http://b/'",
            "[transformers]: 'a' is not a profile",
        ),
        ("[transformers]\ntimeout = '0s'", "[transformers]: a timeout of zero"),
        ("[generator.properties.html]\nurl = 'ftp://x/{rev}'", "[generator]"),
        ("[generator]\nhosts = ['a']\n[generator.properties.html]\nurl = 'http://b/{rev}'", "[generator]"),
        ("[domains.a.buckets.page.generator]\nmax_requests = 3", "move them to [generator]"),
        ("[generator]\ntoken_file = 'no-such-file'", "token_file: cannot read no-such-file"),
        (
            "[domains.a.buckets.page.generator]\ntoken_file = 'no-such-file'",
            "token_file: cannot read no-such-file",
        ),
        ("tls_key = 'key.pem'", "set tls_certificate"),
        ("tls_certificate = ['a']", "text in quotes"),
        ("[retention]\ntimeline = 'disk'", "table, memory, or a URL of Redis"),
        ("[retention]\ntimeline = 'redis://'", "timeline"),
        ("[retention]\ntimeline = 'redis://127.0.0.1:6379/-1'", "the number of a database is 0 or higher"),
    ] {
        refused(file, expected);
    }
    let kept = load("[retention]\ntimeline = 'redis://127.0.0.1:1/0'").unwrap();
    assert_eq!(kept.retention.timeline.to_string(), "redis://127.0.0.1:1/0");
}

#[test]
fn errors_repeat_an_excerpt_of_the_file_at_most() {
    let long = "x".repeat(100_000);
    for file in [
        format!("{long} = 1"),
        format!("[{long}]"),
        format!("listen = '{long}'"),
        format!("cache_size = '{long}'"),
        format!("skew = '{long}'"),
        format!("log_level = '{long}'"),
        format!("log_format = '{long}'"),
        format!("hosts = ['{long}']"),
        format!("ignored_headers = ['{long}']"),
        format!("ignored_headers = ['{}']", "x ".repeat(50)),
        format!("read_only = '{long}'"),
        format!("store = '{long}'"),
        format!("store = '{long}:x'"),
        format!("store = 'cassandra://{long}/a'"),
        format!("store = 'cassandra://a/{long}'"),
        format!("store = 'cassandra://a/a?{long}=1'"),
        format!("store = 'cassandra://a/a?replication={long}'"),
        format!("[access]\norigins = ['{long}']"),
        format!("[domains.a]\nhosts = ['a/{long}']"),
        format!("[domains.'{long}']"),
        format!("[properties.html]\ncontent_type = '{long}'"),
        format!("[retention]\ntimeline = '{long}'"),
        format!("[generator.properties.html]\nurl = '{long}'"),
        format!("[generator.properties.html]\nurl = 'http://{long}/'"),
        format!("[generator.properties.html]\nurl = 'http://a/{{{long}}}'"),
        format!("[generator]\nhosts = ['a/{long}']\n[generator.properties.html]\nurl = 'http://a/'"),
        format!("skew = {}", "[".repeat(60) + &long),
    ] {
        let error = load(&file).expect_err(&file[..40.min(file.len())]);
        assert!(error.len() < 2500, "{} bytes: {error:.2500}", error.len());
    }
    // The caret is below the position, even if only a part of the line is shown.
    let error = load(&format!("hosts = [{}'a/b']", "'a',".repeat(1000))).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    let at = lines[3].find('^').unwrap();
    assert_eq!(&lines[2][at..at + 3], "'a/", "{error}");
}

#[test]
fn hosts_are_checked_on_loopback_unless_any_host_is_allowed() {
    let api = |file: &str| load(file).unwrap().api();
    assert!(api("").check_host);
    let named = api("hosts = ['wiki.internal:8080']");
    assert!(named.check_host);
    assert!(named.other_hosts.contains("wiki.internal:8080"));
    assert!(!api("hosts = ['*']").check_host);
    assert!(!api("listen = '192.0.2.1:1'\naccess = 'open'").check_host);
    let raw = RawSettings { access: Some(Access::Open), ..RawSettings::default() };
    let both = load_above("listen = '192.0.2.1:1'\n[access]\norigins = ['https://X.org:443']", raw).unwrap();
    assert!(both.api().origins.contains("https://x.org"));
}

#[test]
fn caches_are_configured_for_purges() {
    assert_eq!(load("").unwrap().api().surrogate_key_header, None);
    assert!(!load("").unwrap().buckets().queues_purges);
    let file = "surrogate_key_header = 'Surrogate-Key'\n[caches.front]\nurl = 'http://127.0.0.1:6081'\n\
                [caches.back]\nurl = 'http://[::1]:80'\nmethod = 'keys'\nhosts = ['api.example.org']\n\
                timeout = '1s'\nmax_requests = 2\n";
    let settings = load(file).unwrap();
    assert_eq!(load(&toml::to_string(&settings).unwrap()).unwrap(), settings);
    assert_eq!(settings.api().surrogate_key_header.as_deref(), Some("surrogate-key"));
    assert!(settings.buckets().queues_purges);
    let caches = caches::open(&settings).unwrap();
    let caches: Vec<_> =
        caches.iter().map(|(cache, _)| (cache.name.as_str(), cache.hosts.join(" "))).collect();
    assert_eq!(caches, [("back", "api.example.org".to_owned()), ("front", "127.0.0.1:6081".to_owned())]);
}

#[test]
fn impossible_caches_are_refused() {
    for (file, expected) in [
        ("[caches.a]\nmethod = 'keys'", "url"),
        ("[caches.a]\nurl = 'varnish:6081'", "is not the address of a server"),
        ("[caches.a]\nurl = 'http://h:1/x'", "has a path"),
        ("[caches.a]\nurl = 'http://h:1'\ntimeout = '0s'", "must be longer than 0s"),
        ("[caches.a]\nurl = 'http://h:1'\nmax_requests = 0", "above 0"),
        ("[caches.a]\nurl = 'http://h:1'\nmethod = 'ban'", "ban"),
        ("[caches.a]\nurl = 'http://h:1'\nhosts = ['https://x']", "is not a host"),
        ("[caches.'a b']\nurl = 'http://h:1'", "cannot be the name of a cache"),
        ("[caches.a]\nurl = 'https://h:1'\nauthorities = '/no/such.pem'", "/no/such.pem"),
        ("surrogate_key_header = 'Set-Cookie'", "cannot carry surrogate keys"),
    ] {
        refused(file, expected);
    }
}
