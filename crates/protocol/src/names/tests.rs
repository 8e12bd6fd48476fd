use super::*;

#[test]
fn domain_has_only_characters_that_are_safe_in_a_url() {
    for good in ["enwiki", "en.wikipedia.org", "zh_min_nanwiki", "0", "a-", "a.", "a_", &"x".repeat(128)] {
        assert_eq!(DomainName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "Enwiki", "-a", ".a", "_a", "a/b", "é", "a b", "a\n", &"x".repeat(129)] {
        assert!(DomainName::new(bad).is_err(), "{bad}");
    }
    for reserved in ["batch", "tokens", "changes", "admin"] {
        assert!(DomainName::new(reserved).unwrap_err().0.contains("reserved"), "{reserved}");
    }
    assert!(DomainName::new("batch2").is_ok());
}

#[test]
fn buckets_and_properties_begin_with_a_letter() {
    for good in ["a", "page", "math-png", "a0", &"x".repeat(64)] {
        assert_eq!(BucketName::new(good).unwrap().as_str(), good);
        assert_eq!(PropertyName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "0a", "-a", "_rev", "A", "a.b", "a b", "ä", &"x".repeat(65)] {
        assert!(BucketName::new(bad).is_err(), "{bad}");
        assert!(PropertyName::new(bad).is_err(), "{bad}");
    }
    assert!(BucketName::new("a_b").is_err());
    assert_ne!(PropertyName::new("data-parsoid").unwrap(), PropertyName::new("data_parsoid").unwrap());
}

#[test]
fn bucket_with_an_id_has_another_key_and_the_same_name() {
    let (docs, id) = (BucketName::new("docs").unwrap(), 0xab_u128.to_be_bytes());
    let (one, other) = (docs.with_id(id), docs.with_id([1; 16]));
    assert_eq!(one.as_key(), "docs~000000000000000000000000000000ab");
    assert_eq!(BucketName::from_key(one.as_key()), Some(one.clone()));
    assert_eq!(BucketName::from_key("docs"), Some(docs.clone()));
    assert!(one != other && one != docs);
    assert_eq!(
        (one.as_str(), one.to_string(), String::from(one.clone())),
        ("docs", "docs".into(), "docs".into())
    );
    assert_eq!((one.without_id(), docs.without_id(), one.with_id([1; 16])), (docs.clone(), docs, other));
    for bad in [
        "",
        "~",
        "docs~",
        "docs~ab",
        "docs~000000000000000000000000000000AB",
        "Docs~000000000000000000000000000000ab",
    ] {
        assert_eq!(BucketName::from_key(bad), None, "{bad}");
    }
    // No client can name a bucket by its key.
    assert!(BucketName::new(one.as_key()).is_err());
}

#[test]
fn title_has_no_control_characters_and_no_dot_segments() {
    for good in ["A", "a/b", "/", "//", "...", "..a", "a./b", "?", "日本語", "\u{a0}", &"x".repeat(1024)] {
        assert_eq!(Title::new(good).unwrap().as_str(), good, "{good:?}");
    }
    let long = "é".repeat(513);
    for bad in
        ["", ".", "..", "a/..", "../a", "a/../b", "a/.", "./a", "a\0", "a\n", "\u{7f}", "\u{85}", &long]
    {
        assert!(Title::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn spaces_and_underscores_are_one_letter_in_titles() {
    let title = Title::new("Main Page_1 x").unwrap();
    assert_eq!(title.as_str(), "Main_Page_1_x");
    assert_eq!(title, Title::new("Main_Page_1_x").unwrap());
    assert_eq!(title.to_text(), "Main Page 1 x");
}

#[test]
fn revisions_are_positive_and_written_in_one_way() {
    for (text, number) in [("1", 1), ("12345", 12345), ("9223372036854775807", i64::MAX)] {
        assert_eq!(text.parse::<Revision>().unwrap().get(), number);
        assert_eq!(Revision::new(number).unwrap().to_string(), text);
    }
    for bad in ["", "0", "-1", "+1", "01", "1 ", " 1", "1.0", "1e3", "٣", "9223372036854775808"] {
        assert!(bad.parse::<Revision>().is_err(), "{bad:?}");
    }
    assert_eq!((Revision::new(0), Revision::new(-1)), (None, None));
}

#[test]
fn names_in_json_are_checked_as_well() {
    assert!(serde_json::from_str::<Title>("\"a/../b\"").is_err());
    assert!(serde_json::from_str::<PropertyName>("\"_rev\"").is_err());
    assert!(serde_json::from_str::<DomainName>("\"batch\"").is_err());
    assert!(serde_json::from_str::<Revision>("0").is_err());
    assert_eq!(serde_json::to_string(&Title::new("a b").unwrap()).unwrap(), "\"a_b\"");
}
