//! A service with few rights: an administrator creates the tables, connections are encrypted, and a refused
//! login is reported.

use std::{collections::HashMap, fs, path::Path, time::Duration};

use rashomon_clock::{Clock as _, SystemClock};
use scylla::client::session::Session;
use tempfile::tempdir;

use crate::{
    cluster::run_statements,
    http::{get, post},
    process::{RunningProcess, finish, rashomon, run},
    test_stores::{IMPATIENT, TestStores, ask, authorities},
    wiki::dump,
};

/// The time within which a refusal must be reported, on a busy machine.
const MAX_ERROR_DELAY: Duration = Duration::from_secs(30);

/// The configuration of the user with few rights.
const LITTLE: &str = "little.toml";

async fn execute(session: &Session, text: &str) {
    session.query_unpaged(text, ()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// The connections of a user, as the node sees them: whether each is encrypted, and its compression.
async fn connections(session: &Session, user: &str) -> Vec<(bool, String)> {
    let text = "SELECT username, ssl_enabled, client_options FROM system_views.clients";
    let rows = session.query_unpaged(text, ()).await.unwrap().into_rows_result().unwrap();
    let clients = rows.rows::<(Option<String>, bool, HashMap<String, String>)>().unwrap();
    clients
        .map(Result::unwrap)
        .filter(|(name, ..)| name.as_deref() == Some(user))
        .map(|(_, encrypted, mut options)| (encrypted, options.remove("COMPRESSION").unwrap_or_default()))
        .collect()
}

/// Writes the configuration of a separate user, with every option of a connection.
fn write_user_configuration(directory: &Path, user: &str, authorities: &Path) {
    let text = format!(
        "[store]\nuser = '{user}'\npassword_file = 'little'\ntls_ca_file = '{}'\ncompression = 'lz4'\n\
         attempt_timeout = '10s'\nrequest_timeout = '20s'\nconnect_timeout = '20s'\n",
        authorities.display()
    );
    fs::write(directory.join(LITTLE), text).unwrap();
    fs::write(directory.join("little"), "secret of little\n").unwrap();
}

#[test]
fn user_without_create_rights_is_served_over_tls_with_compression() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    let (Some(stores), Some(authorities)) = (TestStores::new(path), authorities()) else { return };
    let user = stores.role("little");
    write_user_configuration(path, &user, &authorities);
    fs::write(path.join("dump.xml"), dump("A", &[("1", "one"), ("2", "two")])).unwrap();
    let store = stores.arguments("data");
    let url = store[1].as_str();
    let little = |words: &[&str]| run(path, &[words, &["--store", url, "--config", LITTLE]].concat());
    ask(stores.node(), async |session| {
        let role = format!("CREATE ROLE {user} WITH PASSWORD = 'secret of little' AND LOGIN = true");
        execute(&session, &role).await;
    });
    let import = ["import", "--domain", "wiki", "dump.xml"];
    let needs = "run the statements that `rashomon cassandra schema` prints";
    little(&import).ends_with(1).stderr_contains(&["must be created or changed", needs]);

    let schema = little(&["cassandra", "schema"]).ends_with(0).stdout;
    ask(stores.node(), async |session| {
        run_statements(&session, &schema).await;
        for right in ["SELECT", "MODIFY"] {
            execute(&session, &format!("GRANT {right} ON KEYSPACE {} TO {user}", stores.keyspace("data")))
                .await;
        }
    });
    little(&import).ends_with(0).stdout_contains(&["2 stored"]);
    little(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 2 revisions"]);
    little(&["stats"]).ends_with(0).stdout_contains(&["wiki: 1 page, 2 revisions"]);
    let mut command = rashomon(path);
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", url, "--config", LITTLE]);
    let mut server = RunningProcess::start(&mut command);
    let address = server.line().split(['/', ',']).nth(2).unwrap().to_owned();
    let written = post(&address, "/v1/wiki/page/A?rev/", "_rev=3&wikitext=three");
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    assert!(get(&address, "/v1/wiki/page/A?rev/latest/wikitext").ends_with("three"));
    let seen = ask(stores.node(), async |session| connections(&session, &user).await);
    assert!(!seen.is_empty() && seen.iter().all(|one| *one == (true, "lz4".to_owned())), "{seen:?}");
    server.stop().ends_with(0);
}

#[test]
fn refused_login_ends_server_and_commands_at_once() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    // A node with a certificate also requires a password.
    let (Some(stores), Some(_)) = (TestStores::new(path), authorities()) else { return };
    let store = stores.arguments("data");
    let known = fs::read_to_string(path.join(IMPATIENT)).unwrap();
    fs::write(path.join("wrong.toml"), known.replace("'password'", "'wrong'")).unwrap();
    fs::write(path.join("wrong"), "not the password\n").unwrap();
    fs::write(path.join("nobody.toml"), "").unwrap();
    let refused = ["refuses the user cassandra", "check user and password_file"];
    let asked = ["asks for a user and a password", "check user and password_file"];
    let clock = SystemClock::new();
    for (configuration, words) in [("wrong.toml", refused), ("nobody.toml", asked)] {
        for command_words in [&["serve", "--listen", "127.0.0.1:0"][..], &["stats"]] {
            let mut command = rashomon(path);
            command.args(command_words).args(["--store", &store[1], "--config", configuration]);
            let started = clock.monotonic();
            let mut running = RunningProcess::start(&mut command);
            // A server that waits for a cluster would have printed its address.
            assert_eq!(running.line(), "");
            let ran = running.wait().ends_with(1);
            let took = clock.monotonic() - started;
            assert!(took < MAX_ERROR_DELAY, "{took:?}: {ran:#?}");
            ran.stderr_contains(&words).stderr_contains(&["error: the cluster at "]);
        }
    }
}

#[test]
fn read_only_commands_create_no_tables() {
    let directory = tempdir().unwrap();
    let Some(stores) = TestStores::new(directory.path()) else { return };
    let keyspace = stores.keyspace("data");
    let store = stores.arguments("data");
    ask(stores.node(), async |session| {
        let replicas = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        execute(&session, &format!("CREATE KEYSPACE {keyspace} WITH replication = {replicas}")).await;
    });
    let looks = |words: &[&str]| finish(rashomon(directory.path()).args(words).args(&store));
    let missing = format!("does not exist in keyspace {keyspace}");
    for words in [&["stats"][..], &["verify"], &["export", "--domain", "wiki"]] {
        let ran = looks(words).ends_with(1);
        ran.stderr_contains(&["error: table ", &missing, "`rashomon serve`", "`rashomon cassandra schema`"]);
    }
    let from = ["migrate", "--from", &store[1], "--to", "sqlite:copy", "--config", &store[3]];
    run(directory.path(), &from).ends_with(1).stderr_contains(&[&missing]);
    assert!(!directory.path().join("copy").exists());
    let tables = ask(stores.node(), async |session| {
        let text = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let rows = session.query_unpaged(text, (keyspace.as_str(),)).await.unwrap();
        rows.into_rows_result().unwrap().rows_num()
    });
    assert_eq!(tables, 0);
}
