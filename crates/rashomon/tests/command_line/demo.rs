//! `rashomon demo`: the printed command lines work when they are pasted.

use std::{net::TcpListener, path::Path, process::Command, thread::sleep, time::Duration};

use tempfile::tempdir;

use crate::process::{RunningProcess, rashomon};

/// Starts the demo. Returns the process and its first output.
fn demo(directory: &Path, arguments: &[&str]) -> (RunningProcess, String) {
    let mut demo = RunningProcess::start(rashomon(directory).arg("demo").args(arguments));
    let mut printed = String::new();
    while !printed.contains("Ctrl-C") {
        let line = demo.line();
        printed += &line;
        printed.push('\n');
        assert!(printed.len() < 10_000, "{printed}");
    }
    (demo, printed)
}

/// Runs a line in a shell, and returns the answer. Fails if the status is 400 or higher.
fn paste(line: &str) -> String {
    let line = line.replacen("curl ", "curl --silent --show-error --fail-with-body ", 1);
    let output = Command::new("sh").args(["-c", &line]).output().expect("there is a shell");
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{line}\n{answer}\n{}", String::from_utf8_lossy(&output.stderr));
    answer
}

fn curl_lines(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| line.starts_with("curl ")).collect()
}

#[test]
fn printed_curl_commands_work() {
    let directory = tempdir().unwrap();
    let (demo, printed) = demo(directory.path(), &["--listen", "127.0.0.1:0"]);
    let lines = curl_lines(&printed);
    assert_eq!(lines.len(), 5, "{printed}");
    let expected =
        ["Hollin Skerry wiki", "Crème_brûlée", "Fifty-eight years", "although the light was lit", "Created"];
    for (line, word) in lines.iter().zip(expected) {
        let answer = paste(line);
        assert!(answer.contains(word), "{line}\n{answer}");
    }
    // Pasted again, the line that writes changes nothing.
    assert!(paste(lines[4]).contains("Accounts/Yours"));

    // People can read the wiki in a browser, too.
    let base = printed.lines().map(str::trim).find(|line| line.starts_with("http://")).unwrap();
    assert!(paste(&format!("curl {base}")).contains("lighthouse"));
    assert!(paste(&format!("curl -L {base}wiki/Main_Page")).contains("Hollin Skerry wiki"));
    demo.stop().ends_with(0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

/// The number of attempts in ten seconds.
const MAX_POLLS: u32 = 1_000;

#[test]
fn demo_takes_the_next_free_port() {
    let directory = tempdir().unwrap();
    // Another run of the tests may have the port for a moment. The test works with any process that has the
    // port.
    let _taken = (0..MAX_POLLS).find_map(|_| {
        let taken = TcpListener::bind("127.0.0.1:7231").ok();
        if taken.is_none() {
            sleep(Duration::from_millis(10));
        }
        taken
    });
    let (demo, printed) = demo(directory.path(), &[]);
    assert!(printed.starts_with("Port 7231 is in use; the demo is on port "), "{printed}");
    assert!(paste(curl_lines(&printed)[0]).contains("Hollin Skerry wiki"));
    demo.stop().ends_with(0);
}

#[test]
fn demo_in_a_directory_keeps_new_pages() {
    let directory = tempdir().unwrap();
    let arguments = ["--data", "data", "--listen", "127.0.0.1:0"];
    let (first, printed) = demo(directory.path(), &arguments);
    paste(curl_lines(&printed)[4]);
    first.stop().ends_with(0);
    let (second, printed) = demo(directory.path(), &arguments);
    let line = curl_lines(&printed)[0].replace("Main_Page?rev/latest/html", "Accounts/Yours?rev/latest/html");
    assert!(paste(&line).contains("saw it otherwise"));
    second.stop().ends_with(0);
}
