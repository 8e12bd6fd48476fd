//! Conditions hold across all servers of a keyspace.

use std::thread;

use crate::{
    home::Home,
    http::{get, post},
};

const READ: &str = "/v1/wiki/page/Night?rev/latest/html";
const WRITE: &str = "/v1/wiki/page/Night?rev/";

const WRITERS: u32 = 32;
const ROUNDS: u32 = 8;

#[test]
fn conditional_write_succeeds_once_across_servers() {
    let Some(home) = Home::new() else { return };
    let (first, one) = home.serve(&[]);
    let (second, other) = home.serve(&[]);
    let servers = [one, other];
    let mut latest = 0;
    for round in 1..=ROUNDS {
        // Writers that start later have lower numbers, so the writes arrive roughly in descending order. If a server
        // compared `_if_latest` only with revisions below the new one, several writes would succeed.
        let revisions: Vec<u32> = (0..WRITERS).map(|writer| round * 100 - writer).collect();
        let answers: Vec<(u32, String)> = thread::scope(|scope| {
            let writers = revisions.iter().zip(servers.iter().cycle()).map(|(rev, server)| {
                let form = format!("_rev={rev}&_if_latest={latest}&html=written+by+{rev}");
                scope.spawn(move || (*rev, post(server, WRITE, &form)))
            });
            let writers: Vec<_> = writers.collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let mut passed = Vec::new();
        for (rev, answer) in answers {
            match answer.split(' ').nth(1) {
                Some("201") => passed.push(rev),
                // Another writer was faster, or too many writers were waiting.
                Some("409") if answer.contains("not-latest") => {}
                Some("503") => {}
                _ => panic!("{answer}"),
            }
        }
        assert_eq!(passed.len(), 1, "round {round}: {passed:?}");
        latest = passed[0];
        for server in &servers {
            let read = get(server, READ);
            assert!(read.ends_with(&format!("written by {latest}")), "round {round}: {read}");
        }
    }
    first.stop().ends_with(0);
    second.stop().ends_with(0);
    let stored = home.everything();
    assert_eq!(stored.matches("written by").count(), ROUNDS as usize, "{stored}");
}
