//! `rashomon import`: stored and refused revisions, and the reports about them.

use std::{fs, io::Write as _, process::Stdio};

use crate::{
    home::Home,
    process::{RunningProcess, run, wait_until},
    wiki::{dump, large_dump},
};

#[test]
fn importing_again_changes_nothing() {
    let Some(home) = Home::new() else { return };
    let dump = dump("Page", &[("1", "one"), ("2", "two")]);
    home.import_file(&dump).ends_with(0).stdout_contains(&["2 revisions of 1 page", "2 stored"]);
    let before = home.everything();
    home.import_file(&dump).ends_with(0).stdout_contains(&["0 stored", "2 stored before"]);
    assert_eq!(home.everything(), before);
}

#[test]
fn one_command_imports_a_file_and_standard_input() {
    let Some(home) = Home::new() else { return };
    home.write("b.xml", &dump("B", &[("2", "b")]));
    let mut command = home.command(&["import", "--domain", "wiki", "--jobs", "1", "-", "b.xml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(dump("A", &[("1", "a")]).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("2 revisions of 2 pages"));
    let all = home.everything();
    assert!(all.contains("\"A\"") && all.contains("\"B\""), "{all}");
}

#[test]
fn conflicting_revision_is_named_and_not_changed() {
    let Some(home) = Home::new() else { return };
    home.import(&dump("Page", &[("1", "one"), ("2", "two")]));
    let before = home.everything();
    let ran = home.import_file(&dump("Page", &[("1", "one"), ("2", "zwei")])).ends_with(3);
    ran.stderr_contains(&["dump.xml, line ", "revision 2 of Page is stored with different content"])
        .stdout_contains(&["1 in conflict"]);
    assert_eq!(home.everything(), before);
}

#[test]
fn truncated_dump_stores_its_complete_revisions() {
    let Some(home) = Home::new() else { return };
    let whole = dump("Page", &[("1", "one"), ("2", "two"), ("3", "three")]);
    let cut = &whole[..whole.find("three").unwrap()];
    let ran = home.import_file(cut).ends_with(1);
    ran.stderr_contains(&[
        "error: dump.xml: line ",
        "byte ",
        "the input is truncated",
        "revision 3 of page \"Page\"",
    ])
    .stdout_contains(&["2 stored"]);
    let all = home.everything();
    assert!(all.contains("two") && !all.contains("three"), "{all}");
    home.import_file(&whole).ends_with(0).stdout_contains(&["1 stored", "2 stored before"]);
}

#[test]
fn stopped_import_keeps_stored_revisions() {
    const TEXT_BYTES: usize = 20_000;
    let Some(home) = Home::new() else { return };
    // This import creates the tables, so that the next import writes only revisions.
    home.import(&dump("Other", &[("900", "other")]));
    let whole = large_dump(200, TEXT_BYTES);
    let mut command = home.command(&["import", "--domain", "wiki", "-"]);
    let mut import = RunningProcess::start(command.stdin(Stdio::piped()));
    // Sends the first half of the dump, so that the import waits for the rest.
    let mut stdin = import.stdin();
    stdin.write_all(&whole.as_bytes()[..whole.len() / 2]).unwrap();
    stdin.flush().unwrap();
    // Revisions are stored in groups of up to 1 MiB. A group of these texts has more than 20, so the first
    // stored group ends the wait.
    wait_until("revisions are stored", || home.stores.has_texts(home.path(), 20, TEXT_BYTES));
    let ran = import.stop().ends_with(143);
    ran.stderr_contains(&["stopped in standard input after", "stored revisions stay"]);
    drop(stdin);

    home.run(&["verify"]).ends_with(0);
    let before = home.everything().lines().count();
    assert!(before > 10, "{before} lines");
    home.import_file(&whole).ends_with(0);
    assert!(home.everything().lines().count() >= 200);
}

#[test]
fn dump_is_sent_to_a_running_server() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    let url = format!("http://{address}");
    let dump = dump("Page", &[("1", "one"), ("2", "two"), ("0", "none")]);
    home.write("dump.xml", &dump);
    let import = || run(home.path(), &["import", "--to", &url, "--domain", "wiki", "dump.xml"]);
    import()
        .ends_with(3)
        .stdout_contains(&["2 stored", "1 left out"])
        .stderr_contains(&["not a positive number"]);
    import().ends_with(3).stdout_contains(&["0 stored", "2 stored before"]);

    // A truncated dump is reported as by a local import.
    fs::write(home.path().join("dump.xml"), &dump[..dump.find("two").unwrap()]).unwrap();
    import().ends_with(1).stderr_contains(&["dump.xml: line ", "the input is truncated"]);

    // A file that is not a dump.
    home.write("dump.xml", "just words\n");
    import().ends_with(1).stderr_contains(&["refused the import (400", "neither XML nor JSON lines"]);
    server.stop().ends_with(0);
    assert!(home.everything().contains("two"));
}
