use rashomon_clock::Timestamp;
use rashomon_pages::{ExportRecord, Namespace, Revision};

use super::*;

fn record() -> RevisionRecord {
    RevisionRecord {
        rev: Revision::new(5).unwrap(),
        parent: None,
        timestamp: Timestamp::from_micros(1_380_127_389_274_000),
        user: None,
        comment: None,
        minor: false,
        export: ExportRecord::default(),
        erased: None,
    }
}

fn text(bytes: &[u8]) -> WrittenText<'_> {
    WrittenText { bytes, sha1: Sha1::of(bytes), rewritten: false }
}

fn write(revision: &WrittenRevision<'_>) -> (Outcome, String) {
    let mut writer = XmlWriter { out: Vec::new(), buffer: Vec::new() };
    let outcome = writer.revision(revision).unwrap();
    (outcome, String::from_utf8(writer.out).unwrap())
}

fn of_main(record: &RevisionRecord, slot: Option<&SlotRecord>, bytes: Option<&[u8]>) -> (Outcome, String) {
    let main = WrittenSlot { record: slot, content_type: None, text: bytes.map(text) };
    write(&WrittenRevision { record, main, slots: Vec::new() })
}

#[test]
fn revision_with_little_metadata_is_written_with_computed_values() {
    let (outcome, xml) = of_main(&record(), None, Some(b"a < b\r\n"));
    assert_eq!(outcome, Outcome::Written);
    let expected = "    <revision>
      <id>5</id>
      <timestamp>2013-09-25T16:43:09.274Z</timestamp>
      <contributor />
      <origin>5</origin>
      <model>wikitext</model>
      <format>text/x-wiki</format>
      <text bytes=\"7\" sha1=\"o7k2k6e6m5kkfawoh56eadcgi8w2d9q\" xml:space=\"preserve\">a &lt; b&#13;
</text>
      <sha1>o7k2k6e6m5kkfawoh56eadcgi8w2d9q</sha1>
    </revision>
";
    let sha1 = Sha1::of(b"a < b\r\n").to_base36();
    assert_eq!(xml, expected.replace("o7k2k6e6m5kkfawoh56eadcgi8w2d9q", &sha1));
}

#[test]
fn missing_text_is_written_as_missing() {
    let stub = SlotRecord { id: Some("7".into()), bytes: Some(3), ..SlotRecord::default() };
    let (outcome, xml) = of_main(&record(), Some(&stub), None);
    assert_eq!(outcome, Outcome::Written);
    assert!(xml.contains("<text bytes=\"3\" id=\"7\" />"), "{xml}");
    assert!(xml.contains("<sha1 />"), "{xml}");

    let deleted = SlotRecord { deleted: true, ..SlotRecord::default() };
    let (outcome, xml) = of_main(&record(), Some(&deleted), None);
    assert_eq!(outcome, Outcome::Written);
    assert!(xml.contains("<text deleted=\"deleted\" />"), "{xml}");

    let lost = |outcome| matches!(outcome, Outcome::LeftOut(Loss::NoText { .. }));
    assert!(lost(of_main(&record(), None, None).0));
    assert!(lost(of_main(&record(), Some(&SlotRecord { bytes: Some(0), ..SlotRecord::default() }), None).0));
    // A reader would take an empty text with `deleted` as missing.
    assert!(lost(of_main(&record(), Some(&deleted), Some(b"")).0));
    assert_eq!(of_main(&record(), Some(&deleted), Some(b"a")).0, Outcome::Written);
}

#[test]
fn replaced_text_has_its_own_size_and_sha1() {
    let mut record = record();
    record.export.sha1 = Some("recorded".into());
    let slot = SlotRecord { bytes: Some(99), sha1: Some("recorded".into()), ..SlotRecord::default() };
    let (_, xml) = of_main(&record, Some(&slot), Some(b"a"));
    assert!(xml.contains("bytes=\"99\" sha1=\"recorded\"") && xml.contains("<sha1>recorded</sha1>"), "{xml}");
    let text = WrittenText { rewritten: true, ..text(b"a") };
    let main = WrittenSlot { record: Some(&slot), content_type: None, text: Some(text) };
    let (_, xml) = write(&WrittenRevision { record: &record, main, slots: Vec::new() });
    assert!(xml.contains("bytes=\"1\"") && !xml.contains("recorded"), "{xml}");
}

#[test]
fn the_sha1_of_several_slots_is_that_of_mediawiki() {
    let slot = |bytes| WrittenSlot { record: None, content_type: None, text: Some(text(bytes)) };
    let record = record();
    let slots = vec![("aux", slot(b"aux")), ("zoo", slot(b"zoo"))];
    let (_, xml) = write(&WrittenRevision { record: &record, main: slot(b"main"), slots });
    let [aux, main, zoo] = [&b"aux"[..], b"main", b"zoo"].map(|bytes| Sha1::of(bytes).to_base36());
    let two = Sha1::of(format!("{aux}{main}").as_bytes()).to_base36();
    let three = Sha1::of(format!("{two}{zoo}").as_bytes()).to_base36();
    assert!(xml.contains(&format!("<sha1>{three}</sha1>")), "{xml}");
}

#[test]
fn revision_with_a_field_too_long_to_be_read_back_is_left_out() {
    let mut long = record();
    long.comment = Some("x".repeat(MAX_FIELD_BYTES + 1));
    let (outcome, xml) = of_main(&long, None, Some(b"a"));
    assert!(matches!(outcome, Outcome::LeftOut(Loss::TooLong { .. })), "{outcome:?}");
    assert_eq!(xml, "");
    let slot = SlotRecord { location: Some("x".repeat(MAX_ATTRIBUTE_BYTES + 1)), ..SlotRecord::default() };
    let (outcome, _) = of_main(&record(), Some(&slot), Some(b"a"));
    assert!(matches!(outcome, Outcome::LeftOut(Loss::TooLong { .. })), "{outcome:?}");
}

#[test]
fn invalid_parts_of_the_site_are_left_out() {
    let site = SiteInfo {
        name: Some("\u{1}".into()),
        database: Some("a&b".into()),
        base: None,
        generator: None,
        case: Some("other".into()),
        namespaces: vec![
            Namespace { key: 0, case: Some("other".into()), name: String::new() },
            Namespace { key: 1, case: Some("first-letter".into()), name: "Talk".into() },
        ],
        language: Some("de\"x".into()),
        as_of: None,
    };
    let xml = String::from_utf8(XmlWriter::new(Vec::new(), Some(&site)).unwrap().finish().unwrap()).unwrap();
    let (head, rest) = xml.split_once('\n').unwrap();
    assert!(head.ends_with(" version=\"0.11\" xml:lang=\"de&quot;x\">"), "{head}");
    let expected = "  <siteinfo>
    <dbname>a&amp;b</dbname>
    <namespaces>
      <namespace key=\"0\" />
      <namespace key=\"1\" case=\"first-letter\">Talk</namespace>
    </namespaces>
  </siteinfo>
</mediawiki>
";
    assert_eq!(rest, expected);
}
