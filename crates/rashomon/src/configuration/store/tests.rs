use std::{fs, path::Path};

use rashomon_tables_cassandra::Options;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::configuration::{RawSettings, Settings};

/// Returns the store that a file configures, or the error.
fn load(file: &str) -> Result<StoreSettings, String> {
    load_with_flag(None, file)
}

/// Returns the store that a file and a flag configure, or the error.
fn load_with_flag(flag: Option<&str>, file: &str) -> Result<StoreSettings, String> {
    let directory = tempdir().unwrap();
    let path = directory.path().join("c.toml");
    fs::write(&path, file).unwrap();
    let store = flag.map(|url| url.parse().unwrap());
    let raw = RawSettings { store, ..RawSettings::default() };
    let prefix = format!("{}/", directory.path().display());
    Settings::load(raw, Some(&path))
        .map(|settings| settings.store)
        .map_err(|error| error.to_string().replace(&prefix, ""))
}

fn options(store: StoreSettings) -> Options {
    let StoreSettings::Cassandra(cluster) = store else { panic!("{store:?}") };
    cluster.options()
}

fn refused(file: &str, expected: &str) {
    let error = load(file).expect_err(file);
    assert!(error.contains(expected), "{file}\n{error}");
}

#[test]
fn urls_are_printed_as_they_are_read() {
    for url in [
        "sqlite:/var/lib/rashomon",
        "memory:",
        "cassandra://127.0.0.1/rashomon",
        "cassandra://db1.example.org:9043,db2,[::1],[fe80::1]:9043/wiki_2?replication=2",
        "cassandra://db1/wiki?replication=east:3,west:2",
    ] {
        assert_eq!(url.parse::<StoreUrl>().map(|url| url.to_string()), Ok(url.to_owned()));
    }
    // The default port is not printed.
    let url: StoreUrl = "cassandra://db1:9042/wiki".parse().unwrap();
    assert_eq!(url.to_string(), "cassandra://db1/wiki");
}

#[test]
fn invalid_url_is_refused_with_the_reason() {
    for (url, because) in [
        ("redis:x", "a store is one of sqlite:DIRECTORY, memory: and cassandra://HOST"),
        ("./data", "sqlite:./data"),
        ("sqlite:", "needs a directory"),
        ("memory:x", "nothing after"),
        ("cassandra:db1/wiki", "as in cassandra://127.0.0.1/rashomon"),
        ("cassandra://db1", "as in cassandra://127.0.0.1/rashomon"),
        ("cassandra:///wiki", "'' is not a node"),
        ("cassandra://db1,/wiki", "'' is not a node"),
        ("cassandra://db1:cql/wiki", "'db1:cql' is not a node; write HOST or HOST:PORT"),
        ("cassandra://::1/wiki", "an IPv6 address as in [::1]:9042"),
        ("cassandra://db1/", "'' is not a keyspace"),
        ("cassandra://db1/Wiki", "'Wiki' is not a keyspace"),
        ("cassandra://me:secret@db1/wiki", "a URL must not contain a password"),
        ("cassandra://db1/wiki?replicas=3", "?replicas is not supported, only ?replication=N"),
        ("cassandra://db1/wiki?replication", "'' is not a replication"),
        ("cassandra://db1/wiki?replication=0", "1 to 100 copies"),
        ("cassandra://db1/wiki?replication=east:0", "1 to 100 copies"),
        ("cassandra://db1/wiki?replication=east:3,east:2", "names a data centre twice"),
        ("cassandra://db1/wiki?replication=east'", "as in east:3,west:2"),
    ] {
        let error = url.parse::<StoreUrl>().expect_err(url);
        assert!(error.contains(because), "{url}: {error}");
    }
    // The error does not repeat the password.
    let error = "cassandra://me:secret@db1/wiki".parse::<StoreUrl>().unwrap_err();
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn url_sets_nodes_keyspace_and_replication_and_no_other_option() {
    let url = "cassandra://db1,[::1]:9043/wiki?replication=east:3,west:2";
    let expected = Options {
        contact_points: vec!["db1:9042".to_owned(), "[::1]:9043".to_owned()],
        keyspace: "wiki".to_owned(),
        replication: (&"east:3,west:2".parse::<Replication>().unwrap()).into(),
        ..Options::default()
    };
    assert_eq!(options(load_with_flag(Some(url), "").unwrap()), expected);
    assert_eq!(options(load(&format!("store = '{url}'")).unwrap()), expected);
    let defaults = options(load("[store]\ncontact_points = ['127.0.0.1']").unwrap());
    let expected = Options { contact_points: vec!["127.0.0.1:9042".to_owned()], ..Options::default() };
    assert_eq!(defaults, expected);
}

/// A table in which every key has a value other than its default.
const ALL_KEYS: &str = "[store]\ncontact_points = [\"db1\", \"db2:9043\"]\nkeyspace = \"wiki\"\n\
    consistency = \"quorum\"\nserial_consistency = \"local_serial\"\nlocal_datacenter = \"east\"\n\
    tls_ca_file = \"ca.pem\"\nuser = \"me\"\npassword_file = \"password\"\ncompression = \"lz4\"\n\
    attempt_timeout = \"1s\"\nrequest_timeout = \"3s\"\nconnect_timeout = \"5s\"\n\
    [store.replication]\neast = 3\nwest = 2\n";

#[test]
fn every_key_of_the_table_is_read_and_printed() {
    let store = load(ALL_KEYS).unwrap();
    let read = options(store.clone());
    let defaults = Options::default();
    assert_eq!(read.contact_points, ["db1:9042", "db2:9043"]);
    assert!(read.keyspace == "wiki" && read.keyspace != defaults.keyspace);
    assert_eq!(read.replication, (&"east:3,west:2".parse::<Replication>().unwrap()).into());
    assert_eq!(read.consistency, rashomon_tables_cassandra::Consistency::Quorum);
    assert_eq!(read.serial_consistency, rashomon_tables_cassandra::SerialConsistency::LocalSerial);
    assert_eq!(read.local_datacenter.as_deref(), Some("east"));
    assert_eq!(read.tls.as_deref(), Some(Path::new("ca.pem")));
    assert_eq!(read.compression, Some(rashomon_tables_cassandra::Compression::Lz4));
    let timeouts = [read.attempt_timeout, read.request_timeout, read.connect_timeout];
    assert_eq!(timeouts.map(|timeout| timeout.as_secs()), [1, 3, 5]);

    let printed = toml::to_string(
        &Settings::load(RawSettings::default(), None)
            .map(|settings| Settings { store: store.clone(), ..settings })
            .unwrap(),
    )
    .unwrap();
    assert_eq!(load(&printed).unwrap(), store, "{printed}");
}

#[test]
fn flag_replaces_the_url_and_keeps_other_settings_of_the_file() {
    let file = "[store]\nurl = 'cassandra://db1/wiki?replication=2'\nrequest_timeout = '3s'\n";
    let options_with = |flag| options(load_with_flag(flag, file).unwrap());
    assert_eq!(
        (options_with(None).keyspace.as_str(), options_with(None).request_timeout.as_secs()),
        ("wiki", 3)
    );
    let changed = options_with(Some("cassandra://db2/other?replication=1"));
    assert_eq!((changed.contact_points, changed.keyspace.as_str()), (vec!["db2:9042".to_owned()], "other"));
    assert_eq!(changed.request_timeout.as_secs(), 3);
    assert_eq!(changed.replication, rashomon_tables_cassandra::Replication::Simple(1));
    let changed = load_with_flag(Some("cassandra://db2/other"), "[store]\nreplication = 5").unwrap();
    assert_eq!(options(changed).replication, rashomon_tables_cassandra::Replication::Simple(5));
    assert_eq!(load_with_flag(Some("sqlite:d"), file).unwrap(), StoreSettings::Sqlite("d".into()));
}

#[test]
fn errors_of_the_table_are_reported_with_their_line() {
    let error = load("[store]\nurl = 'cassandra://db1/wiki'\nkeyspce = 'x'\n").unwrap_err();
    assert!(
        error.starts_with("c.toml:3:1: there is no setting 'keyspce'; did you mean 'keyspace'?"),
        "{error}"
    );
    refused("[store]\ncontact_points = ['db1', 'db 2']", "2:26: 'db 2' is not a node");
    refused(
        "[store]\nconsistency = 'one'",
        "2:15: 'one' is not a value of this setting; expected one of local_quorum",
    );
    refused("[store]\nreplication = 0", "2:15: there must be 1 to 100 copies");
    refused("[store]\nreplication = { east = 'x' }", "2:");
    refused("[store]\nrequest_timeout = 2", "2:19: integer '2' is not allowed here: write a length of time");
    refused("[store]\nkeyspace = 'wiki'", "1:1: a cluster needs contact_points");
    refused("[store]\ncontact_points = []", "1:1: a cluster needs contact_points");
    refused("store = 5", "1:9: integer '5' is not allowed here: write a store such as");
    let cluster = |rest: &str| format!("[store]\nurl = 'cassandra://db1/wiki'\n{rest}");
    refused(&cluster("user = 'me'"), "1:1: user and password_file belong together");
    refused(&cluster("connect_timeout = '0s'"), "1:1: connect_timeout is 0s");
    refused(&cluster("keyspace = 'x'"), "1:1: url already contains the keyspace");
    refused("[store]\nurl = 'memory:'\nuser = 'me'", "1:1: url is memory:, but the other keys");
    assert_eq!(load("[store]\nurl = 'memory:'"), Ok(StoreSettings::Memory));
}

/// Loads a password file with these bytes and this mode.
fn password(bytes: &[u8], mode: u32) -> (TempDir, Result<(Options, Option<String>), String>) {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempdir().unwrap();
    let path = directory.path().join("password");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let file =
        format!("[store]\ncontact_points = ['db1']\nuser = 'me'\npassword_file = '{}'", path.display());
    let StoreSettings::Cassandra(cluster) = load(&file).unwrap() else { panic!("no cluster") };
    let mut warning = None;
    let read = cluster.read_options(|text| warning = Some(text));
    (directory, read.map(|options| (options, warning)).map_err(|error| error.to_string()))
}

#[test]
fn password_is_the_content_of_its_file_without_the_line_end() {
    for (bytes, expected) in
        [("secret", "secret"), ("secret\n", "secret"), ("secret\r\n", "secret"), (" a b \n\n", " a b \n")]
    {
        let (_directory, read) = password(bytes.as_bytes(), 0o600);
        let (options, warning) = read.unwrap();
        let credentials = options.credentials.unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("me", expected));
        assert_eq!(warning, None);
    }
    for (bytes, because) in
        [(&b"\n"[..], "is empty"), (b"\xff", "not UTF-8"), (&[b'x'; 5000], "has more than 4096 bytes")]
    {
        let (_directory, read) = password(bytes, 0o600);
        let error = read.unwrap_err();
        assert!(error.starts_with("password_file ") && error.contains(because), "{error}");
    }
}

#[test]
fn password_file_that_everybody_can_read_is_warned_of() {
    let (_directory, read) = password(b"secret", 0o644);
    let warning = read.unwrap().1.expect("a warning");
    assert!(warning.contains("everybody on this machine can read the password in"), "{warning}");
    let (_directory, read) = password(b"secret", 0o640);
    assert_eq!(read.unwrap().1, None);
}

#[test]
fn missing_file_is_named_with_its_setting() {
    for setting in ["tls_ca_file", "password_file"] {
        let user = if setting == "password_file" { "user = 'me'\n" } else { "" };
        let file = format!("[store]\ncontact_points = ['db1']\n{user}{setting} = '/no/such'");
        let StoreSettings::Cassandra(cluster) = load(&file).unwrap() else { panic!("no cluster") };
        let error = cluster.read_options(|_| {}).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {setting} /no/such: No such file")), "{error}");
    }
}
