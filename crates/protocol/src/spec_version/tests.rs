use super::*;

const HTML: &str = "https://www.mediawiki.org/wiki/Specs/HTML";

fn profile(version: &str) -> Profile {
    Profile::parse(&format!("{HTML}/{version}")).unwrap()
}

fn html(version: &str) -> String {
    format!("text/html; charset=utf-8; profile=\"{HTML}/{version}\"")
}

/// Chooses among the stored version 2.8.0 and the versions `made`, which can be made from it.
fn choice(accept: &[&str], made: &[&str]) -> Choice {
    choice_of(&html("2.8.0"), accept, made)
}

fn choice_of(content_type: &str, accept: &[&str], made: &[&str]) -> Choice {
    let mut headers = HeaderMap::new();
    for value in accept {
        headers.append(header::ACCEPT, value.parse().unwrap());
    }
    choose(&headers, content_type, |wanted| made.iter().any(|made| profile(made).satisfies(wanted)))
}

fn refused(wanted: &str) -> Choice {
    Choice::NotAcceptable { expected: format!("{HTML}/{wanted}"), received: format!("{HTML}/2.8.0") }
}

#[test]
fn version_satisfies_lower_minor_versions_of_its_major_version() {
    for (stored, wanted, expected) in [
        ("2.8.0", "2.8.0", true),
        ("2.8.0", "2.8.7", true),
        ("2.8.9", "2.8.1", true),
        ("2.8.0", "2.7.0", true),
        ("2.10.0", "2.9.0", true),
        ("2.8.0", "2.0.0", true),
        ("2.8.0", "2.9.0", false),
        ("2.9.0", "2.10.0", false),
        ("2.8.0", "1.8.0", false),
        ("2.8.0", "3.0.0", false),
        ("2.8", "2.8.1", true),
    ] {
        assert_eq!(profile(stored).satisfies(&profile(wanted)), expected, "{stored} {wanted}");
    }
    assert!(!profile("2.8.0").satisfies(&Profile::parse("https://example.org/2.8.0").unwrap()));
}

#[test]
fn profile_ends_with_a_version() {
    let parsed = Profile::parse("urn:rashomon:render/1.0").unwrap();
    assert_eq!((parsed.spec(), parsed.version()), ("urn:rashomon:render/", "1.0"));
    for text in [
        "",
        "2.8.0",
        "a/",
        "a/2",
        "a/2.8.0.0",
        "a/2.8.x",
        "a/2.-8",
        "a/02.8",
        "a/2.8.0-beta",
        "a/2..0",
        "a/+2.8",
        "a/4294967296.0",
    ] {
        assert_eq!(Profile::parse(text), None, "{text}");
    }
}

#[test]
fn accept_without_a_profile_gets_the_stored_version() {
    for accept in
        [&[][..], &[""], &["*/*"], &["text/html"], &["image/png"], &["text/html;q=0"], &["nonsense"]]
    {
        assert_eq!(choice(accept, &["1.0.0"]), Choice::Stored, "{accept:?}");
    }
}

#[test]
fn stored_version_is_returned_if_it_satisfies_the_request() {
    for version in ["2.8.0", "2.8.3", "2.0.0"] {
        assert_eq!(choice(&[&html(version)], &[]), Choice::Stored, "{version}");
    }
    let spellings = [
        format!("Text/HTML;PROFILE=\"{HTML}/2.7.0\""),
        format!("text/*; profile=\"{HTML}/2.7.0\""),
        format!("*/*;q=0.1;profile=\"{HTML}/2.7.0\""),
        format!("text/html; charset=latin1; profile=\"{HTML}/2.7.0\""),
    ];
    for accept in spellings {
        assert_eq!(choice(&[&accept], &[]), Choice::Stored, "{accept}");
    }
}

#[test]
fn request_for_another_version_is_refused() {
    for version in ["2.9.0", "1.0.0", "3.0.0", "latest", "2", "2.8.x", "999999999999.0.0"] {
        assert_eq!(choice(&[&html(version)], &[]), refused(version), "{version}");
    }
    let foreign = "text/html; profile=\"https://example.org/2.8.0\"";
    assert_eq!(
        choice(&[foreign], &[]),
        Choice::NotAcceptable {
            expected: "https://example.org/2.8.0".to_owned(),
            received: format!("{HTML}/2.8.0")
        }
    );
}

/// The request is refused only if every member that matches the stored type names a profile that cannot be returned.
#[test]
fn stored_version_is_returned_if_another_member_accepts_it() {
    for other in ["text/html", "text/html;q=0.1", "*/*;q=0.001", "text/*"] {
        assert_eq!(choice(&[&format!("{}, {other}", html("3.0.0"))], &[]), Choice::Stored, "{other}");
        assert_eq!(choice(&[&html("3.0.0"), other], &[]), Choice::Stored, "{other}");
    }
    // These members do not match the stored type, are malformed, or have the weight 0.
    for other in ["image/png", "text/html;q=0", "text/html;q=7", "text", "*/html", ";;"] {
        assert_eq!(choice(&[&format!("{}, {other}", html("3.0.0"))], &[]), refused("3.0.0"), "{other}");
    }
}

#[test]
fn accept_of_other_types_is_treated_as_absent() {
    let accept = format!("application/json; profile=\"{HTML}/3.0.0\", image/*; profile=\"{HTML}/1.0.0\"");
    assert_eq!(choice(&[&accept], &["1.0.0"]), Choice::Stored);
}

#[test]
fn stored_body_without_a_profile_satisfies_no_profile() {
    for content_type in ["text/html", "text/html; charset=utf-8"] {
        assert_eq!(
            choice_of(content_type, &[&html("2.8.0")], &[]),
            Choice::NotAcceptable { expected: format!("{HTML}/2.8.0"), received: content_type.to_owned() }
        );
        assert_eq!(choice_of(content_type, &["text/html"], &[]), Choice::Stored);
    }
    assert_eq!(choice_of("not a type", &[&html("2.8.0")], &[]), Choice::Stored);
}

#[test]
fn profile_without_a_version_satisfies_itself() {
    let content_type = "text/html; profile=\"urn:x\"";
    assert_eq!(choice_of(content_type, &[content_type], &[]), Choice::Stored);
}

#[test]
fn version_that_can_be_made_is_chosen_by_weight() {
    let made = &["1.4.0", "2.3.0"];
    let other = |version| Choice::Other(profile(version));
    assert_eq!(choice(&[&html("1.2.0")], made), other("1.2.0"));
    assert_eq!(choice(&[&html("1.5.0")], made), refused("1.5.0"));
    assert_eq!(choice(&[&format!("{};q=0.5, text/html;q=0.4", html("1.2.0"))], made), other("1.2.0"));
    assert_eq!(choice(&[&format!("{};q=0.4, text/html;q=0.5", html("1.2.0"))], made), Choice::Stored);
    // Of equal weights, the stored version is returned.
    assert_eq!(choice(&[&format!("{}, {}", html("1.2.0"), html("2.8.0"))], made), Choice::Stored);
    assert_eq!(choice(&[&format!("{}, {}", html("1.4.0"), html("1.2.0"))], made), other("1.4.0"));
    assert_eq!(choice(&[&format!("{}, {};q=0.1", html("3.0.0"), html("1.2.0"))], made), other("1.2.0"));
    // The stored version satisfies the request, so 2.3 is not made.
    assert_eq!(choice(&[&html("2.3.0")], made), Choice::Stored);
}

#[test]
fn most_preferred_profile_is_named_in_a_refusal() {
    let accept = format!("{};q=0.3, {};q=0.7, {};q=0.7", html("5.0.0"), html("4.0.0"), html("3.0.0"));
    assert_eq!(choice(&[&accept], &[]), refused("4.0.0"));
}

#[test]
fn long_accept_header_is_read_to_its_end() {
    let thousand: Vec<_> = (0..1000).map(|number| html(&format!("{}.0.0", number + 3))).collect();
    assert_eq!(choice(&[&thousand.join(", ")], &[]), refused("3.0.0"));
    assert_eq!(choice(&[&format!("{}, text/html", thousand.join(", "))], &[]), Choice::Stored);
    let commas = ",".repeat(64 * 1024 - 100);
    assert_eq!(choice(&[&format!("{commas}{}", html("3.0.0"))], &[]), refused("3.0.0"));
}
