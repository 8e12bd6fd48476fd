//! Compares the table of operations with the code: with the routes, and with the parser of queries.

use std::collections::BTreeSet;

use axum::routing::MethodRouter;

use super::{
    operation::{Verb, names_in},
    operations::{PAGE, operations},
    parameters,
};
use crate::extract::{Resource, Selector};

/// Routes for incomplete requests, such as a missing title or slash, and for files that the HTML pages load.
const UNDOCUMENTED_ROUTES: [&str; 5] = [
    "/v1/{domain}/page/",
    "/pages/{domain}",
    "/buckets/{domain}/{bucket}",
    "/assets/style.css",
    "/assets/icon.svg",
];

/// The query of a resource that does not exist: the parser refuses a time without a property.
const UNPARSABLE: &str = "(the parser refuses a time without a property)";

#[test]
fn every_route_is_described_and_nothing_else() {
    let routes: BTreeSet<String> = (crate::routes(MethodRouter::new()).iter())
        .map(|(path, _)| path.replace("{*", "{"))
        .filter(|path| !UNDOCUMENTED_ROUTES.contains(&path.as_str()))
        .collect();
    let described: BTreeSet<String> = operations().map(|operation| operation.path.to_owned()).collect();
    assert_eq!(described, routes);
}

/// The query of a resource in the table. A new kind of resource does not compile before it has an entry here.
fn query_of(resource: &Resource) -> Option<&'static str> {
    let selected = |latest, rev, tid, time: &'static str, selector: &Selector| match selector {
        Selector::Latest => latest,
        Selector::Revision(_) => rev,
        Selector::Render(_) => tid,
        Selector::Time(_) => time,
    };
    let query = match resource {
        Resource::Page => return None,
        Resource::Revisions => "rev",
        Resource::RevisionList(_) => "rev/",
        Resource::Bare(selector) => selected("rev/latest", "rev/{rev}", "rev/{tid}", UNPARSABLE, selector),
        Resource::Document(selector) => {
            selected("rev/latest/", "rev/{rev}/", "rev/{tid}/", UNPARSABLE, selector)
        }
        Resource::Property(selector, _) => selected(
            "rev/latest/{property}",
            "rev/{rev}/{property}",
            "rev/{tid}/{property}",
            "rev/{time}/{property}",
            selector,
        ),
        Resource::RenderList(..) => "rev/{rev}/",
        Resource::Timegate(_) => "timegate/{property}",
        Resource::Timemap(..) => "timemap/{property}",
    };
    Some(query)
}

#[test]
fn every_resource_is_described_with_its_methods() {
    let examples = [
        "",
        "rev",
        "rev/",
        "rev/latest",
        "rev/7",
        &format!("rev/{}", parameters::TID),
        "rev/latest/",
        "rev/7/",
        &format!("rev/{}/", parameters::TID),
        "rev/latest/html",
        "rev/7/html",
        &format!("rev/{}/html", parameters::TID),
        "rev/2013-02-23T22:23:24Z/html",
        "timegate/html",
        "timemap/html",
    ];
    let mut known = BTreeSet::new();
    for example in examples {
        let resource = Resource::parse(Some(example)).unwrap();
        let query = query_of(&resource);
        let of_page = |verb| {
            operations()
                .any(|operation| operation.path == PAGE && operation.query == query && operation.verb == verb)
        };
        let methods = resource.methods();
        for verb in [Verb::Get, Verb::Post, Verb::Put] {
            assert_eq!(of_page(verb), methods.contains(verb.name()), "{} of {query:?}", verb.name());
        }
        known.insert(query);
    }
    let described: BTreeSet<_> =
        operations().filter(|operation| operation.path == PAGE).map(|operation| operation.query).collect();
    assert_eq!(described, known);
}

#[test]
fn every_name_in_a_url_has_a_meaning_and_an_example_that_fits() {
    for operation in operations() {
        let mut url = operation.url_template();
        for name in names_in(&url.clone()) {
            url = url.replace(&format!("{{{name}}}"), parameters::url_variable(name).example);
        }
        if let Some(query) = operation.query.filter(|_| operation.path == PAGE) {
            let resource = Resource::parse(url.split_once('?').map(|(_, query)| query)).unwrap();
            assert_eq!(query_of(&resource), Some(query), "{url}");
        }
    }
}

#[test]
fn names_of_operations_are_unique() {
    let names: BTreeSet<_> = operations().map(|operation| operation.id).collect();
    assert_eq!(names.len(), operations().count());
}
