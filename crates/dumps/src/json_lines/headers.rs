//! Which headers may come with a property: the same as over HTTP, since they go out the same way.

use std::collections::BTreeMap;

/// Beginnings of `x-` headers that steer the servers in front of us.
const STEERING: [&str; 3] = ["x-accel-", "x-sendfile", "x-lighttpd-"];

/// `x-` headers that are ours.
const OURS: [&str; 4] = ["x-rev", "x-parent", "x-request-id", "x-content-type-options"];

/// The most bytes of all headers of one property.
const MAX_BYTES: usize = 8 << 10;

/// What is wrong with the headers of a property, if anything is.
pub(super) fn fault(content_type: Option<&str>, other: &BTreeMap<String, String>) -> Option<String> {
    if content_type.is_some_and(|value| value.is_empty() || !is_visible(value)) {
        return Some("its content_type is not visible ASCII".to_owned());
    }
    let size = |(name, value): (&String, &String)| name.len() + value.len();
    if content_type.map_or(0, str::len) + other.iter().map(size).sum::<usize>() > MAX_BYTES {
        return Some(format!("its headers have more than {MAX_BYTES} bytes"));
    }
    let (name, _) = other.iter().find(|(name, value)| !is_kept(name) || !is_visible(value))?;
    Some(format!(
        "its header {name:?} cannot be kept: `content-language` and `x-...` in visible ASCII can, except those that steer servers or are ours"
    ))
}

fn is_visible(value: &str) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn is_kept(name: &str) -> bool {
    let is_name =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte));
    let steers = STEERING.iter().any(|beginning| name.starts_with(beginning));
    is_name && (name == "content-language" || (name.starts_with("x-") && !steers && !OURS.contains(&name)))
}
