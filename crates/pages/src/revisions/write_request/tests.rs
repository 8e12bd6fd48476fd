use rashomon_clock::Timestamp;

use super::*;
use crate::{
    Sha1,
    content::Stored,
    rows::{Properties, index_size},
};

fn name(text: &str) -> PropertyName {
    PropertyName::new(text).unwrap()
}

fn info(content_type: &str, headers: &[(&str, &str)], body: &str) -> PropertyInfo {
    let other = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    PropertyInfo {
        headers: Headers { content_type: content_type.to_owned(), other },
        size: body.len() as u64,
        sha1: Sha1::of(body.as_bytes()),
        rewritten_at: None,
    }
}

fn properties_of(properties: &[(&str, PropertyInfo)]) -> Properties {
    properties.iter().map(|(property, info)| (name(property), info.clone())).collect()
}

/// Requests that are all different.
fn requests() -> Vec<Properties> {
    let plain = info("t", &[], "body");
    vec![
        properties_of(&[]),
        properties_of(&[("a", plain.clone())]),
        properties_of(&[("b", plain.clone())]),
        properties_of(&[("a", plain.clone()), ("b", plain.clone())]),
        properties_of(&[("a", info("t", &[], "ydob"))]),
        properties_of(&[("a", info("t", &[], ""))]),
        properties_of(&[("a", info("u", &[], "body"))]),
        properties_of(&[("a", info("", &[("t", "")], "body"))]),
        properties_of(&[("a", info("t", &[("x", "yz")], "body"))]),
        properties_of(&[("a", info("t", &[("xy", "z")], "body"))]),
        properties_of(&[("a", info("t", &[("x", "y"), ("z", "")], "body"))]),
        properties_of(&[("at", info("", &[], "body"))]),
        properties_of(&[("a", info("t", &[], "other")), ("b", plain.clone())]),
        properties_of(&[("a", plain), ("b", info("t", &[], "other"))]),
    ]
}

#[test]
fn digest_differs_for_different_requests() {
    let digests: std::collections::BTreeSet<_> =
        requests().iter().map(|properties| digest(properties.iter())).collect();
    assert_eq!(digests.len(), requests().len());
    let again = requests().iter().map(|properties| digest(properties.iter())).collect();
    assert_eq!(digests, again, "the same request has the same digest");
}

/// Every store contains digests. If their computation changed, every repeated request would be a conflict.
#[test]
fn digest_never_changes() {
    let properties = properties_of(&[("html", info("text/html", &[("x-a", "b")], "body"))]);
    let hex: String = digest(properties.iter()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "9c2d01fb89406bc83be95d80a63f10f7");
}

#[test]
fn same_content_compares_names_headers_and_bytes() {
    let requests = requests();
    for (index, one) in requests.iter().enumerate() {
        for (other_index, other) in requests.iter().enumerate() {
            assert_eq!(same_content(one, other), index == other_index, "{one:?} {other:?}");
        }
    }
    let rewritten = PropertyInfo { rewritten_at: Some(Timestamp::EPOCH), ..info("t", &[], "body") };
    assert!(
        same_content(&properties_of(&[("a", rewritten)]), &requests[1]),
        "replacement times do not matter"
    );
}

#[test]
fn added_to_revision_accepts_a_stored_property_only_with_the_same_bytes() {
    let stored = properties_of(&[("wikitext", info("t", &[], "text"))]);
    let slot = info("t", &[], "slot");
    for (input, expected) in [
        (properties_of(&[]), Some(properties_of(&[]))),
        (properties_of(&[("wikitext", info("t", &[], "text"))]), Some(properties_of(&[]))),
        (properties_of(&[("wikitext", info("other", &[], "text"))]), Some(properties_of(&[]))),
        (properties_of(&[("slot-a", slot.clone())]), Some(properties_of(&[("slot-a", slot.clone())]))),
        (properties_of(&[("wikitext", info("t", &[], "other"))]), None),
        (properties_of(&[("slot-a", slot), ("wikitext", info("t", &[], "other"))]), None),
    ] {
        assert_eq!(added_to_revision(&stored, input).ok(), expected);
    }
}

#[test]
fn by_versions_uses_the_definitions() {
    let definitions = Definitions::default();
    let body =
        |text: &str| BodyRow { info: info("t", &[], text), stored: Stored::Identity(text.to_owned().into()) };
    let names = ["html", "slot-a", "wikitext", "unknown"];
    let bodies = names.iter().map(|property| (name(property), body(property))).collect();
    let (of_revision, of_render) = by_versions(&bodies, &definitions);
    assert!(of_revision.keys().map(PropertyName::as_str).eq(["slot-a", "wikitext"]));
    assert!(of_render.keys().map(PropertyName::as_str).eq(["html", "unknown"]));
}

#[test]
fn check_index_enforces_the_limit() {
    let properties = |bytes: usize| properties_of(&[("a", info(&"x".repeat(bytes), &[], ""))]);
    let none = Properties::new();
    let most = MAX_INDEX_BYTES - index_size(&properties(0)) - index_size(&none);
    assert_eq!(check_index(&properties(most), &none).unwrap(), MAX_INDEX_BYTES);
    assert_eq!(check_index(&none, &properties(most)).unwrap(), MAX_INDEX_BYTES);
    assert!(check_index(&properties(most + 1), &none).is_err());
    assert!(check_index(&none, &properties(most + 1)).is_err());
    assert!(check_index(&properties(most), &properties(0)).is_err(), "both indexes count");
}
