//! The command line of `rashomon bucket`.

use std::{path::PathBuf, str::FromStr};

use crate::configuration::{ByteSize, Span};
use clap::{Args, Subcommand, ValueEnum};
use rashomon_entries::{BucketType, EntryKey};
use rashomon_pages::{BucketName, DomainName};
use rashomon_upstream::ServerUrl;

use super::StoreArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum BucketCommand {
    /// List the buckets of a domain, or the entries of a bucket
    ///
    /// The list of a domain has the name and the definition of each bucket except `page`, which is built in. The list
    /// of a bucket has a line for each entry: key, size, content type and time of the last write, with tabs between
    /// them. For a bucket of counters, a line has the key and the value.
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command, or there is no such bucket
  2  the command line is wrong, or there is no store

Examples:
  rashomon bucket list enwiki
  rashomon bucket list enwiki/thumbnails --to http://127.0.0.1:7231")]
    List(ListBucketsArguments),

    /// Create a bucket
    ///
    /// If the bucket exists with the same definition, the command changes nothing. If the bucket exists with another
    /// definition, the command fails, unless --replace is given. The type of a bucket never changes.
    #[command(after_help = "\
Exit codes:
  0  the bucket exists with this definition
  1  an error ended the command, or the bucket exists with another definition
  2  the command line is wrong; nothing was done

Examples:
  rashomon bucket create enwiki/thumbnails --type blob --content-type image/png --public
  rashomon bucket create enwiki/sessions --type blob --ttl 1d --max-size '64 KiB' --replace")]
    Create(CreateBucketArguments),

    /// Delete an entry, or a bucket with all of its entries or pages
    ///
    /// When the command ends, the deleted entry or bucket cannot be read any more. A server then deletes the entries or
    /// pages of a deleted bucket, and the large bodies of deleted entries, from the store in the background.
    #[command(after_help = "\
Exit codes:
  0  the entry or the bucket does not exist any more
  1  an error ended the command, or there was no such bucket
  2  the command line is wrong, such as a bucket without --yes, or there is no store

Examples:
  rashomon bucket delete enwiki/thumbnails/logo/small.png
  rashomon bucket delete enwiki/thumbnails --yes")]
    Delete(DeleteBucketArguments),

    /// Write the body of an entry, or the value of a counter, to standard output or to a file
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command, or there is no such entry; the file of --output was not written
  2  the command line is wrong, or there is no store

Examples:
  rashomon bucket get enwiki/thumbnails/logo/small.png --output small.png
  rashomon bucket get enwiki/clicks/Main_Page")]
    Get(GetEntryArguments),

    /// Store an entry, or replace it
    #[command(after_help = "\
Exit codes:
  0  the entry is stored
  1  an error ended the command, or there is no such bucket
  2  the command line is wrong, or there is no store

Examples:
  rashomon bucket put enwiki/thumbnails/logo/small.png small.png --content-type image/png
  date | rashomon bucket put enwiki/state/last-run -")]
    Put(PutEntryArguments),
}

/// The location of the buckets: a store, or a running server.
#[derive(Debug, Args)]
pub(crate) struct BucketLocationArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Send requests to a running server instead of opening the store. The environment variable RASHOMON_TOKEN has the
    /// token for the requests. A configuration file is not read
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) to: Option<ServerUrl>,
}

#[derive(Debug, Args)]
pub(crate) struct ListBucketsArguments {
    #[command(flatten)]
    pub(crate) location: BucketLocationArguments,

    /// Domain, or bucket whose entries are listed
    #[arg(value_name = "DOMAIN[/BUCKET]")]
    pub(crate) path: DomainOrBucket,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateBucketArguments {
    #[command(flatten)]
    pub(crate) location: BucketLocationArguments,

    /// Domain and name of the bucket
    #[arg(value_name = "DOMAIN/BUCKET")]
    pub(crate) path: BucketPath,

    /// Type of the bucket
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    pub(crate) bucket_type: BucketTypeArgument,

    /// Content type of entries that are stored without one [default: application/octet-stream]
    #[arg(long, value_name = "TYPE/SUBTYPE")]
    pub(crate) content_type: Option<String>,

    /// Make the entries readable for every client that may read the pages of the domain
    #[arg(long)]
    pub(crate) public: bool,

    /// Time from the last write of an entry until it expires, such as 1d or 30s; fractions of a second are refused
    /// [default: never]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<Span>,

    /// Maximum size of a body [default: body_limit of the configuration]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<ByteSize>,

    /// If the bucket exists with another definition of the same type, replace the whole definition: a flag that is not
    /// given gets its default, so repeat all flags that shall stay. A new ttl applies to an entry from its next write
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteBucketArguments {
    #[command(flatten)]
    pub(crate) location: BucketLocationArguments,

    /// Bucket, or entry
    #[arg(value_name = "DOMAIN/BUCKET[/KEY]")]
    pub(crate) path: BucketOrEntry,

    /// Confirm the deletion of a bucket with all of its entries or pages, which cannot be restored
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetEntryArguments {
    #[command(flatten)]
    pub(crate) location: BucketLocationArguments,

    /// Entry; the key is written as it is, without percent-encoding
    #[arg(value_name = "DOMAIN/BUCKET/KEY")]
    pub(crate) path: EntryPath,

    /// File to write; it appears under its name only when it is complete [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PutEntryArguments {
    #[command(flatten)]
    pub(crate) location: BucketLocationArguments,

    /// Entry; the key is written as it is, without percent-encoding
    #[arg(value_name = "DOMAIN/BUCKET/KEY")]
    pub(crate) path: EntryPath,

    /// File with the body; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Content type of the entry [default: that of the bucket]
    #[arg(long, value_name = "TYPE/SUBTYPE")]
    pub(crate) content_type: Option<String>,
}

/// The type of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BucketTypeArgument {
    /// Entries that are listed in no particular order
    Blob,
    /// Entries that are listed in the byte order of their keys
    OrderedBlob,
    /// Counters
    Counter,
    /// Pages with revisions and renders
    Revisioned,
}

impl From<BucketTypeArgument> for BucketType {
    fn from(argument: BucketTypeArgument) -> Self {
        match argument {
            BucketTypeArgument::Blob => Self::Blob,
            BucketTypeArgument::OrderedBlob => Self::OrderedBlob,
            BucketTypeArgument::Counter => Self::Counter,
            BucketTypeArgument::Revisioned => Self::Revisioned,
        }
    }
}

/// A bucket: `DOMAIN/BUCKET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketPath {
    pub(crate) domain: DomainName,
    pub(crate) bucket: BucketName,
}

/// An entry: `DOMAIN/BUCKET/KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPath {
    pub(crate) bucket: BucketPath,
    pub(crate) key: EntryKey,
}

/// `DOMAIN` or `DOMAIN/BUCKET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DomainOrBucket {
    Domain(DomainName),
    Bucket(BucketPath),
}

/// `DOMAIN/BUCKET` or `DOMAIN/BUCKET/KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BucketOrEntry {
    Bucket(BucketPath),
    Entry(EntryPath),
}

impl std::fmt::Display for BucketPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.domain, self.bucket)
    }
}

impl FromStr for BucketPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            BucketOrEntry::Bucket(path) => Ok(path),
            BucketOrEntry::Entry(_) => {
                Err("name a domain and a bucket without a key, as in enwiki/thumbnails".to_owned())
            }
        }
    }
}

impl FromStr for EntryPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            BucketOrEntry::Entry(path) => Ok(path),
            BucketOrEntry::Bucket(_) => {
                Err("name a domain, a bucket and a key, as in enwiki/thumbnails/logo.png".to_owned())
            }
        }
    }
}

impl FromStr for DomainOrBucket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix('/').unwrap_or(text);
        match text.contains('/') {
            true => text.parse().map(Self::Bucket),
            false => DomainName::new(text).map(Self::Domain).map_err(|error| error.0),
        }
    }
}

impl FromStr for BucketOrEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (domain, rest) = text
            .split_once('/')
            .ok_or("name a domain and a bucket with a slash between them, as in enwiki/thumbnails")?;
        let (bucket, key) = rest.split_once('/').map_or((rest, None), |(bucket, key)| (bucket, Some(key)));
        let bucket = BucketPath {
            domain: DomainName::new(domain).map_err(|error| error.0)?,
            bucket: BucketName::new(bucket).map_err(|error| error.0)?,
        };
        Ok(match key {
            None => Self::Bucket(bucket),
            Some(key) => Self::Entry(EntryPath { bucket, key: EntryKey::new(key).map_err(|error| error.0)? }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_a_domain_a_bucket_and_a_key() {
        let bucket: BucketPath = "enwiki/thumbs".parse().unwrap();
        assert_eq!(bucket.to_string(), "enwiki/thumbs");
        let entry: EntryPath = "enwiki/thumbs/logo/a b.png".parse().unwrap();
        assert_eq!((&entry.bucket, entry.key.as_str()), (&bucket, "logo/a b.png"));
        assert_eq!("enwiki".parse(), Ok(DomainOrBucket::Domain("enwiki".parse().unwrap())));
        assert_eq!("enwiki/thumbs/".parse(), Ok(DomainOrBucket::Bucket(bucket)));
    }

    #[test]
    fn wrong_path_is_refused_with_the_right_form() {
        let reason = |text: &str| text.parse::<EntryPath>().unwrap_err();
        assert!(reason("enwiki").contains("as in enwiki/thumbnails"));
        assert!(reason("enwiki/thumbs").contains("a domain, a bucket and a key"));
        assert!(reason("enwiki/thumbs/").contains("a key has at least one byte"));
        assert!(reason("enwiki/thumbs/..").contains("between slashes"));
        assert!(reason("enwiki/Thumbs/a").contains("bucket"));
        assert!("enwiki/thumbs/a".parse::<BucketPath>().unwrap_err().contains("without a key"));
    }
}
