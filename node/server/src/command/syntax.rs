//! The table's argument notation, read into the tree that `COMMAND DOCS` answers.
//!
//! `[x]` may be left out, `a|b` and `x | y` are alternatives (of words, and of sequences), `x [x ...]` repeats, `(x)`
//! groups, capitals and signs stand for themselves. A literal word belongs to the argument after it.

use weir_stream::Reply;

/// One argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Argument {
    /// Lower case.
    pub name: String,
    /// Literal word before it, or instead of it.
    pub token: Option<String>,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
    /// What it is.
    pub kind: Kind,
}

/// What an argument is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kind {
    /// A literal word alone.
    #[default]
    Word,
    /// A value of this type (`key`, `integer`, `string` ...).
    Value(&'static str),
    /// All of these.
    Block(Vec<Argument>),
    /// One of these.
    OneOf(Vec<Argument>),
}

/// Reads a row's `syntax`.
pub fn arguments(syntax: &str) -> Vec<Argument> {
    let spaced = syntax.replace('[', " [ ").replace(']', " ] ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    match sequence(&words, &mut at) {
        Argument { kind: Kind::Block(items), .. } => items,
        other => vec![other],
    }
}

/// Up to a closing bracket: a block, or a choice if ` | ` was met.
fn sequence(words: &[&str], at: &mut usize) -> Argument {
    let mut choices = Vec::new();
    let mut items: Vec<Argument> = Vec::new();
    while let Some(word) = words.get(*at) {
        *at += 1;
        match *word {
            "]" | ")" => break,
            "|" => choices.push(single(std::mem::take(&mut items))),
            "(" => items.push(sequence_of_one(words, at)),
            "[" => {
                if let Some(count) = repeat(words, at) {
                    let mut repeated = single(items.split_off(items.len().saturating_sub(count)));
                    repeated.multiple = true;
                    items.push(repeated);
                } else {
                    let mut inner = sequence_of_one(words, at);
                    inner.optional = true;
                    items.push(inner);
                }
            }
            word => items.push(argument(word)),
        }
        join_token(&mut items);
    }
    if choices.is_empty() {
        return Argument { kind: Kind::Block(items), ..Argument::default() };
    }
    choices.push(single(items));
    Argument { name: choices[0].name.clone(), kind: Kind::OneOf(choices), ..Argument::default() }
}

fn sequence_of_one(words: &[&str], at: &mut usize) -> Argument {
    match sequence(words, at) {
        Argument { kind: Kind::Block(items), .. } => single(items),
        choice => choice,
    }
}

/// One argument as it is, several as a block.
fn single(mut items: Vec<Argument>) -> Argument {
    match items.len() {
        1 => items.remove(0),
        _ => Argument {
            name: items.first().map(|item| item.name.clone()).unwrap_or_default(),
            kind: Kind::Block(items),
            ..Argument::default()
        },
    }
}

/// `[ x y ... ]`: how many arguments repeat; moves behind it.
fn repeat(words: &[&str], at: &mut usize) -> Option<usize> {
    let close = words[*at..].iter().position(|word| matches!(*word, "]" | "["))?;
    (close >= 2 && words[*at + close] == "]" && words[*at + close - 1] == "...").then(|| {
        *at += close + 1;
        close - 1
    })
}

/// A literal word takes the value after it: `COUNT count` is one argument.
fn join_token(items: &mut Vec<Argument>) {
    let [.., before, last] = &mut items[..] else { return };
    let literal = before.kind == Kind::Word && !before.optional && before.token.is_some();
    let choice_of_words =
        matches!(&last.kind, Kind::OneOf(of) if of.iter().all(|one| one.kind == Kind::Word)) && last.optional;
    if literal && last.token.is_none() && !last.optional && !choice_of_words && last.kind != Kind::Word {
        last.token = before.token.take();
        let at = items.len() - 2;
        items.remove(at);
    }
}

fn argument(word: &str) -> Argument {
    if word.len() > 1 && word.contains('|') {
        let of: Vec<Argument> = word.split('|').map(argument).collect();
        return Argument { name: of[0].name.clone(), kind: Kind::OneOf(of), ..Argument::default() };
    }
    if !word.starts_with(|c: char| c.is_ascii_lowercase()) {
        let name = match word {
            "*" => "auto-id".into(),
            "=" => "equal".into(),
            "~" => "approximately".into(),
            "$" => "new-id".into(),
            word => word.to_ascii_lowercase(),
        };
        return Argument { name, token: Some(word.into()), ..Argument::default() };
    }
    let kind = match word {
        "key" | "newkey" => "key",
        "count" | "milliseconds" | "seconds" | "ms" | "numreplicas" | "numlocal" | "timeout" | "index"
        | "slot" | "protover" | "client-id" | "entries-read" | "entries-added" | "maxage" => "integer",
        "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
        "pattern" => "pattern",
        _ => "string",
    };
    Argument { name: word.into(), kind: Kind::Value(kind), ..Argument::default() }
}

impl Argument {
    /// As `COMMAND DOCS` answers it.
    pub fn reply(&self) -> Reply {
        let bulk = |text: &str| Reply::Bulk(bytes::Bytes::copy_from_slice(text.as_bytes()));
        let (kind, inner) = match &self.kind {
            Kind::Word => ("pure-token", None),
            Kind::Value(kind) => (*kind, None),
            Kind::Block(items) => ("block", Some(items)),
            Kind::OneOf(items) => ("oneof", Some(items)),
        };
        let mut map = vec![(bulk("name"), bulk(&self.name)), (bulk("type"), bulk(kind))];
        if inner.is_none() {
            map.push((bulk("display_text"), bulk(&self.name)));
        }
        if kind == "key" {
            map.push((bulk("key_spec_index"), Reply::Int(0)));
        }
        if let Some(token) = &self.token {
            map.push((bulk("token"), bulk(token)));
        }
        let flags: Vec<Reply> = [(self.optional, "optional"), (self.multiple, "multiple")]
            .into_iter()
            .filter_map(|(set, name)| set.then_some(Reply::Simple(name)))
            .collect();
        if !flags.is_empty() {
            map.push((bulk("flags"), Reply::Array(flags)));
        }
        if let Some(inner) = inner {
            map.push((bulk("arguments"), Reply::Array(inner.iter().map(Argument::reply).collect())));
        }
        Reply::Map(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree on one line: `?` optional, `+` repeated.
    fn shown(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let body = match &argument.kind {
                Kind::Word => String::new(),
                Kind::Value(kind) => format!("{}:{kind}", argument.name),
                Kind::Block(of) => format!("({})", shown(of)),
                Kind::OneOf(of) => format!("<{}>", shown(of)),
            };
            format!(
                "{}{}{body}{}{}",
                argument.token.as_deref().unwrap_or(""),
                if argument.token.is_some() && !body.is_empty() { "=" } else { "" },
                if argument.optional { "?" } else { "" },
                if argument.multiple { "+" } else { "" }
            )
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_notation_becomes_a_tree() {
        for (syntax, tree) in [
            ("", ""),
            ("key", "key:key"),
            ("key [key ...]", "key:key+"),
            ("[section [section ...]]", "section:string?+"),
            ("key [COUNT count]", "key:key COUNT=count:integer?"),
            ("key id|$ [MKSTREAM]", "key:key <id:string $> MKSTREAM?"),
            ("field value [field value ...]", "(field:string value:string)+"),
            ("[a | PX milliseconds | KEEPTTL]", "<a:string PX=milliseconds:integer KEEPTTL>?"),
            (
                "key [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id",
                "key:key (<MAXLEN MINID> <= ~>? threshold:string LIMIT=count:integer?)? <* id:string>",
            ),
        ] {
            assert_eq!(shown(&arguments(syntax)), tree, "{syntax}");
        }
    }
}
