//! Settings that CONFIG SET changes while the node runs: of this node alone, and until it is started again.

use crate::config::{self, Config};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// One value, read by whoever needs it at that moment.
#[derive(Debug)]
pub struct Setting(AtomicI64);

impl Setting {
    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
    /// The value of one that is not negative.
    pub fn size(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(0)
    }
    /// Of yes and no.
    pub fn on(&self) -> bool {
        self.get() != 0
    }
    fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Number,
    /// With `kb`, `mb`, `gb`.
    Memory,
    YesNo,
}

macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident = $key:literal, $form:ident, $range:expr;)*) => {
        /// See the module.
        #[derive(Debug)]
        pub struct Settings {
            $($(#[$doc])* pub $field: Setting,)*
        }

        impl Settings {
            /// As they were given at start.
            pub fn new(config: &Config) -> Settings {
                Settings { $($field: Setting(AtomicI64::new(config.$field.as_setting())),)* }
            }

            fn find(&self, key: &str) -> Option<(&Setting, Form, RangeInclusive<i64>)> {
                match key {
                    $($key => Some((&self.$field, Form::$form, $range)),)*
                    _ => None,
                }
            }
        }
    };
}

settings! {
    /// Bytes of data above which writes that add are refused; 0 = none.
    maxmemory = "maxmemory", Memory, 0..=i64::MAX;
    /// Client connections.
    maxclients = "maxclients", Number, 1..=4_294_967_295;
    /// Idle seconds after which a connection is closed; 0 = never.
    timeout = "timeout", Number, 0..=2_147_483_647;
    /// Bytes of answers that wait.
    client_output_buffer_limit = "client-output-buffer-limit", Memory, 1..=i64::MAX;
    /// Bytes of input that wait.
    client_query_buffer_limit = "client-query-buffer-limit", Memory, 1..=i64::MAX;
    /// Bytes of messages that wait for a subscriber.
    pubsub_output_buffer_limit = "pubsub-output-buffer-limit", Memory, 1..=i64::MAX;
    /// Bytes of messages that wait for another node.
    pubsub_peer_buffer_limit = "pubsub-peer-buffer-limit", Memory, 1..=i64::MAX;
    /// Subscriptions of a connection.
    subscriptions_max = "subscriptions-max", Number, 1..=i64::MAX;
    /// Commands of a connection in flight.
    pipeline_commands_max = "pipeline-commands-max", Number, 1..=1_000_000;
    /// Commands of a transaction.
    multi_commands_max = "multi-commands-max", Number, 1..=i64::MAX;
    /// Bytes of an argument, of connections made from now on.
    proto_max_bulk_len = "proto-max-bulk-len", Memory, 1..=536_870_912;
    /// Arguments of a command, of connections made from now on.
    proto_max_args = "proto-max-args", Number, 1..=1_048_576;
    /// Microseconds from which a call goes into the slow log; 0 = all, -1 = none.
    slowlog_log_slower_than = "slowlog-log-slower-than", Number, -1..=i64::MAX;
    /// Entries of the slow log.
    slowlog_max_len = "slowlog-max-len", Number, 0..=1_000_000;
    /// Milliseconds from which LATENCY notes an event; 0 = none.
    latency_monitor_threshold = "latency-monitor-threshold", Number, 0..=i64::MAX;
    /// Streams of a shard on the page of metrics.
    metrics_streams_max = "metrics-streams-max", Number, 0..=i64::MAX;
    /// Without a password nobody is let in from elsewhere.
    protected_mode = "protected-mode", YesNo, 0..=1;
}

trait AsSetting {
    fn as_setting(&self) -> i64;
}

macro_rules! as_setting {
    ($($kind:ty),*) => {
        $(impl AsSetting for $kind {
            fn as_setting(&self) -> i64 {
                // What does not fit is above all that can be reached.
                #[allow(clippy::unnecessary_fallible_conversions, reason = "one text for all kinds")]
                i64::try_from(*self).unwrap_or(i64::MAX)
            }
        })*
    };
}

as_setting!(u64, usize, i64, bool);

/// A value that may be put in place.
#[derive(Debug)]
pub struct Checked<'a>(&'a Setting, i64);

impl Checked<'_> {
    /// Puts it in place.
    pub fn apply(&self) {
        self.0.set(self.1);
    }
}

impl Settings {
    /// Reads a value for a key; `None` if the key cannot be changed.
    ///
    /// # Errors
    /// What is wrong with the value, in the words of Redis.
    pub fn check(&self, key: &str, text: &str) -> Option<Result<Checked<'_>, String>> {
        let (setting, form, range) = self.find(key)?;
        let value = match form {
            Form::YesNo => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" => Ok(1),
                "no" | "false" => Ok(0),
                _ => Err("argument must be 'yes' or 'no'".to_owned()),
            },
            Form::Memory => {
                config::parse_size(text).ok_or_else(|| "argument must be a memory value".to_owned())
            }
            Form::Number => {
                text.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())
            }
        };
        Some(value.and_then(|value| match range.contains(&value) {
            true => Ok(Checked(setting, value)),
            false => Err(format!("argument must be between {} and {} inclusive", range.start(), range.end())),
        }))
    }

    /// The value in force, if the key is one of these.
    pub fn show(&self, key: &str) -> Option<String> {
        let (setting, form, _) = self.find(key)?;
        Some(match (form, setting.on()) {
            (Form::YesNo, true) => "yes".to_owned(),
            (Form::YesNo, false) => "no".to_owned(),
            _ => setting.get().to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_before_they_are_put_in_place() {
        let settings = Settings::new(&Config::default());
        let wrong = |key, text| settings.check(key, text).unwrap().unwrap_err();
        assert_eq!(wrong("maxmemory", "abc"), "argument must be a memory value");
        assert_eq!(wrong("maxclients", "0"), "argument must be between 1 and 4294967295 inclusive");
        assert_eq!(wrong("timeout", "x"), "argument couldn't be parsed into an integer");
        assert_eq!(wrong("protected-mode", "maybe"), "argument must be 'yes' or 'no'");
        assert!(settings.check("port", "1").is_none());
        let checked = settings.check("maxmemory", "2mb").unwrap().unwrap();
        assert_eq!(settings.maxmemory.get(), 0);
        checked.apply();
        assert_eq!(settings.show("maxmemory").as_deref(), Some("2097152"));
    }
}
