//! Writes the next revision of a page, if nobody else writes one meanwhile, and lists the revisions.
//!
//! ```sh
//! rashomon demo &
//! cargo run -p rashomon-client --example edit -- http://127.0.0.1:7231 'Main Page' 'Hello'
//! ```

use std::{env::args, error::Error};

use futures::TryStreamExt as _;
use rashomon_client::{ProblemKind, PropertyContent, Servers, Store};

/// Writes a revision with this text, and returns a line for each revision, latest first.
pub(crate) async fn edit(server: &str, title: &str, text: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let store = Store::new(Servers::new([server]))?;
    let page = store.domain("enwiki")?.page(title)?;

    // The new revision has the next number, and is refused if the latest revision is another one by then.
    let edit = match page.latest_render().await {
        Ok(latest) => {
            page.new_revision(latest.number.get() + 1).parent(latest.number).if_latest(latest.number)
        }
        Err(error) if error.problem().is_some_and(|problem| problem.is(ProblemKind::NotFound)) => {
            page.new_revision(1).without_parent().if_new()
        }
        Err(error) => return Err(error.into()),
    };
    let html = PropertyContent::new(format!("<p>{text}</p>")).content_type("text/html; charset=utf-8");
    edit.user("Ann").property("wikitext", text.to_owned()).property("html", html).send().await?;

    let mut lines = Vec::new();
    let mut revisions = page.revisions();
    while let Some(revision) = revisions.try_next().await? {
        lines.push(format!(
            "{} by {}",
            revision.number,
            revision.user.as_deref().unwrap_or("an unknown user")
        ));
    }
    Ok(lines)
}

#[tokio::main]
#[allow(clippy::print_stdout)] // The result of the program.
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = args().skip(1).collect();
    let [server, title, text] = &arguments[..] else {
        return Err("usage: edit SERVER TITLE TEXT".into());
    };
    for line in edit(server, title, text).await? {
        println!("{line}");
    }
    Ok(())
}
