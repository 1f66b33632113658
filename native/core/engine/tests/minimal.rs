//! Runs the example `minimal`.

use std::process::Command;

#[test]
fn two_processes_exchange_a_message() {
    // `cargo test` builds the examples, too, unless it is told which tests to build.
    let tests = std::env::current_exe().expect("this program");
    let example = tests.with_file_name("../examples/minimal");
    let output = Command::new(&example)
        .output()
        .expect("the example: cargo build --example minimal");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}: {said}", output.status);
    for process in ["connects", "listens"] {
        assert_eq!(
            said.matches(&format!("hello from the process that {process}")).count(),
            1,
            "{said}"
        );
    }
}
