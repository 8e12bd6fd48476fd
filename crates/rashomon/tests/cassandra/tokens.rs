//! A token that one server of a keyspace revokes is refused by the other servers. Tests of the server's
//! module `access`, with a clock of their own, check that this takes less than five seconds.

use crate::{home::Home, http::request, process::wait_until};

#[test]
fn revocation_reaches_other_servers() {
    let Some(home) = Home::new() else { return };
    let made = home.run(&["token", "new", "--rights", "read,admin", "--domain", "*"]).ends_with(0);
    let token = made.stdout.trim().to_owned();
    let (first, one) = home.serve(&[]);
    let (second, other) = home.serve(&[]);
    let header = format!("Authorization: Bearer {token}\r\n");
    let is_refused = |address: &str| {
        let answer = request(address, "GET", "/v1/wiki/page/Night?rev/", &header);
        assert!(answer.starts_with("HTTP/1.1 401") || answer.starts_with("HTTP/1.1 404"), "{answer}");
        answer.starts_with("HTTP/1.1 401")
    };
    assert!(!is_refused(&one) && !is_refused(&other));
    let id = &token[9..29];
    let answer = request(&one, "DELETE", &format!("/v1/tokens/{id}"), &header);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(is_refused(&one), "the server that revoked it refuses it at once");
    wait_until("the other server refuses the token", || is_refused(&other));
    first.stop().ends_with(0);
    second.stop().ends_with(0);
}
