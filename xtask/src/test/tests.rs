use super::*;

#[test]
fn columns_of_the_table_are_aligned_for_names_of_every_length() {
    let remark = || "remark".to_owned();
    let table = [
        ("fmt", Outcome::Passed(remark()), Duration::from_secs(1)),
        ("schemathesis", Outcome::Failed(remark()), Duration::from_secs(1_000)),
    ];
    let rows = table_rows(&table);
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!(row.find("remark"), rows[0].find("remark"), "{rows:#?}");
    }
    let result = rows[0].find("result");
    assert_eq!([rows[1].find("passed"), rows[2].find("FAILED")], [result, result], "{rows:#?}");
}
