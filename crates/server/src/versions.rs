//! Spec versions of a property: returns the version that the client accepts (`Accept`). If the stored version is
//! another one, transformers make the accepted version.

use axum::response::Response;
use http::HeaderMap;
use rashomon_pages::{Body, InlineBody, Property, PropertyName, Title};
use rashomon_protocol::spec_version::{self, Choice, Profile};
use rashomon_upstream::transformer::TransformError;

use crate::{
    Api,
    problem::{Kind, Problem, Result},
    representation::{Address, Representation},
};

/// The reason why an accepted version could not be made.
enum Failure {
    /// The stored version cannot be read.
    Read(Problem),
    /// The stored version cannot be transformed.
    Transform(TransformError),
}

impl From<TransformError> for Failure {
    fn from(error: TransformError) -> Self {
        Self::Transform(error)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Read(problem) => problem,
            Failure::Transform(error) => of_transformer(&error),
        }
    }
}

/// The problem for an error of the transformers. Readers do not see the reason, which may name hosts.
fn of_transformer(error: &TransformError) -> Problem {
    let problem = match error {
        TransformError::Failed { step, .. } => Problem::new(
            Kind::TransformerFailed,
            format!("the transformer from {step} failed: try again, or accept the stored version"),
        ),
        TransformError::TimedOut { step, .. } => Problem::new(
            Kind::TransformerTimeout,
            format!(
                "the transformer from {step} did not answer in time: try again, or accept the stored version"
            ),
        ),
        TransformError::Busy => Problem::busy("too many transformations are in progress; try again"),
        TransformError::TooLarge { .. } => {
            Problem::new(Kind::TransformerFailed, format!("{error}: accept the stored version"))
        }
        other => Problem::new(Kind::Internal, other.to_string()),
    };
    problem.with_cause(error).varying_by_accept()
}

/// A stored property that a client reads in the version that the client accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VersionedRead<'a> {
    pub(crate) api: &'a Api,
    pub(crate) title: &'a Title,
    pub(crate) name: &'a PropertyName,
    pub(crate) property: &'a Property,
    pub(crate) address: Address,
}

impl VersionedRead<'_> {
    /// Answers with the version that the request accepts. `stored` answers with the stored version.
    pub(crate) async fn answer(
        self,
        request: &HeaderMap,
        stored: impl FnOnce() -> Result<Response>,
    ) -> Result<Response> {
        let can_make = |wanted: &Profile| {
            let transformers = self.api.transformers.as_ref();
            transformers
                .is_some_and(|all| self.profile().is_some_and(|profile| all.can_make(&profile, wanted)))
        };
        match spec_version::choose(request, self.content_type(), can_make) {
            Choice::Stored => stored(),
            Choice::NotAcceptable { expected, received } => Err(Problem::not_acceptable(expected, received)),
            // Boxed, so that the future of a read of the stored version stays small.
            Choice::Other(wanted) => Box::pin(self.transformed(request, &wanted)).await,
        }
    }

    /// The headers of the stored version.
    pub(crate) fn representation(self) -> Representation {
        // A request whose `Accept` names another profile gets another version, or 406.
        let has_versions = Profile::is_in(self.content_type());
        let rule = self.api.stored_headers();
        Representation::new(self.title, self.name, self.property, self.address, rule, has_versions)
    }

    async fn transformed(self, request: &HeaderMap, wanted: &Profile) -> Result<Response> {
        let Self { api, title, name, property, address } = self;
        let Some(transformers) = &api.transformers else {
            return Err(Problem::not_acceptable(wanted.to_string(), self.content_type().to_owned()));
        };
        let read = async {
            let body = api.read(property.body.clone().whole()).await.map_err(Failure::Read)?;
            body.map_err(|error| Failure::Read(Problem::of_bucket(error)))
        };
        let size = property.info.size;
        let document = transformers.transform(self.content_type(), size, wanted, read).await?;
        let rule = api.stored_headers();
        let representation = Representation::of_version(title, name, property, address, rule, &document);
        representation.answer(request, &Body::Inline(InlineBody::new(document.body)))
    }

    fn content_type(&self) -> &str {
        &self.property.info.headers.content_type
    }

    fn profile(&self) -> Option<Profile> {
        Profile::of_content_type(self.content_type())
    }
}
