//! `rashomon token`.

mod location;

use rashomon_clock::{Clock as _, SystemClock};
use rashomon_server::access::{TokenDocument, TokenRequest};
use serde::Serialize;

use self::location::Location;
use crate::{
    arguments::{ListTokensArguments, NamedToken, NewTokenArguments, RevokeTokensArguments, TokenCommand},
    errors::CommandError,
    exit::Exit,
    logging, output,
    store::IfMissing,
};

/// Makes, lists or revokes tokens.
pub(crate) async fn run(command: TokenCommand) -> Result<Exit, CommandError> {
    logging::start_for_command();
    match command {
        TokenCommand::New(arguments) => make(arguments).await,
        TokenCommand::List(arguments) => list(arguments).await,
        TokenCommand::Revoke(arguments) => revoke(arguments).await,
    }
}

async fn make(arguments: NewTokenArguments) -> Result<Exit, CommandError> {
    let NewTokenArguments { location, rights, domains, buckets, expires, note } = arguments;
    let buckets = Some(buckets).filter(|buckets| !buckets.is_empty());
    let request = TokenRequest { rights, domains, buckets, expires, note };
    // Checked before a store is opened or a server is asked, so that a mistake has no effect.
    request.check(SystemClock::new().now()).map_err(|error| CommandError::Usage(name_flag(&error)))?;
    let mut location = Location::open(&location, IfMissing::Create).await?;
    let made = location.make(&request).await;
    location.close().await;
    output::line(made?)?;
    Ok(Exit::Done)
}

/// Replaces the member at the beginning of an error of a request by the flag.
fn name_flag(error: &str) -> String {
    let singular = error.replacen("domains: ", "domain: ", 1).replacen("buckets: ", "bucket: ", 1);
    format!("--{singular}")
}

async fn list(arguments: ListTokensArguments) -> Result<Exit, CommandError> {
    let mut location = Location::open(&arguments.location, IfMissing::Refuse).await?;
    let listed = location.list().await;
    location.close().await;
    let tokens = listed?;
    if arguments.json {
        #[derive(Serialize)]
        struct Document {
            tokens: Vec<TokenDocument>,
        }
        output::json(&Document { tokens })?;
    } else if tokens.is_empty() {
        output::line("there are no tokens")?;
    } else {
        output::line(table(&tokens))?;
    }
    Ok(Exit::Done)
}

async fn revoke(arguments: RevokeTokensArguments) -> Result<Exit, CommandError> {
    let mut location = Location::open(&arguments.location, IfMissing::Refuse).await?;
    let mut exit = Exit::Done;
    let mut result = Ok(());
    for NamedToken(id) in &arguments.ids {
        match location.revoke(id).await {
            Ok(true) => output::line(format_args!("revoked {id}"))?,
            Ok(false) => {
                output::to_stderr(format_args!("error: there is no token with the id {id}"));
                exit = Exit::Failed;
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    location.close().await;
    result.map(|()| exit)
}

/// Formats tokens as columns. The note is last, since it may be long.
fn table(tokens: &[TokenDocument]) -> String {
    const HEADINGS: [&str; 8] =
        ["ID", "RIGHTS", "DOMAINS", "BUCKETS", "CREATED", "EXPIRES", "LAST USED", "NOTE"];
    let row = |token: &TokenDocument| {
        [
            token.id.clone(),
            token.rights.join(","),
            token.domains.join(","),
            token.buckets.as_ref().map_or_else(|| "all".to_owned(), |buckets| buckets.join(",")),
            minute(&token.created),
            token.expires.as_deref().map_or_else(|| "never".to_owned(), minute),
            token.last_used.as_deref().map_or_else(|| "never".to_owned(), minute),
            token.note.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<[String; 8]> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(tokens.iter().map(row)).collect();
    let widths: [usize; 8] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Shortens a time in RFC 3339 to its date and its minute, in UTC.
fn minute(time: &str) -> String {
    time.chars().take(16).map(|letter| if letter == 'T' { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_flags() {
        assert_eq!(name_flag("domains: '**' matches no domain"), "--domain: '**' matches no domain");
        assert_eq!(name_flag("rights: name at least one"), "--rights: name at least one");
    }

    #[test]
    fn columns_are_aligned_and_times_are_short() {
        let token = |note: Option<&str>, buckets: Option<&str>| TokenDocument {
            id: "6a4e7f30a1b2c3d4e5f6".to_owned(),
            rights: vec!["read".to_owned(), "write".to_owned()],
            domains: vec!["enwiki".to_owned()],
            buckets: buckets.map(|bucket| vec![bucket.to_owned()]),
            created: "2026-11-26T20:00:00.5Z".to_owned(),
            expires: None,
            last_used: Some("2026-11-26T20:05:00Z".to_owned()),
            note: note.map(str::to_owned),
        };
        let expected = "\
ID                    RIGHTS      DOMAINS  BUCKETS  CREATED           EXPIRES  LAST USED         NOTE
6a4e7f30a1b2c3d4e5f6  read,write  enwiki   all      2026-11-26 20:00  never    2026-11-26 20:05
6a4e7f30a1b2c3d4e5f6  read,write  enwiki   page     2026-11-26 20:00  never    2026-11-26 20:05  Ann";
        assert_eq!(table(&[token(None, None), token(Some("Ann"), Some("page"))]), expected);
    }
}
