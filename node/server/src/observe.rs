//! What operators look at besides metrics: slow calls, spikes of latency, all calls as they come, rates, and the numbers
//! of INFO since CONFIG RESETSTAT.

pub mod baseline;
pub mod latency;
pub mod monitor;
pub mod rates;
pub mod saves;
pub mod slowlog;

use crate::command::table::Row;
use bytes::Bytes;

/// All of it, of one node.
#[derive(Debug, Default)]
pub struct Observe {
    /// SLOWLOG.
    pub slow: slowlog::SlowLog,
    /// LATENCY.
    pub latency: latency::Events,
    /// MONITOR.
    pub monitors: monitor::Monitors,
    /// What happened lately a second.
    pub rates: rates::Rates,
    /// INFO starts from here.
    pub baseline: baseline::Baseline,
    /// Snapshots.
    pub saves: saves::Saves,
}

const REDACTED: Bytes = Bytes::from_static(b"(redacted)");

/// The arguments as others may see them: without passwords.
pub fn without_secrets(row: &Row, args: &[Bytes]) -> Vec<Bytes> {
    let mut shown = args.to_vec();
    match row.name {
        "auth" => shown[1..].fill(REDACTED),
        "acl|setuser" => shown[2..].fill(REDACTED),
        "hello" => {
            let mut at = 2;
            while at < shown.len() {
                let is_login = args[at].eq_ignore_ascii_case(b"AUTH");
                let end = (at + 3).min(shown.len());
                if is_login {
                    shown[at + 1..end].fill(REDACTED);
                }
                at = if is_login { end } else { at + 1 };
            }
        }
        "config|set" => {
            for pair in shown[2..].chunks_mut(2) {
                if pair[0].eq_ignore_ascii_case(b"requirepass") && pair.len() == 2 {
                    pair[1] = REDACTED;
                }
            }
        }
        "migrate" => shown[1..].fill(REDACTED),
        _ => {}
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;

    #[test]
    fn passwords_are_not_shown() {
        for (line, wanted) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("AUTH u secret", "AUTH (redacted) (redacted)"),
            ("HELLO 3 SETNAME n AUTH u secret", "HELLO 3 SETNAME n AUTH (redacted) (redacted)"),
            ("HELLO 3 AUTH u secret SETNAME n", "HELLO 3 AUTH (redacted) (redacted) SETNAME n"),
            ("ACL SETUSER u >secret", "ACL SETUSER (redacted) (redacted)"),
            ("CONFIG SET timeout 1 requirepass secret", "CONFIG SET timeout 1 requirepass (redacted)"),
            ("SET auth secret", "SET auth secret"),
        ] {
            let args: Vec<Bytes> = line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
            let shown = without_secrets(table::resolve(&args).unwrap(), &args);
            let shown: Vec<_> = shown.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
            assert_eq!(shown.join(" "), wanted);
        }
    }
}
