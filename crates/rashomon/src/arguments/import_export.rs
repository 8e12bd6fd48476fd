//! The arguments of `rashomon import` and `rashomon export`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, ValueEnum};
use rashomon_pages::{BucketName, DomainName, Title};
use rashomon_upstream::ServerUrl;

use super::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Domain of the revisions, such as enwiki
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: DomainName,

    /// Bucket to import into: `page`, an existing bucket of the type `revisioned`, or a key-value bucket. A key-value
    /// bucket takes the JSON lines that `export --bucket` writes. If the bucket is missing, the file must be an export
    /// of a key-value bucket, and the bucket is created with the definition in the file. To import pages, create the
    /// bucket first (`bucket create --type revisioned`)
    #[arg(long, value_name = "NAME", default_value_t = BucketName::page())]
    pub(crate) bucket: BucketName,

    /// Send the files to a running server (http or https) instead of opening the store
    ///
    /// If the environment variable RASHOMON_TOKEN is set, the requests carry this token (Authorization: Bearer).
    /// The certificate of the server is checked against the certificate authorities that the variable SSL_CERT_FILE or
    /// SSL_CERT_DIR names, or else against those of the system.
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "jobs"])]
    pub(crate) to: Option<ServerUrl>,

    /// Number of groups of revisions that are hashed and compressed in parallel [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Write the pages that the store does not have as archive blocks, even if the archive of the store is off
    ///
    /// If the archive of a SQLite store is on, an import writes such pages as blocks without this flag. In blocks, a
    /// history takes a few per cent of the size of its texts. On a cluster, or with a retention policy, the
    /// configuration must have `[archive]`. On a cluster, nothing else may write to these pages during the import.
    #[arg(long, conflicts_with = "to")]
    pub(crate) archive: bool,

    /// Write all revisions into the tables instead of blocks, even if the archive of the store is on
    #[arg(long, conflicts_with_all = ["archive", "to"])]
    pub(crate) rows: bool,

    /// Leave out pages that are broken, for example not closed or not well-formed, and go on with the next page
    ///
    /// Each is named with its line, and its revisions before the broken place are imported. Without this flag, a broken
    /// page ends the import.
    #[arg(long)]
    pub(crate) skip_broken: bool,

    /// Write the counts and the first exceptions of each kind as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Files to import, in any order; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Domain to export
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: DomainName,

    /// Bucket to export. The export of a key-value bucket has all of its entries, as JSON lines
    #[arg(long, value_name = "NAME", default_value_t = BucketName::page())]
    pub(crate) bucket: BucketName,

    /// Export only this page; may be given several times
    #[arg(long = "title", value_name = "TITLE")]
    pub(crate) titles: Vec<Title>,

    /// Export every revision instead of the latest of each page
    #[arg(long)]
    pub(crate) history: bool,

    /// Format [default: by the extension of --output, which must be known; on standard output xml, or jsonl for a
    /// key-value bucket]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,

    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// MediaWiki XML, version 0.11: wikitext and its metadata
    Xml,
    /// One JSON object a line: all data of the exported revisions, renders included
    Jsonl,
}
