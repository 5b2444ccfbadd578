//! The engine can name no clock, socket, thread or random source, and depends on nothing that can.
#![expect(clippy::disallowed_methods, reason = "the test writes a snippet for the compiler")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the engine may depend on, directly or not. Everything here is `no_std` as used, or runs at build time.
const ALLOWED: &[&str] = &[
    "bytes",
    "cobs",
    "crc",
    "crc-catalog",
    "crc16",
    "postcard",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "thiserror",
    "thiserror-impl",
    "twox-hash",
    "unicode-ident",
    "weir-stream",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The attributes of the crate itself, in front of `code`.
fn with_the_crates_attributes(code: &str) -> String {
    let lib = std::fs::read_to_string(source().join("lib.rs")).expect("lib.rs");
    let attributes = lib.lines().filter(|line| line.starts_with("#![") || line.starts_with("extern crate"));
    format!("{}\n{code}\n", attributes.collect::<Vec<_>>().join("\n"))
}

/// What the compiler says about `code`; `None` if it accepts it.
fn refusal(name: &str, code: &str) -> Option<String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("a directory for the snippet");
    let file = dir.join("lib.rs");
    std::fs::write(&file, with_the_crates_attributes(code)).expect("the snippet");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"])
        .arg(&dir)
        .arg(&file)
        .output()
        .expect("rustc runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_clock_has_no_name_in_the_crate() {
    let pure =
        "pub fn later(now: core::time::Duration) -> alloc::string::String { alloc::format!(\"{now:?}\") }";
    assert_eq!(refusal("pure", pure), None);
    let clocks = ["std::time::Instant::now()", "std::time::SystemTime::now()", "std::thread::current().id()"];
    for (at, clock) in clocks.iter().enumerate() {
        let refused = refusal(&format!("clock{at}"), &format!("pub fn now() {{ let _ = {clock}; }}"));
        let refused = refused.unwrap_or_else(|| panic!("`{clock}` compiled"));
        assert!(refused.contains("`std`"), "{refused}");
    }
}

#[test]
fn no_file_of_the_crate_brings_std_back() {
    let mut dirs = vec![source()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path())
        {
            if entry.is_dir() {
                dirs.push(entry);
                continue;
            }
            let text = std::fs::read_to_string(&entry).expect("a source file");
            assert!(!text.contains("extern crate std"), "{}", entry.display());
        }
    }
}

#[test]
fn the_crate_depends_on_nothing_but_the_allowed_few() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "weir-stream", "-e", "normal", "--prefix", "none", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains("weir-stream"));
    let foreign: Vec<_> = names.iter().filter(|name| !ALLOWED.contains(name)).collect();
    assert!(foreign.is_empty(), "not allowed in the engine: {foreign:?}");
}
