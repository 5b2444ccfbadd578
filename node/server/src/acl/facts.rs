//! What Redis 8.10 says about its commands: access categories and what each does to its keys. Recorded from a server,
//! by name, subcommands as `container|sub`, so that rules about commands which Weir lacks are understood too.
//!
//! Each line of the file: name, categories, and for each key specification its flags.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const RECORDED: &str = include_str!("redis-8.10.tsv");

/// All categories as COMMAND shows them, in the order of Redis.
pub const CATEGORIES: [&str; 22] = [
    "@keyspace",
    "@read",
    "@write",
    "@set",
    "@sortedset",
    "@list",
    "@hash",
    "@string",
    "@array",
    "@bitmap",
    "@hyperloglog",
    "@geo",
    "@stream",
    "@pubsub",
    "@admin",
    "@fast",
    "@slow",
    "@blocking",
    "@dangerous",
    "@connection",
    "@transaction",
    "@scripting",
];

/// One command.
#[derive(Debug)]
pub struct Fact {
    /// Categories, in the order of [`CATEGORIES`].
    pub categories: Vec<&'static str>,
    /// Flags of each key specification, in their order.
    pub keys: Vec<Vec<&'static str>>,
}

static FACTS: LazyLock<BTreeMap<&'static str, Fact>> = LazyLock::new(|| {
    let words = |text: &'static str| text.split(',').filter(|word| !word.is_empty()).collect::<Vec<_>>();
    let line = |line: &'static str| {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap_or_default();
        let categories = words(columns.next().unwrap_or_default());
        let named = |known: &&&str| categories.contains(&&known[1..]);
        let categories = CATEGORIES.iter().filter(named).copied().collect();
        let keys = columns.next().unwrap_or_default().split(';').filter(|keys| !keys.is_empty());
        (name, Fact { categories, keys: keys.map(words).collect() })
    };
    RECORDED.lines().map(line).collect()
});

/// What Redis says about the command; `None` if it has none of that name.
pub fn of(name: &str) -> Option<&'static Fact> {
    FACTS.get(name)
}

/// Whether Redis or Weir has a command of this name, in lower case.
pub fn is_command(name: &str) -> bool {
    FACTS.contains_key(name) || crate::command::table::find_full(name.as_bytes()).is_some()
}

/// Whether the command is one that holds subcommands.
pub fn has_subcommands(name: &str) -> bool {
    let prefix = format!("{name}|");
    FACTS.range(prefix.as_str()..).next().is_some_and(|(next, _)| next.starts_with(&prefix))
}

/// Names of all commands of a category, in order.
pub fn of_category(category: &str) -> Vec<&'static str> {
    FACTS.iter().filter(|(_, fact)| fact.categories.contains(&category)).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_category_is_known_and_names_are_in_order() {
        assert!(FACTS.len() > 400, "{}", FACTS.len());
        assert_eq!(FACTS.len(), RECORDED.lines().count());
        for (line, fact) in RECORDED.lines().zip(FACTS.values()) {
            let recorded =
                line.split('\t').nth(1).unwrap().split(',').filter(|name| !name.is_empty()).count();
            assert_eq!(recorded, fact.categories.len(), "{line}");
        }
        assert!(has_subcommands("client") && !has_subcommands("get"));
        assert_eq!(of("rename").unwrap().keys, [vec!["RW", "access", "delete"], vec!["OW", "update"]]);
    }
}
