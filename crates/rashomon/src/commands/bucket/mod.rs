//! `rashomon bucket`.

mod body;
mod local;
mod location;
pub(crate) mod remote;
mod shown;

use rashomon_entries::{BucketType, Definition, check_new_bucket};
use rashomon_pages::BucketName;

use self::{
    body::{Sink, Upload},
    location::{CreateOutcome, Location},
};
use crate::{
    arguments::{
        BucketCommand, BucketOrEntry, CreateBucketArguments, DeleteBucketArguments, DomainOrBucket,
        GetEntryArguments, ListBucketsArguments, PutEntryArguments,
    },
    errors::CommandError,
    exit::Exit,
    logging, output,
    store::IfMissing,
};

/// Carries out a command on buckets or entries.
pub(crate) async fn run(command: BucketCommand) -> Result<Exit, CommandError> {
    logging::start_for_command();
    match command {
        BucketCommand::List(arguments) => Box::pin(list(arguments)).await,
        BucketCommand::Create(arguments) => Box::pin(create(arguments)).await,
        BucketCommand::Delete(arguments) => Box::pin(delete(arguments)).await,
        BucketCommand::Get(arguments) => Box::pin(get(arguments)).await,
        BucketCommand::Put(arguments) => Box::pin(put(arguments)).await,
    }
}

async fn list(arguments: ListBucketsArguments) -> Result<Exit, CommandError> {
    let mut location = Location::open_for_reading(&arguments.location).await?;
    let listed = match &arguments.path {
        DomainOrBucket::Domain(domain) => shown::list_buckets(&mut location, domain, arguments.json).await,
        DomainOrBucket::Bucket(path) => shown::list_entries(&mut location, path, arguments.json).await,
    };
    location.close().await;
    listed.map(|()| Exit::Done)
}

async fn create(arguments: CreateBucketArguments) -> Result<Exit, CommandError> {
    let CreateBucketArguments { location, path, bucket_type, content_type, public, ttl, max_size, replace } =
        arguments;
    if ttl.is_some_and(|ttl| ttl.0.subsec_nanos() > 0) {
        return Err(CommandError::Usage("--ttl is a whole number of seconds, such as 1d or 30s".to_owned()));
    }
    let definition = Definition {
        bucket_type: bucket_type.into(),
        content_type,
        public,
        ttl: ttl.map(|ttl| ttl.0.as_secs()),
        max_size: max_size.map(|size| size.0),
    };
    // Checked before a store is opened or a server is asked, so that a mistake has no effect. The store or the server
    // checks `max_size`, since the limit is known there.
    let checked = check_new_bucket(&path.bucket).map_err(|error| error.to_string());
    checked
        .and_then(|()| definition.check(u64::MAX).map_err(|error| name_flag(&error.to_string())))
        .map_err(CommandError::Usage)?;
    let mut location = Location::open(&location, IfMissing::Create).await?;
    let created = location.create(&path, &definition, replace).await;
    location.close().await;
    output::line(match created? {
        CreateOutcome::New => format!("created {path}: {definition}"),
        CreateOutcome::Existed => format!("{path} exists already with this definition"),
        CreateOutcome::Replaced => format!("replaced the definition of {path}: {definition}"),
    })?;
    Ok(Exit::Done)
}

/// Replaces the member at the beginning of an error of a definition by the flag.
fn name_flag(error: &str) -> String {
    match ["content_type", "max_size", "ttl", "public"].iter().find(|member| error.starts_with(**member)) {
        Some(member) => error.replacen(member, &format!("--{}", member.replace('_', "-")), 1),
        None => error.to_owned(),
    }
}

async fn delete(arguments: DeleteBucketArguments) -> Result<Exit, CommandError> {
    if let BucketOrEntry::Bucket(path) = &arguments.path {
        if path.bucket == BucketName::page() {
            return Err(CommandError::Usage(format!(
                "the bucket {path} is built in and cannot be deleted: erase single revisions with `rashomon archive erase`, or \
                 delete a bucket of another name"
            )));
        }
        if !arguments.yes {
            return Err(CommandError::Usage(format!(
                "this deletes the bucket {path} with all of its entries or pages, which cannot be restored: add --yes"
            )));
        }
    }
    let mut location = Location::open(&arguments.location, IfMissing::Refuse).await?;
    let deleted = match &arguments.path {
        BucketOrEntry::Bucket(path) => location.delete_bucket(path).await,
        BucketOrEntry::Entry(path) => location.delete_entry(path).await,
    };
    location.close().await;
    deleted?;
    match &arguments.path {
        BucketOrEntry::Bucket(path) => output::line(format_args!("deleted {path}"))?,
        BucketOrEntry::Entry(path) => output::line(format_args!("deleted {}/{}", path.bucket, path.key))?,
    }
    Ok(Exit::Done)
}

async fn get(arguments: GetEntryArguments) -> Result<Exit, CommandError> {
    let mut location = Location::open_for_reading(&arguments.location).await?;
    let read = async {
        if location.bucket_type(&arguments.path.bucket).await? == BucketType::Counter {
            let value = location.value(&arguments.path).await?;
            let mut sink = Sink::open(arguments.output.as_deref())?;
            sink.write(format!("{value}\n").into()).await?;
            return sink.finish().await;
        }
        location.read(&arguments.path, arguments.output.as_deref()).await
    };
    let read = read.await;
    location.close().await;
    read.map(|()| Exit::Done)
}

async fn put(arguments: PutEntryArguments) -> Result<Exit, CommandError> {
    if let Some(content_type) = &arguments.content_type {
        let definition =
            Definition { content_type: Some(content_type.clone()), ..Definition::of(BucketType::Blob) };
        definition.check(u64::MAX).map_err(|error| CommandError::Usage(name_flag(&error.to_string())))?;
    }
    let upload = Upload::open(&arguments.file).await?;
    let mut location = Location::open(&arguments.location, IfMissing::Refuse).await?;
    let stored = location.put(&arguments.path, upload, arguments.content_type).await;
    location.close().await;
    let size = stored?;
    output::line(format_args!(
        "stored {}/{}, {}",
        arguments.path.bucket,
        arguments.path.key,
        output::bytes(size)
    ))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_flags() {
        assert_eq!(name_flag("max_size is a number"), "--max-size is a number");
        assert_eq!(name_flag("content_type: no"), "--content-type: no");
    }
}
