//! `rashomon token`, on the store and through a server. A server without `[access]` lets everybody do everything, but
//! refuses a token that is not valid.

use serde_json::Value;

use crate::{
    home::Home,
    http::request,
    process::{ProcessOutput, finish, rashomon, wait_until},
};

const READ: &str = "/v1/wiki/page/Night?rev/";

/// The status with which a server answers a request with a token.
fn status(address: &str, token: &str) -> u16 {
    let answer = request(address, "GET", READ, &format!("Authorization: Bearer {token}\r\n"));
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Runs `rashomon token` through a server.
fn run_through_server(home: &Home, address: &str, admin: &str, words: &[&str]) -> ProcessOutput {
    let to = format!("http://{address}");
    let mut command = rashomon(home.path());
    command.arg("token").args(words).args(["--to", &to]).env("RASHOMON_TOKEN", admin);
    finish(&mut command)
}

fn listed(ran: &ProcessOutput) -> Vec<Value> {
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    document["tokens"].as_array().unwrap().clone()
}

#[test]
fn tokens_are_made_listed_and_revoked_on_the_store_and_through_a_server() {
    let Some(home) = Home::new() else { return };
    // The first token of a new store.
    let made = home.run(&["token", "new", "--rights", "read,admin", "--domain", "*", "--note", "operator"]);
    let made = made.ends_with(0);
    assert_eq!(made.stderr, "");
    let admin = made.stdout.strip_suffix('\n').unwrap();
    assert!(admin.starts_with("rashomon_") && !admin.contains('\n'), "{admin}");

    let (server, address) = home.serve(&[]);
    assert_eq!(status(&address, admin), 404);
    let wrong = format!("{}{}", &admin[..admin.len() - 1], if admin.ends_with('0') { 1 } else { 0 });
    assert_eq!(status(&address, &wrong), 401);
    let words = ["new", "--rights", "read", "--domain", "wiki", "--bucket", "page", "--expires", "1h"];
    let reader = run_through_server(&home, &address, admin, &words).ends_with(0).stdout.trim().to_owned();
    assert_eq!(status(&address, &reader), 404);

    // The last use is stored within seconds.
    let last_used = || {
        let list = run_through_server(&home, &address, admin, &["list", "--json"]).ends_with(0);
        listed(&list).iter().all(|token| token["last_used"].is_string())
    };
    wait_until("the last uses are stored", last_used);
    let list = listed(&run_through_server(&home, &address, admin, &["list", "--json"]));
    assert_eq!(list.len(), 2);
    assert_eq!((&list[0]["note"], list[0].get("expires")), (&"operator".into(), None));
    assert_eq!(list[1]["rights"], serde_json::json!(["read"]));
    assert_eq!(list[1]["buckets"], serde_json::json!(["page"]));
    assert!(list[1]["expires"].is_string());

    run_through_server(&home, &address, &wrong, &["list"])
        .ends_with(1)
        .stderr_contains(&["401", "not valid"]);
    let id = list[1]["id"].as_str().unwrap();
    run_through_server(&home, &address, admin, &["revoke", id]).ends_with(0).stdout_contains(&[id]);
    assert_eq!(status(&address, &reader), 401);
    run_through_server(&home, &address, admin, &["revoke", id])
        .ends_with(1)
        .stderr_contains(&["no token with the id"]);
    server.stop().ends_with(0);

    // No token is in the store, and no command prints one again.
    let list =
        home.run(&["token", "list"]).ends_with(0).stdout_contains(&["operator", "read,admin", "never"]);
    assert!(!list.stdout.contains(admin) && !list.stdout.contains("wiki"), "{}", list.stdout);
    // The token itself names its id.
    let ran = home.run(&["token", "revoke", admin]).ends_with(0);
    assert!(ran.stdout.contains(&admin[9..29]) && !ran.stdout.contains(admin), "{}", ran.stdout);
    home.run(&["token", "list"]).ends_with(0).stdout_contains(&["there are no tokens"]);
}

#[test]
fn wrong_requests_for_tokens_change_nothing() {
    let Some(home) = Home::new() else { return };
    for (words, reason) in [
        (&["--rights", "reed", "--domain", "wiki"][..], "--rights: 'reed' is not a right"),
        (&["--rights", "read", "--domain", "*wiki"], "--domain: '*wiki' matches no domain"),
        (&["--rights", "read", "--domain", "wiki", "--expires", "soon"], "--expires: 'soon' is neither"),
        (&["--rights", "read"], "--domain"),
    ] {
        home.run(&[&["token", "new"], words].concat()).ends_with(2).stderr_contains(&[reason]);
    }
    home.run(&["token", "revoke", "x"]).ends_with(2).stderr_contains(&["the id of a token is"]);
}
