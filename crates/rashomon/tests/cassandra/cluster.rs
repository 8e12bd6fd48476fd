//! A server with a cluster that stops and restarts, that other servers use too, or whose tables an
//! administrator created.

use std::{thread::sleep, time::Duration};

use rashomon_clock::{Clock as _, SystemClock};
use scylla::{client::session::Session, statement::Statement};
use tempfile::tempdir;

use crate::{
    home::Home,
    http::{get, post},
    process::{RunningProcess, finish, rashomon, run},
    proxy::Proxy,
    test_stores::{IMPATIENT, TestStores, ask},
};

const READ: &str = "/v1/wiki/page/Night?rev/latest/html";
const WRITE: &str = "/v1/wiki/page/Night?rev/";

/// The time within which a server must find a running cluster and create its tables, on a busy machine.
const FIND_LIMIT: Duration = Duration::from_secs(120);

/// Repeats a request until the answer has this status.
#[track_caller]
pub(crate) fn until(status: u16, answer: impl Fn() -> String) -> String {
    let clock = SystemClock::new();
    let started = clock.monotonic();
    loop {
        let answer = answer();
        if answer.starts_with(&format!("HTTP/1.1 {status}")) {
            return answer;
        }
        assert!(clock.monotonic() - started < FIND_LIMIT, "no {status}: {answer}");
        sleep(Duration::from_millis(200));
    }
}

/// Starts a server that reaches the node through a proxy that can be cut. Returns the server and its address.
fn serve_over(proxy: &Proxy, stores: &TestStores, directory: &std::path::Path) -> (RunningProcess, String) {
    let mut command = rashomon(directory);
    let url = format!("cassandra://{}/{}?replication=1", proxy.address(), stores.keyspace("data"));
    let mut server = RunningProcess::start(command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        &url,
        "--config",
        IMPATIENT,
    ]));
    let address = server.line().split(['/', ',']).nth(2).unwrap().to_owned();
    (server, address)
}

#[test]
fn server_recovers_when_its_cluster_starts_and_restarts() {
    let directory = tempdir().unwrap();
    let Some(stores) = TestStores::new(directory.path()) else { return };
    let proxy = Proxy::closed(stores.node());
    let (server, address) = serve_over(&proxy, &stores, directory.path());
    until(503, || get(&address, "/readyz"));
    proxy.open();
    until(200, || get(&address, "/readyz"));
    until(201, || post(&address, WRITE, "_rev=1&html=lit"));

    proxy.cut();
    until(503, || get(&address, "/readyz"));
    let refused = [get(&address, READ), post(&address, WRITE, "_rev=2&html=out")];
    for answer in refused.map(|answer| answer.to_lowercase()) {
        assert!(answer.starts_with("http/1.1 503"), "{answer}");
        assert!(answer.contains("retry-after: ") && answer.contains("application/problem+json"), "{answer}");
    }
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));

    proxy.open();
    until(200, || get(&address, "/readyz"));
    assert!(until(200, || get(&address, READ)).ends_with("lit"));
    until(201, || post(&address, WRITE, "_rev=2&html=out"));
    assert!(get(&address, READ).ends_with("out"));
    server.stop().ends_with(0).stderr_contains(&["no cluster at ", "the store answers"]);
}

#[test]
fn two_servers_of_one_keyspace_agree() {
    let Some(home) = Home::new() else { return };
    let (first, one) = home.serve(&[]);
    let (second, other) = home.serve(&[]);
    assert_ne!(first.id(), second.id());
    for rev in 1..=5 {
        let written = post(&one, WRITE, &format!("_rev={rev}&html=after+{rev}"));
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
        for address in [&one, &other] {
            let read = get(address, READ);
            assert!(read.ends_with(&format!("after {rev}")), "{read}");
        }
    }
    first.stop().ends_with(0);
    second.stop().ends_with(0);
}

/// Runs the output of `rashomon cassandra schema`, split as cqlsh splits it.
pub(crate) async fn run_statements(session: &Session, schema: &str) {
    // Without comments.
    let statements: String =
        schema.lines().filter(|line| !line.starts_with("--")).map(|line| format!("{line}\n")).collect();
    for text in statements.split(";\n").filter(|text| !text.trim().is_empty()) {
        let mut statement = Statement::new(text);
        statement.set_request_timeout(Some(Duration::from_secs(60)));
        session.query_unpaged(statement, ()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

/// The id of each table in the keyspace, which contains the time of its creation.
async fn tables(session: &Session, keyspace: &str) -> Vec<(String, uuid::Uuid)> {
    let text = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?";
    let rows = session.query_unpaged(text, (keyspace,)).await.unwrap().into_rows_result().unwrap();
    rows.rows().unwrap().map(Result::unwrap).collect()
}

#[test]
fn printed_schema_makes_the_tables_that_a_server_needs() {
    let directory = tempdir().unwrap();
    let Some(stores) = TestStores::new(directory.path()) else { return };
    let store = stores.arguments("data");
    let keyspace = stores.keyspace("data");
    let words: Vec<&str> =
        ["cassandra", "schema"].into_iter().chain(store.iter().map(String::as_str)).collect();
    let schema = run(directory.path(), &words).ends_with(0).stdout;
    let made = ask(stores.node(), async |session| {
        let mut made = Vec::new();
        for _ in 0..2 {
            run_statements(&session, &schema).await;
            made.push(tables(&session, &keyspace).await);
        }
        assert!(made[0] == made[1] && made[0].len() >= 13, "{made:?}");
        made.swap_remove(0)
    });
    // The program finds every table that it needs, and creates none.
    finish(rashomon(directory.path()).args(["stats"]).args(&store))
        .ends_with(0)
        .stdout_contains(&["cluster: Cassandra 5."]);
    let after = ask(stores.node(), async |session| tables(&session, &keyspace).await);
    assert_eq!(after, made);
}
