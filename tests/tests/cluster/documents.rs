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
