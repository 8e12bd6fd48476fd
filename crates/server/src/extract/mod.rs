//! Parses requests into types whose constructors validate. The parsers read the raw path and the raw query, since
//! spellings of a URL that are not accepted are redirected or refused: a cache would store the answer once for each
//! spelling.

mod bucket;
pub(crate) mod idempotency_key;
pub(crate) mod mediawiki;
mod parameters;
mod percent;
mod query;
mod reference;
mod target;
mod title;

pub use bucket::encode_key;
pub(crate) use bucket::{
    BucketTarget, EntryTarget, bucket_and_key_of_v1, bucket_and_key_of_wiki, bucket_of_v1, domain_of_v1,
    encode_parameter, parse_bucket,
};
pub(crate) use parameters::{Parameters, refuse_query};
pub(crate) use percent::percent_decode;
pub(crate) use query::{ListRange, MAX_LIMIT, READ_METHODS, Resource, Selector};
pub(crate) use reference::{RevisionReference, parse_parent};
pub(crate) use target::{Target, domain_of_host, page_in_bucket, page_of_v1, page_of_wiki};
pub(crate) use title::{encode_title, parse_title};
