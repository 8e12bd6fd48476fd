//! Checks that the settings fit one another, and that the components can be built.

use rashomon_pages::{IgnoredHeaders, StoredHeaders};

use super::{ByteSize, MergedSettings, Problem, Settings, access, caches};

/// Checks that the settings fit one another, that the files that they name can be used, and that a server that other
/// machines can reach has access rights.
pub(super) fn check(settings: &Settings, problems: &mut Vec<Problem>) {
    check_components(settings, problems);
    problems.extend(settings.tls().err().map(|error| Problem { message: error.to_string(), position: None }));
    problems.extend(check_staging(settings));
    problems.extend(check_ignored_headers(settings));
    problems.extend(check_stored_headers(settings));
    let listen = settings.merged.listen;
    if !settings.access.is_configured() && !listen.0.ip().is_loopback() {
        problems.push(Problem {
            message: format!(
                "other machines can reach {listen}, but no access rights are configured. Add these lines to the \
                 configuration file, and make a token for each writer with `rashomon token new`:\n\n{}\n\n\
                 If every client may do everything, use --access open (in the file: access = \"open\"). If \
                 only this machine needs the server, listen on 127.0.0.1",
                access::EXAMPLE
            ),
            position: None,
        });
    }
    problems.extend(check_jwks_file(settings));
    problems.extend(settings.check_registry());
    problems.extend(settings.declared_buckets().check_locations());
}

/// Checks that the file with the keys of JSON Web Tokens can be used.
fn check_jwks_file(settings: &Settings) -> Option<Problem> {
    let error = rashomon_server::access::check_jwks_file(settings.access.jwks_file()?).err()?;
    Some(Problem { message: format!("jwks_file of [access]: {error}"), position: None })
}

/// Checks that writes have enough staging memory while the maximum number of imports runs.
fn check_staging(settings: &Settings) -> Option<Problem> {
    let MergedSettings { staging_memory, max_imports, .. } = settings.merged;
    let least = ByteSize(rashomon_server::least_staging_bytes(max_imports.get()));
    (staging_memory < least).then(|| Problem {
        message: format!(
            "staging_memory is {staging_memory}, but {max_imports} imports and two writes at the same time \
             need {least}: raise staging_memory, or lower max_imports"
        ),
        position: None,
    })
}

/// Checks that the list of stored headers has only `X-` headers, and not too many of them.
fn check_stored_headers(settings: &Settings) -> Option<Problem> {
    let names = settings.merged.stored_headers.as_ref()?;
    let message = match names.iter().find(|name| !name.to_string().starts_with("x-")) {
        Some(name) => format!(
            "stored_headers has '{name}', but only names that begin with X- belong there: Content-Type and \
             Content-Language are always stored"
        ),
        None if names.len() > StoredHeaders::MAX_PATTERNS => format!(
            "stored_headers has {} names, and at most {} are allowed: write one name with a * at its end for several \
             headers with the same beginning",
            names.len(),
            StoredHeaders::MAX_PATTERNS
        ),
        None => return None,
    };
    Some(Problem { message, position: None })
}

/// Checks the number of ignored headers. Each write compares its headers with all of these names.
fn check_ignored_headers(settings: &Settings) -> Option<Problem> {
    let (most, count) = (IgnoredHeaders::MAX_PATTERNS, settings.merged.ignored_headers.len());
    (count > most).then(|| Problem {
        message: format!(
            "ignored_headers has {count} names, and at most {most} are allowed: write one name with a * at its end for \
             several headers with the same beginning"
        ),
        position: None,
    })
}

/// Checks that the components can be built.
pub(super) fn check_components(settings: &Settings, problems: &mut Vec<Problem>) {
    let timeline = settings.retention.timeline.find_error();
    let clients = [settings.generator().err(), settings.transformers().err(), caches::open(settings).err()];
    let errors = clients.into_iter().chain([settings.check_archive_strategy(), timeline]);
    problems.extend(errors.flatten().map(|message| Problem { message, position: None }));
}
