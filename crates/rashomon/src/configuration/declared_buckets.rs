//! The buckets that the configuration declares: `[domains.NAME.buckets.BUCKET]` with a `type`.

use std::{collections::BTreeMap, ops::Range};

use rashomon_entries::{BucketType, Definition, check_new_bucket};
use rashomon_pages::{BucketName, DomainName};
use serde::Serialize;
use toml::Spanned;

use super::{
    File, Problem, Settings, StoreSettings,
    raw::{RawBucket, RawDomain},
    registry::BucketLocation,
    values::{ByteSize, Span},
};

/// The definition of a bucket, as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Declaration {
    #[serde(rename = "type")]
    bucket_type: BucketType,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size: Option<ByteSize>,
}

/// A bucket that a server makes at its start if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredBucket {
    /// The domain.
    pub domain: DomainName,
    /// The name.
    pub bucket: BucketName,
    /// The definition.
    pub definition: Definition,
}

impl Declaration {
    fn definition(&self) -> Definition {
        Definition {
            bucket_type: self.bucket_type,
            content_type: self.content_type.clone(),
            public: self.public.unwrap_or_default(),
            ttl: self.ttl.map(|Span(ttl)| ttl.as_secs()),
            max_size: self.max_size.map(|ByteSize(size)| size),
        }
    }
}

impl Settings {
    /// The buckets that the configuration declares.
    pub(crate) fn declared_buckets(&self) -> DeclaredBuckets<'_> {
        DeclaredBuckets { settings: self }
    }
}

/// The buckets that a configuration declares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeclaredBuckets<'s> {
    settings: &'s Settings,
}

impl<'s> DeclaredBuckets<'s> {
    /// The declared buckets of the main store of the server.
    pub(crate) fn of_main_store(self) -> Vec<DeclaredBucket> {
        self.located(|location| location == BucketLocation::MainStore)
    }

    /// The declared buckets of another store of the registry.
    pub(crate) fn of_store(self, store: &StoreSettings) -> Vec<DeclaredBucket> {
        self.located(|location| location == BucketLocation::OtherStore(store))
    }

    fn located(self, is_there: impl Fn(BucketLocation<'_>) -> bool) -> Vec<DeclaredBucket> {
        let all = self.all();
        all.filter(|(domain, bucket, _)| is_there(self.settings.locate_bucket(domain, bucket)))
            .map(|(domain, bucket, declaration)| DeclaredBucket {
                domain: domain.clone(),
                bucket: bucket.clone(),
                definition: declaration.definition(),
            })
            .collect()
    }

    /// The declarations, without those of `page`, which always exists.
    fn all(self) -> impl Iterator<Item = (&'s DomainName, &'s BucketName, &'s Declaration)> {
        let all = self.settings.domains.iter().flat_map(|(domain, settings)| {
            settings.buckets.iter().map(move |(name, bucket)| (domain, name, bucket))
        });
        all.filter(|(_, name, _)| **name != BucketName::page())
            .filter_map(|(domain, name, bucket)| Some((domain, name, bucket.declaration.as_ref()?)))
    }

    /// Reports the declared buckets that this server cannot make, since the registry has other servers for their paths.
    pub(super) fn check_locations(self) -> Vec<Problem> {
        let all = self.all();
        all.filter_map(|(domain, bucket, _)| {
            let BucketLocation::Servers { prefix } = self.settings.locate_bucket(domain, bucket) else {
                return None;
            };
            let message = format!(
                "[domains.{domain}.buckets.{bucket}]: requests for this bucket go to the servers of \
                 [registry.\"{prefix}\"]: declare the bucket in the configuration of these servers, not here"
            );
            Some(Problem { message, position: None })
        })
        .collect()
    }
}

/// Returns the declarations of a domain, and reports errors in them.
pub(super) fn merge_domain(
    domain: &DomainName,
    raw: &RawDomain,
    body_limit: ByteSize,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<BucketName, Declaration> {
    let mut all = BTreeMap::new();
    for (name, bucket) in &raw.buckets {
        let table = format!("[domains.{domain}.buckets.{name}]");
        match parse_declaration(name, bucket, &table, body_limit) {
            Ok(declaration) => all.extend(declaration.map(|declaration| (name.clone(), declaration))),
            Err((member, message)) => {
                let span = member.and_then(|member| span_of(bucket, member));
                problems.push(match span.or_else(|| first_span(bucket)) {
                    Some(span) => file.problem(span, message),
                    None => Problem { message, position: None },
                });
            }
        }
    }
    all
}

/// Returns the declaration in the table of a bucket. `None`: the table of the bucket `page`, without a type. An error
/// names the wrong member, if a single member is wrong.
fn parse_declaration(
    name: &BucketName,
    raw: &RawBucket,
    table: &str,
    ByteSize(body_limit): ByteSize,
) -> Result<Option<Declaration>, (Option<&'static str>, String)> {
    let is_page = *name == BucketName::page();
    if !is_page {
        check_new_bucket(name).map_err(|error| (None, format!("{table}: {error}")))?;
    }
    let Some(bucket_type) = raw.bucket_type.as_ref().map(|given| *given.get_ref()) else {
        let member = DEFINITION_MEMBERS.into_iter().find(|member| span_of(raw, member).is_some());
        return match member {
            Some(member) if is_page => {
                Err((Some(member), format!("{table}: {member} is not for the bucket page: remove {member}")))
            }
            None if is_page => Ok(None),
            _ => Err((
                member,
                format!(
                    "{table} has no type: add type = \"blob\", \"ordered-blob\", \"counter\" or \"revisioned\". The \
                     pages of a domain are in the bucket 'page', which needs no type"
                ),
            )),
        };
    };
    if is_page && bucket_type != BucketType::Revisioned {
        let message = format!(
            "{table}: the bucket page has the pages of the domain, so its type is \"revisioned\" and cannot be \
             \"{bucket_type}\": choose another name for this bucket"
        );
        return Err((Some("type"), message));
    }
    if is_page && raw.public.is_some() {
        return Err((
            Some("public"),
            format!(
                "{table}: public is not for the bucket page, since [access] names its readers: remove public"
            ),
        ));
    }
    if bucket_type != BucketType::Revisioned {
        let of_pages = [
            ("retention", raw.retention.is_some()),
            ("archive", raw.archive.is_some()),
            ("generator", raw.generator.is_some()),
        ];
        if let Some((member, _)) = of_pages.into_iter().find(|(_, is_given)| *is_given) {
            let message = format!(
                "{table}: {member} is for buckets of type revisioned, such as page, not for {bucket_type}: remove \
                 {member}"
            );
            return Err((Some(member), message));
        }
    }
    let ttl = raw.ttl.as_ref().map(|ttl| *ttl.get_ref());
    if let Some(Span(ttl)) = ttl
        && ttl.subsec_nanos() > 0
    {
        let message = format!("{table}: ttl is a whole number of seconds, such as \"1d\" or \"30s\"");
        return Err((Some("ttl"), message));
    }
    let declaration = Declaration {
        bucket_type,
        content_type: raw.content_type.as_ref().map(|text| text.get_ref().clone()),
        public: raw.public.as_ref().map(|public| *public.get_ref()),
        ttl,
        max_size: raw.max_size.as_ref().map(|size| *size.get_ref()),
    };
    declaration.definition().check(body_limit).map_err(|error| {
        let message = error.to_string();
        (
            DEFINITION_MEMBERS.into_iter().find(|member| message.starts_with(member)),
            format!("{table}: {message}"),
        )
    })?;
    Ok(Some(declaration))
}

/// The members of a definition, besides the type.
const DEFINITION_MEMBERS: [&str; 4] = ["content_type", "public", "ttl", "max_size"];

fn span_of(bucket: &RawBucket, member: &str) -> Option<Range<usize>> {
    match member {
        "type" => bucket.bucket_type.as_ref().map(Spanned::span),
        "content_type" => bucket.content_type.as_ref().map(Spanned::span),
        "public" => bucket.public.as_ref().map(Spanned::span),
        "ttl" => bucket.ttl.as_ref().map(Spanned::span),
        "max_size" => bucket.max_size.as_ref().map(Spanned::span),
        "retention" => bucket.retention.as_ref().map(Spanned::span),
        "archive" => bucket.archive.as_ref().map(Spanned::span),
        "generator" => bucket.generator.as_ref().map(Spanned::span),
        _ => None,
    }
}

/// Returns the span of the first member of a table, for an error about the whole table.
fn first_span(bucket: &RawBucket) -> Option<Range<usize>> {
    let members = ["type"].into_iter().chain(DEFINITION_MEMBERS).chain(["retention", "archive", "generator"]);
    members.into_iter().find_map(|member| span_of(bucket, member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::RawSettings;

    fn load(text: &str) -> Result<Settings, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.toml");
        std::fs::write(&path, text).unwrap();
        let place = format!("{}/", directory.path().display());
        Settings::load(RawSettings::default(), Some(&path))
            .map_err(|error| error.to_string().replace(&place, ""))
    }

    fn names(buckets: &[DeclaredBucket]) -> Vec<String> {
        buckets.iter().map(|bucket| format!("{}/{}", bucket.domain, bucket.bucket)).collect()
    }

    #[test]
    fn declared_buckets_are_read_printed_and_read_again() {
        let settings = load(
            "[domains.enwiki.buckets.thumbs]\ntype = 'blob'\ncontent_type = 'image/png'\npublic = true\n\
             ttl = '1d'\nmax_size = '1 MiB'\n[domains.enwiki.buckets.clicks]\ntype = 'counter'\n\
             [domains.enwiki.buckets.files]\ntype = 'ordered-blob'\n[domains.enwiki.buckets.drafts]\n\
             type = 'revisioned'\n[domains.enwiki.buckets.drafts.retention]\ngrace = '5h'\n\
             [domains.enwiki.buckets.page]\ntype = 'revisioned'\n",
        )
        .unwrap();
        let printed = toml::to_string(&settings).unwrap();
        assert_eq!(load(&printed).unwrap(), settings, "{printed}");
        let declared = settings.declared_buckets().of_main_store();
        let expected = ["enwiki/clicks", "enwiki/drafts", "enwiki/files", "enwiki/thumbs"];
        assert_eq!(names(&declared), expected);
        let thumbs = Definition {
            bucket_type: BucketType::Blob,
            content_type: Some("image/png".to_owned()),
            public: true,
            ttl: Some(86_400),
            max_size: Some(1 << 20),
        };
        assert_eq!(declared[3].definition, thumbs);
        assert_eq!(declared[0].definition, Definition::of(BucketType::Counter));
        assert_eq!(load("").unwrap().declared_buckets().of_main_store(), []);
    }

    #[test]
    fn wrong_declarations_are_refused_with_their_positions() {
        for (table, expected) in [
            ("page]\ntype = 'blob'", "r.toml:2:8: [domains.a.buckets.page]: the bucket page has the pages"),
            ("page]\nttl = '1d'", "2:7: [domains.a.buckets.page]: ttl is not for the bucket page"),
            (
                "page]\ntype = 'revisioned'\npublic = true",
                "3:10: [domains.a.buckets.page]: public is not for",
            ),
            ("page]\ntype = 'revisioned'\nttl = '1d'", "3:7: [domains.a.buckets.page]: ttl is for buckets"),
            ("maths]\nttl = '1d'", "2:7: [domains.a.buckets.maths] has no type: add type"),
            ("maths]", "[domains.a.buckets.maths] has no type"),
            ("maths.retention]\ngrace = '2h'", "1:1: [domains.a.buckets.maths] has no type"),
            ("maths]\ntype = 'blobb'", "2:8: 'blobb' is not a value of this setting; did you mean 'blob'?"),
            ("maths]\ntyp = 'blob'", "2:1: there is no setting 'typ'; did you mean 'type'?"),
            ("import]\ntype = 'blob'", "2:8: [domains.a.buckets.import]: 'import' is reserved"),
            ("Maths]\ntype = 'blob'", "1:20: "),
            ("maths]\ntype = 'counter'\nttl = '1d'", "3:7: [domains.a.buckets.maths]: ttl is for buckets of"),
            (
                "maths]\ntype = 'blob'\nttl = '1500ms'",
                "3:7: [domains.a.buckets.maths]: ttl is a whole number",
            ),
            (
                "maths]\ntype = 'blob'\nttl = '0s'",
                "3:7: [domains.a.buckets.maths]: ttl is a number of seconds",
            ),
            ("maths]\ntype = 'blob'\nmax_size = '1 GiB'", "3:12: [domains.a.buckets.maths]: max_size is"),
            (
                "maths]\ntype = 'blob'\ncontent_type = 'png'",
                "3:16: [domains.a.buckets.maths]: content_type: ",
            ),
            (
                "maths]\ntype = 'blob'\n[domains.a.buckets.maths.archive]\nafter = '1d'",
                "3:1: [domains.a.buckets.maths]: archive is for buckets of type revisioned",
            ),
        ] {
            let file = format!("[domains.a.buckets.{table}");
            let error = load(&file).expect_err(&file);
            assert!(error.contains(expected), "{file}\n{error}");
        }
    }

    #[test]
    fn declared_bucket_belongs_to_the_backend_of_its_paths() {
        let buckets = "[domains.enwiki.buckets.a]\ntype = 'blob'\n[domains.dewiki.buckets.a]\ntype = 'blob'\n\
                       [domains.frwiki.buckets.a]\ntype = 'blob'\n[registry.'/dewiki']\nstore = 'sqlite:./dewiki'\n\
                       [registry.'/frwiki/b']\nservers = ['http://127.0.0.1:1']\n";
        let settings = load(buckets).unwrap();
        assert_eq!(names(&settings.declared_buckets().of_main_store()), ["enwiki/a", "frwiki/a"]);
        let other = &settings.registry_stores()[0];
        assert_eq!(names(&settings.declared_buckets().of_store(other)), ["dewiki/a"]);
        let error = load(&format!("{buckets}[registry.'/frwiki']\nservers = ['http://127.0.0.1:1']\n"));
        let error = error.unwrap_err();
        let expected = "[domains.frwiki.buckets.a]: requests for this bucket go to the servers of \
                        [registry.\"/frwiki\"]: declare the bucket in the configuration of these servers, not here";
        assert_eq!(error, expected);
    }
}
