//! The texts of refusals, spelled once. They are Redis' own, since clients match on them.

use crate::Refusal;
use alloc::format;
use alloc::string::{String, ToString};

impl Refusal {
    fn fixed(text: &str) -> Refusal {
        Refusal::Text(text.to_string())
    }

    pub(crate) fn wrong_type() -> Refusal {
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(crate) fn bad_digest() -> Refusal {
        Self::fixed("ERR must be exactly 16 hexadecimal characters")
    }

    pub(crate) fn condition_of_no_string() -> Refusal {
        Self::fixed("ERR Key should be of string type if conditions are specified")
    }

    pub(crate) fn no_such_key() -> Refusal {
        Self::fixed("ERR no such key")
    }

    pub(crate) fn bad_id() -> Refusal {
        Self::fixed("ERR Invalid stream ID specified as stream command argument")
    }

    pub(crate) fn xadd_zero_id() -> Refusal {
        Self::fixed("ERR The ID specified in XADD must be greater than 0-0")
    }

    pub(crate) fn xadd_id_not_above_last() -> Refusal {
        Self::fixed("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    }

    pub(crate) fn xadd_exhausted() -> Refusal {
        Self::fixed("ERR The stream has exhausted the last possible ID, unable to add more items")
    }

    /// A bound that Redis does not have.
    pub(crate) fn idempotence_is_full() -> Refusal {
        Self::fixed(
            "ERR the stream remembers as many idempotent IDs as it may; try later, or lower its IDMP-DURATION or \
             IDMP-MAXSIZE",
        )
    }

    pub(crate) fn xidmprecord_without_entry() -> Refusal {
        Self::fixed("ERR No such message in stream")
    }

    pub(crate) fn xidmprecord_of_another() -> Refusal {
        Self::fixed("ERR IID already exists for this producer with a different stream ID")
    }

    pub(crate) fn xsetid_below_given_max_deleted() -> Refusal {
        Self::fixed("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id")
    }

    pub(crate) fn xsetid_below_max_deleted() -> Refusal {
        Self::fixed("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id")
    }

    pub(crate) fn xsetid_below_last_entry() -> Refusal {
        Self::fixed("ERR The ID specified in XSETID is smaller than the target stream top item")
    }

    pub(crate) fn xsetid_entries_added_below_length() -> Refusal {
        Self::fixed("ERR The entries_added specified in XSETID is smaller than the target stream length")
    }

    pub(crate) fn xgroup_without_key() -> Refusal {
        Self::fixed(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
             the MKSTREAM option to create an empty stream automatically.",
        )
    }

    pub(crate) fn busy_group() -> Refusal {
        Self::fixed("BUSYGROUP Consumer Group name already exists")
    }

    /// XREADGROUP's text.
    pub(crate) fn no_group_to_read(key: &[u8], group: &[u8]) -> Refusal {
        let (key, group) = (shown(key), shown(group));
        Refusal::Text(format!(
            "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
        ))
    }

    /// The text of XPENDING, XCLAIM and XAUTOCLAIM.
    pub(crate) fn no_key_or_group(key: &[u8], group: &[u8]) -> Refusal {
        let (key, group) = (shown(key), shown(group));
        Refusal::Text(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
    }

    /// The text of XGROUP and XINFO CONSUMERS.
    pub(crate) fn no_group_for_key(key: &[u8], group: &[u8]) -> Refusal {
        let (key, group) = (shown(key), shown(group));
        Refusal::Text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
    }

    /// A deadline that no clock reaches. `millis`: given in milliseconds.
    pub(crate) fn expire_out_of_range(millis: bool) -> Refusal {
        let command = if millis { "pexpire" } else { "expire" };
        Refusal::Text(format!("ERR invalid expire time in '{command}' command"))
    }

    pub(crate) fn not_an_integer() -> Refusal {
        Self::fixed("ERR value is not an integer or out of range")
    }

    pub(crate) fn increment_overflows() -> Refusal {
        Self::fixed("ERR increment or decrement would overflow")
    }

    pub(crate) fn string_too_long() -> Refusal {
        Self::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
    }

    pub(crate) fn wrong_arity(command: &str) -> Refusal {
        Refusal::Text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    pub(crate) fn nested_exec() -> Refusal {
        Self::fixed("ERR MULTI calls can not be nested")
    }

    pub(crate) fn busy_key() -> Refusal {
        Self::fixed("BUSYKEY Target key name already exists.")
    }
}

/// A name inside an error line: line breaks would end the line, so they become spaces. A byte of zero ends what Redis
/// shows.
fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).replace(['\r', '\n'], " ")
}
