//! Collects the schemas of the documents in answers. Each schema is derived from the type that writes the document.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use crate::{
    handlers::{batch, tokens},
    json, problem,
};

/// The schemas, by name.
pub(crate) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = Vec::new();
    add::<json::RenderJson<'_>>(&mut schemas);
    add::<json::RevisionJson<'_>>(&mut schemas);
    add::<json::RevisionListJson<'_>>(&mut schemas);
    add::<json::WrittenJson<'_>>(&mut schemas);
    add::<problem::Document<'_>>(&mut schemas);
    add::<json::BucketJson<'_>>(&mut schemas);
    add::<json::BucketListJson>(&mut schemas);
    add::<json::EntryListJson>(&mut schemas);
    add::<json::CounterJson>(&mut schemas);
    add::<tokens::NewTokenJson<'_>>(&mut schemas);
    add::<tokens::TokenListJson>(&mut schemas);
    add::<batch::AnswerJson<'_>>(&mut schemas);
    schemas
}

/// Adds a schema, and the schemas that it refers to.
fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), <T as PartialSchema>::schema()));
    T::schemas(schemas);
}
