//! Tests of the limit of wrong tokens from one address, which is the address of the connection.

use rashomon_server::access::{AnonymousRights, Right};
use rashomon_server::{ServeOptions, Settings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

use super::servers;
use crate::{
    socket::{Server, get},
    world::{PAGE, World},
};

/// More wrong tokens than an address may send at once.
const WRONG_TOKENS: usize = 60;

/// Sends a request from an address of loopback, and reads the whole answer.
async fn exchange(server: &Server, from: &str, authorization: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let authorization = match authorization {
        "" => String::new(),
        token => format!("authorization: {token}\r\n"),
    };
    let request = get(&format!("{PAGE}?rev/latest/html"), &format!("connection: close\r\n{authorization}"));
    stream.write_all(&request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

async fn guarded_server() -> (World, Server) {
    let (open, world) = servers(Settings::default(), AnonymousRights::default()).await;
    super::fill(&open, "enwiki").await;
    let server = Server::of(&world, ServeOptions::default()).await;
    (world, server)
}

#[tokio::test]
async fn only_wrong_tokens_are_refused_after_too_many() {
    let (world, server) = guarded_server().await;
    let known = world.token(&[Right::Read], &["enwiki"]).await;
    let fresh = world.token(&[Right::Read], &["enwiki"]).await;
    assert_eq!(status(&exchange(&server, "127.0.0.1", &known).await), "200");
    let mut statuses = Vec::new();
    for number in 0..WRONG_TOKENS {
        let wrong = format!("Bearer rashomon_{}_{number:064x}", "0".repeat(20));
        statuses.push(status(&exchange(&server, "127.0.0.1", &wrong).await).to_owned());
    }
    let refused = statuses.iter().position(|status| status == "429").expect("wrong tokens are bounded");
    assert!((10..40).contains(&refused), "{refused}");
    assert!(statuses[..refused].iter().all(|status| status == "401"), "{statuses:?}");
    assert!(statuses[refused..].iter().all(|status| status == "429"), "{statuses:?}");

    // Both answers are counted.
    let metrics = get("/metrics", "connection: close\r\n");
    let metrics = server.exchange(&metrics).await;
    for (reason, count) in [("invalid", refused), ("too_many", WRONG_TOKENS - refused)] {
        let line = format!("refused_tokens_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }

    // A right token is accepted, whether this server has seen it before or not.
    assert_eq!(status(&exchange(&server, "127.0.0.1", &fresh).await), "200");
    assert_eq!(status(&exchange(&server, "127.0.0.1", &known).await), "200");
    assert_eq!(status(&exchange(&server, "127.0.0.1", "").await), "401");
    assert_eq!(status(&exchange(&server, "127.0.0.2", "Bearer x").await), "401");

    // A wrong token is answered slowly, and right tokens have not given it another attempt.
    let begun = tokio::time::Instant::now();
    let answer = exchange(&server, "127.0.0.1", "Bearer wrong").await;
    assert!(begun.elapsed().as_millis() >= 75, "{:?}", begun.elapsed());
    assert_eq!(status(&answer), "429", "{answer}");
    assert!(answer.contains("urn:rashomon:problem:too-many-attempts"), "{answer}");
    let after = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).expect("a header");
    let after: u64 = after.parse().unwrap();
    assert!((1..=10).contains(&after), "{after}");
    world.clock.advance(std::time::Duration::from_secs(after));
    assert_eq!(status(&exchange(&server, "127.0.0.1", "Bearer wrong").await), "401");
}

#[tokio::test]
async fn headers_of_proxies_do_not_change_the_address() {
    let (_, server) = guarded_server().await;
    let mut statuses = Vec::new();
    for number in 0..WRONG_TOKENS {
        let token = format!(
            "Bearer wrong{number}\r\nx-forwarded-for: 10.0.0.{number}\r\nforwarded: for=10.1.0.{number}"
        );
        statuses.push(status(&exchange(&server, "127.0.0.1", &token).await).to_owned());
    }
    assert_eq!(statuses.last().unwrap(), "429", "{statuses:?}");
}
