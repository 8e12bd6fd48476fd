//! The arguments of `rashomon rewrite`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, builder::RangedU64ValueParser, value_parser};
use rashomon_pages::rewriting::Profile;
use rashomon_pages::{BucketName, DomainName, PropertyName, Title};

use super::StoreArguments;

/// The maximum number of concurrent transformations.
const MAX_CONCURRENCY: u64 = 64;

#[derive(Debug, Args)]
pub(crate) struct RewriteArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Property to rewrite, such as html
    #[arg(long, value_name = "NAME")]
    pub(crate) property: PropertyName,

    /// Transformer (http or https) that converts values of every earlier version to the current version. Without it,
    /// the transformers in `[transformers]` of the configuration convert the values, and --to-version is required
    #[arg(long, value_name = "URL", required_unless_present = "to_version")]
    pub(crate) with: Option<String>,

    /// Profile of the current version, such as `https://www.mediawiki.org/wiki/Specs/HTML/2.8.0`. The
    /// default comes from the `[[transformers.steps]]` whose `url` is the URL of --with: their `to`. Required if there
    /// are none, or if their `to` differ
    #[arg(long, value_name = "PROFILE", value_parser = parse_profile)]
    pub(crate) to_version: Option<Profile>,

    /// Domain to rewrite [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// Bucket of pages to rewrite [default: all of the domain]
    #[arg(long, value_name = "NAME", requires = "domain")]
    pub(crate) bucket: Option<BucketName>,

    /// Begin at this title; titles are ordered by their bytes. Needs --bucket
    #[arg(long, value_name = "TITLE", requires = "bucket")]
    pub(crate) from: Option<Title>,

    /// Also rewrite values in blocks of the archive, block by block
    #[arg(long)]
    pub(crate) archived: bool,

    /// Maximum number of values a second, 1 to 1000 [default: no limit]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) rate: Option<u32>,

    /// Number of values that are transformed at once, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = RangedU64ValueParser::<u64>::new().range(1..=MAX_CONCURRENCY))]
    pub(crate) concurrency: u64,
}

impl RewriteArguments {
    pub(crate) fn rate(&self) -> Option<NonZeroU32> {
        self.rate.and_then(NonZeroU32::new)
    }

    pub(crate) fn concurrency(&self) -> NonZeroUsize {
        usize::try_from(self.concurrency).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    }
}

fn parse_profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text).ok_or_else(|| {
        "a profile is a URL that ends with a version, such as https://www.mediawiki.org/wiki/Specs/HTML/2.8.0"
            .to_owned()
    })
}
