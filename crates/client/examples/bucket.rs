//! Keeps the readings of a station in a bucket that is listed in the order of time.
//!
//! ```sh
//! rashomon demo &
//! cargo run -p rashomon-client --example bucket -- http://127.0.0.1:7231
//! ```

use std::{env::args, error::Error, time::Duration};

use futures::TryStreamExt as _;
use rashomon_client::{BucketDefinition, ProblemKind, Servers, Store};

/// Stores readings, and returns a line for each reading of February, oldest first.
pub(crate) async fn readings(server: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let store = Store::new(Servers::new([server]))?;
    let bucket = store.domain("enwiki")?.bucket("timeseries")?;

    // A bucket that exists with this definition stays as it is.
    let month = Duration::from_secs(30 * 86400);
    bucket.create(&BucketDefinition::ordered_blob().content_type("text/plain").ttl(month)).await?;

    for (time, celsius) in [("2012-01-31T12:00", "3"), ("2012-02-01T12:00", "4"), ("2012-02-02T12:00", "7")] {
        // A reading that is stored already is not replaced.
        match bucket.entry(time)?.put(celsius).if_new().send().await {
            Ok(_) => {}
            Err(error) if error.problem().is_some_and(|it| it.is(ProblemKind::PreconditionFailed)) => {}
            Err(error) => return Err(error.into()),
        }
    }

    let mut lines = Vec::new();
    let mut february = bucket.entries().ge("2012-02").lt("2012-03");
    while let Some(entry) = february.try_next().await? {
        let celsius = bucket.entry(&entry.key)?.get().await?.text(100).await?;
        lines.push(format!("{}: {celsius} °C", entry.key));
    }
    Ok(lines)
}

#[tokio::main]
#[allow(clippy::print_stdout)] // The result of the program.
async fn main() -> Result<(), Box<dyn Error>> {
    let server = args().nth(1).ok_or("usage: bucket SERVER")?;
    for line in readings(&server).await? {
        println!("{line}");
    }
    Ok(())
}
