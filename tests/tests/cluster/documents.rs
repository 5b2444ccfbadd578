//! Documents that name files and commands must not outlive them.

use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Text between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_path_in_the_documents_exists() {
    const TOP: [&str; 9] =
        ["node", "sim", "tests", "ops", "docs", "client", "Cargo.toml", "clippy.toml", "justfile"];
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        for path in quoted(&read(document)) {
            let is_path = TOP.contains(&path.split('/').next().unwrap_or_default()) && !path.contains(' ');
            assert!(!is_path || root().join(path).exists(), "{document} names {path}, which does not exist");
        }
    }
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = read("README.md");
    let command =
        readme.lines().skip_while(|line| *line != "## Test it").find_map(|line| line.strip_prefix("    "));
    let command = command.expect("an indented line under `Test it`");
    assert!(read(".ci/run").lines().any(|line| line == command), ".ci/run does not call {command:?}");
}

#[test]
fn every_recipe_in_the_documents_exists() {
    let justfile = read("justfile");
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        for command in quoted(&read(document)) {
            let Some(recipe) = command.strip_prefix("just ").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let exists = justfile.lines().any(|line| {
                line.strip_prefix(recipe).is_some_and(|rest| rest.starts_with(':') || rest.starts_with(' '))
            });
            assert!(exists, "{document} names `just {recipe}`");
        }
    }
}

/// `tests/proof.tsv`: what users rely on, and by what it is shown.
#[test]
fn everything_that_users_rely_on_and_faults_could_break_is_shown_by_something_that_exists() {
    let table = read("tests/proof.tsv");
    let mut ids = std::collections::BTreeSet::new();
    for row in table.lines().filter(|line| !line.starts_with('#')) {
        let [id, _, shown] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {row}") };
        assert!(ids.insert(id), "{id} is there twice");
        assert!(!shown.is_empty(), "{id} is shown by nothing");
        for reference in shown.split(' ') {
            let (path, name) = reference.split_once("::").unwrap_or_else(|| panic!("{id}: {reference}"));
            let text = read(path);
            let is_there = ["fn ", "def ", "trait "].iter().any(|kind| {
                text.split(&format!("{kind}{name}"))
                    .skip(1)
                    .any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
            });
            assert!(is_there || text.contains(&format!("\"name\": \"{name}\"")), "{id}: no {name} in {path}");
        }
    }
    assert_eq!(ids.len(), 43);
}
