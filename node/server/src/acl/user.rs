//! Users as all nodes agree on them. Nothing here looks at a clock, a random source or the command table of a build
//! beyond whether a name exists, so the same rules make the same user everywhere.

use super::facts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The user of connections that did not log in.
pub const DEFAULT: &[u8] = b"default";

/// One user. Its name is the key it is kept under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// May log in.
    pub enabled: bool,
    /// Any password will do.
    pub nopass: bool,
    /// Shown and kept as Redis has it; payloads are always checked.
    pub skip_sanitize: bool,
    /// SHA-256 of each password, 64 hex digits.
    pub passwords: Vec<String>,
    /// What it may do.
    pub root: Selector,
    /// What it may do besides.
    pub selectors: Vec<Selector>,
}

/// A set of commands together with the keys and channels they may touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// All keys.
    pub all_keys: bool,
    /// Patterns of keys.
    pub keys: Vec<KeyPattern>,
    /// All channels.
    pub all_channels: bool,
    /// Patterns of channels.
    pub channels: Vec<Vec<u8>>,
    /// Begins with all commands, those of later versions too, or with none.
    pub all_commands: bool,
    /// Then adds and takes away in this order: `+name`, `-name`, `+@category`, `+name|first-argument`.
    pub rules: Vec<String>,
}

/// Keys that fit a pattern, and what may be done to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPattern {
    /// As KEYS takes it.
    pub pattern: Vec<u8>,
    /// May be read.
    pub read: bool,
    /// May be changed.
    pub write: bool,
}

/// Why a rule is refused, in the words of Redis.
pub type RuleError = &'static str;

const SYNTAX: RuleError = "Syntax error";
const UNKNOWN: RuleError = "Unknown command or category name in ACL";
const AFTER_ALL_KEYS: RuleError = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
     not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_ALL_CHANNELS: RuleError = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
     and does not have any effect. Try 'resetchannels' to start with an empty list of channels";
const NO_SUCH_PASSWORD: RuleError = "The password you are trying to remove from the user does not exist";
const BAD_HASH: RuleError = "The password hash must be exactly 64 characters and contain only lowercase \
     hexadecimal characters";
const FIRST_ARG_OF_SUB: RuleError = "Allowing first-arg of a subcommand is not supported";

/// SHA-256 of a password as 64 hex digits.
pub fn hash(password: &[u8]) -> String {
    hex(&Sha256::digest(password))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two hashes are the same, in a time that does not tell where they differ.
pub fn same_hash(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

impl User {
    /// A user that may do nothing yet.
    pub fn new() -> User {
        User {
            enabled: false,
            nopass: false,
            skip_sanitize: false,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }

    /// The default user before anybody changed it: may do everything, without a password.
    pub fn first_default() -> User {
        let root = Selector { all_keys: true, all_channels: true, all_commands: true, ..Selector::default() };
        User { enabled: true, nopass: true, root, ..User::new() }
    }

    /// Whether this password lets it in.
    pub fn lets_in(&self, password: &[u8]) -> bool {
        let given = hash(password);
        // All are looked at, so that the time does not tell which.
        let known = self.passwords.iter().fold(false, |found, known| found | same_hash(known, &given));
        self.enabled && (self.nopass || known)
    }

    /// Applies rules, all or none.
    ///
    /// # Errors
    /// The full text after `ERR `, in the words of Redis.
    pub fn with_rules(&self, rules: &[&[u8]]) -> Result<User, String> {
        let mut user = self.clone();
        for rule in joined_selectors(rules)? {
            user.apply(&rule).map_err(|why| {
                format!("Error in ACL SETUSER modifier '{}': {why}", String::from_utf8_lossy(&rule))
            })?;
        }
        Ok(user)
    }

    fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let word = rule.to_ascii_lowercase();
        match (word.as_slice(), rule) {
            (b"", _) => {}
            (b"on", _) => self.enabled = true,
            (b"off", _) => self.enabled = false,
            (b"skip-sanitize-payload", _) => self.skip_sanitize = true,
            (b"sanitize-payload", _) => self.skip_sanitize = false,
            (b"nopass", _) => {
                self.nopass = true;
                self.passwords.clear();
            }
            (b"resetpass", _) => {
                self.nopass = false;
                self.passwords.clear();
            }
            (_, [b'>', password @ ..]) => self.add_password(hash(password)),
            (_, [b'#', hash @ ..]) => self.add_password(checked_hash(hash)?),
            (_, [b'<', password @ ..]) => self.remove_password(&hash(password))?,
            (_, [b'!', hash @ ..]) => self.remove_password(&checked_hash(hash)?)?,
            (_, [b'(', inner @ .., b')']) => {
                let mut selector = Selector::default();
                for rule in inner.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                    selector.apply(rule)?;
                }
                self.selectors.push(selector);
            }
            (b"clearselectors", _) => self.selectors.clear(),
            (b"reset", _) => *self = User::new(),
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.nopass = false;
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash).ok_or(NO_SUCH_PASSWORD)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// `on`, `nopass` and the like, in the order of Redis.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        flags.extend(self.nopass.then_some("nopass"));
        flags.push(if self.skip_sanitize { "skip-sanitize-payload" } else { "sanitize-payload" });
        flags
    }

    /// The rules that make this user from a new one, as ACL LIST shows them.
    pub fn describe(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for flag in self.flags() {
            out.extend_from_slice(flag.as_bytes());
            out.push(b' ');
        }
        for hash in &self.passwords {
            out.extend_from_slice(format!("#{hash} ").as_bytes());
        }
        self.root.describe(&mut out);
        for selector in &self.selectors {
            out.extend_from_slice(b" (");
            selector.describe(&mut out);
            out.push(b')');
        }
        out
    }
}

impl Default for User {
    fn default() -> Self {
        User::new()
    }
}

impl Selector {
    fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let word = rule.to_ascii_lowercase();
        match (word.as_slice(), rule) {
            (b"allkeys" | b"~*", _) => {
                self.all_keys = true;
                self.keys.clear();
            }
            (b"resetkeys", _) => {
                self.all_keys = false;
                self.keys.clear();
            }
            (b"allchannels" | b"&*", _) => {
                self.all_channels = true;
                self.channels.clear();
            }
            (b"resetchannels", _) => {
                self.all_channels = false;
                self.channels.clear();
            }
            (b"allcommands" | b"+@all", _) => {
                self.all_commands = true;
                self.rules.clear();
            }
            (b"nocommands" | b"-@all", _) => {
                self.all_commands = false;
                self.rules.clear();
            }
            (_, [b'~' | b'%', ..]) => self.add_keys(rule)?,
            (_, [b'&', pattern @ ..]) => self.add_channels(pattern)?,
            (_, [sign @ (b'+' | b'-'), name @ ..]) => self.add_command(*sign == b'+', name)?,
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(AFTER_ALL_KEYS);
        }
        let (access, pattern) = match rule {
            [b'~', pattern @ ..] => (&b"RW"[..], pattern),
            _ => {
                let at = rule.iter().position(|b| *b == b'~').ok_or(SYNTAX)?;
                (&rule[1..at], &rule[at + 1..])
            }
        };
        let (read, write) = match access.to_ascii_uppercase().as_slice() {
            b"RW" | b"WR" => (true, true),
            b"R" => (true, false),
            b"W" => (false, true),
            _ => return Err(SYNTAX),
        };
        if has_spaces(pattern) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.read |= read;
                known.write |= write;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), read, write }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(AFTER_ALL_CHANNELS);
        }
        if has_spaces(pattern) {
            return Err(SYNTAX);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn add_command(&mut self, allow: bool, name: &[u8]) -> Result<(), RuleError> {
        let name = String::from_utf8(name.to_ascii_lowercase()).map_err(|_| UNKNOWN)?;
        if name.starts_with('@') {
            if !facts::CATEGORIES.contains(&name.as_str()) {
                return Err(UNKNOWN);
            }
        } else if allow && let Some((command, sub)) = name.rsplit_once('|') {
            if !facts::is_command(command) {
                return Err(UNKNOWN);
            }
            if command.contains('|') {
                return Err(FIRST_ARG_OF_SUB);
            }
            if sub.is_empty() {
                return Err(SYNTAX);
            }
            if facts::has_subcommands(command) && !facts::is_command(&name) {
                return Err(UNKNOWN);
            }
        } else if !facts::is_command(&name) {
            return Err(UNKNOWN);
        }
        // A later rule about the same, or about the whole command, makes an earlier one void.
        self.rules.retain(|rule| {
            let old = &rule[1..];
            old != name && !old.strip_prefix(&name).is_some_and(|rest| rest.starts_with('|'))
        });
        self.rules.push(format!("{}{name}", if allow { '+' } else { '-' }));
        Ok(())
    }

    /// `~a %R~b`, as ACL GETUSER shows it.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let one = |key: &KeyPattern| {
            let access: &[u8] = match (key.read, key.write) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                _ => b"~",
            };
            [access, &key.pattern].concat()
        };
        self.keys.iter().map(one).collect::<Vec<_>>().join(&b' ')
    }

    /// `&a &b`.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels
            .iter()
            .map(|channel| [b"&", channel.as_slice()].concat())
            .collect::<Vec<_>>()
            .join(&b' ')
    }

    /// `-@all +get`.
    pub fn describe_commands(&self) -> String {
        let first = if self.all_commands { "+@all" } else { "-@all" };
        std::iter::once(first).chain(self.rules.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    fn describe(&self, out: &mut Vec<u8>) {
        let keys = self.describe_keys();
        if !keys.is_empty() {
            out.extend_from_slice(&keys);
            out.push(b' ');
        }
        if !self.all_channels {
            out.extend_from_slice(b"resetchannels ");
        }
        let channels = self.describe_channels();
        if !channels.is_empty() {
            out.extend_from_slice(&channels);
            out.push(b' ');
        }
        out.extend_from_slice(self.describe_commands().as_bytes());
    }
}

/// Whether a name or pattern could not be told apart in a list of rules.
pub fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|b| b.is_ascii_whitespace() || *b == 0 || *b == 0x0b)
}

fn checked_hash(hash: &[u8]) -> Result<String, RuleError> {
    let valid = hash.len() == 64 && hash.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if valid { Ok(String::from_utf8_lossy(hash).into_owned()) } else { Err(BAD_HASH) }
}

/// A selector may be spread over several arguments; here each is one.
fn joined_selectors(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
    let mut joined: Vec<Vec<u8>> = Vec::with_capacity(rules.len());
    let mut open: Option<(Vec<u8>, &[u8])> = None;
    for rule in rules {
        match &mut open {
            Some((selector, _)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                if rule.last() == Some(&b')')
                    && let Some((selector, _)) = open.take()
                {
                    joined.push(selector);
                }
            }
            None if rule.first() == Some(&b'(') && rule.last() != Some(&b')') => {
                open = Some((rule.to_vec(), rule));
            }
            None => joined.push(rule.to_vec()),
        }
    }
    match open {
        Some((_, start)) => Err(format!(
            "Unmatched parenthesis in acl selector starting at '{}'.",
            String::from_utf8_lossy(start)
        )),
        None => Ok(joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rules: &str) -> String {
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        match User::new().with_rules(&rules) {
            Ok(user) => String::from_utf8(user.describe()).unwrap(),
            Err(error) => error,
        }
    }

    #[test]
    fn rules_are_told_as_redis_tells_them() {
        let secret = hash(b"secret");
        for (rules, told) in [
            ("on", "on sanitize-payload resetchannels -@all".to_owned()),
            ("on nopass ~* &* +@all", "on nopass sanitize-payload ~* &* +@all".to_owned()),
            (
                "on >secret ~a* %R~b %w~b %RW~c &ch +@read -get +Client|ID",
                format!(
                    "on #{secret} sanitize-payload ~a* ~b ~c resetchannels &ch -@all +@read -get +client|id"
                ),
            ),
            (
                "+client|id +client|list -client",
                "off sanitize-payload resetchannels -@all -client".to_owned(),
            ),
            ("+@all -@admin +@all", "off sanitize-payload resetchannels +@all".to_owned()),
            ("+get -get +get", "off sanitize-payload resetchannels -@all +get".to_owned()),
            ("+select|0", "off sanitize-payload resetchannels -@all +select|0".to_owned()),
            ("(~x +get", "Unmatched parenthesis in acl selector starting at '(~x'.".to_owned()),
            (
                "(~x +get )",
                "off sanitize-payload resetchannels -@all (~x resetchannels -@all +get)".to_owned(),
            ),
            ("~* ~a", format!("Error in ACL SETUSER modifier '~a': {AFTER_ALL_KEYS}")),
            ("+nosuch", format!("Error in ACL SETUSER modifier '+nosuch': {UNKNOWN}")),
            ("+@nosuch", format!("Error in ACL SETUSER modifier '+@nosuch': {UNKNOWN}")),
            ("+client|nosuch", format!("Error in ACL SETUSER modifier '+client|nosuch': {UNKNOWN}")),
            ("+client|id|x", format!("Error in ACL SETUSER modifier '+client|id|x': {FIRST_ARG_OF_SUB}")),
            ("#abc", format!("Error in ACL SETUSER modifier '#abc': {BAD_HASH}")),
            ("<abc", format!("Error in ACL SETUSER modifier '<abc': {NO_SUCH_PASSWORD}")),
            ("%X~a", "Error in ACL SETUSER modifier '%X~a': Syntax error".to_owned()),
            ("nonsense", "Error in ACL SETUSER modifier 'nonsense': Syntax error".to_owned()),
        ] {
            // Flags come before passwords.
            let told = told.replace(
                &format!("on #{secret} sanitize-payload"),
                &format!("on sanitize-payload #{secret}"),
            );
            assert_eq!(made(rules), told, "{rules}");
        }
    }

    #[test]
    fn only_an_enabled_user_with_the_right_password_gets_in() {
        let user = |rules: &[&[u8]]| User::new().with_rules(rules).unwrap();
        assert!(!user(&[b">a"]).lets_in(b"a"), "off");
        assert!(user(&[b"on", b">a"]).lets_in(b"a"));
        assert!(!user(&[b"on", b">a"]).lets_in(b"b"));
        assert!(user(&[b"on", b"nopass"]).lets_in(b"anything"));
        assert!(!user(&[b"on", b"nopass", b"resetpass"]).lets_in(b""));
        assert!(!user(&[b"on", b">a", b"<a"]).lets_in(b"a"));
    }
}
