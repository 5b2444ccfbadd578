//! Rows of keys in general and of plain strings.

use super::KeyUse::{Delete, Overwrite, Read, Update};
use super::*;
use crate::command::parse::{keys, strings};

const GENERIC: &str = "generic";

pub(super) const ROWS: &[Row] = &[
    row("del", -2, WRITE, ALL, Delete, keys::del).doc(
        GENERIC,
        "1.0.0",
        "O(N), N being the keys",
        "Removes keys and answers how many there were.",
        "key [key ...]",
    ),
    row("unlink", -2, WRITE | FAST, ALL, Delete, keys::del).doc(
        GENERIC,
        "4.0.0",
        "O(1) for each key; memory is freed afterwards",
        "Removes keys and answers how many there were.",
        "key [key ...]",
    ),
    row("exists", -2, READONLY | FAST, ALL, Read, keys::exists).doc(
        GENERIC,
        "1.0.0",
        "O(N), N being the keys",
        "Answers how many of the keys there are; a key named twice counts twice.",
        "key [key ...]",
    ),
    row("touch", -2, READONLY | FAST, ALL, Read, keys::exists).doc(
        GENERIC,
        "3.2.1",
        "O(N), N being the keys",
        "Answers how many of the keys there are.",
        "key [key ...]",
    ),
    row("type", 2, READONLY | FAST, ONE, Read, keys::type_).doc(
        GENERIC,
        "1.0.0",
        "O(1)",
        "Answers the type of the value at a key, or none.",
        "key",
    ),
    row("rename", 3, WRITE, TWO, Overwrite, keys::rename).doc(
        GENERIC,
        "1.0.0",
        "O(1)",
        "Renames a key, over whatever stands at the new name.",
        "key newkey",
    ),
    row("renamenx", 3, WRITE | FAST, TWO, Overwrite, keys::renamenx).doc(
        GENERIC,
        "1.0.0",
        "O(1)",
        "Renames a key if the new name is free.",
        "key newkey",
    ),
    row("expire", -3, WRITE | FAST, ONE, Update, keys::expire).doc(
        GENERIC,
        "1.0.0",
        "O(1)",
        "Lets a key end after some seconds.",
        "key seconds [NX|XX|GT|LT]",
    ),
    row("pexpire", -3, WRITE | FAST, ONE, Update, keys::pexpire).doc(
        GENERIC,
        "2.6.0",
        "O(1)",
        "Lets a key end after some milliseconds.",
        "key milliseconds [NX|XX|GT|LT]",
    ),
    row("expireat", -3, WRITE | FAST, ONE, Update, keys::expireat).doc(
        GENERIC,
        "1.2.0",
        "O(1)",
        "Lets a key end at a Unix time in seconds.",
        "key unix-time-seconds [NX|XX|GT|LT]",
    ),
    row("pexpireat", -3, WRITE | FAST, ONE, Update, keys::pexpireat).doc(
        GENERIC,
        "2.6.0",
        "O(1)",
        "Lets a key end at a Unix time in milliseconds.",
        "key unix-time-milliseconds [NX|XX|GT|LT]",
    ),
    row("persist", 2, WRITE | FAST, ONE, Update, keys::persist).doc(
        GENERIC,
        "2.2.0",
        "O(1)",
        "Takes the end of a key away.",
        "key",
    ),
    row("ttl", 2, READONLY | FAST, ONE, Read, keys::ttl).doc(
        GENERIC,
        "1.0.0",
        "O(1)",
        "Answers the seconds a key has left: -1 without an end, -2 without the key.",
        "key",
    ),
    row("pttl", 2, READONLY | FAST, ONE, Read, keys::pttl).doc(
        GENERIC,
        "2.6.0",
        "O(1)",
        "Answers the milliseconds a key has left: -1 without an end, -2 without the key.",
        "key",
    ),
    row("expiretime", 2, READONLY | FAST, ONE, Read, keys::expiretime).doc(
        GENERIC,
        "7.0.0",
        "O(1)",
        "Answers the Unix time in seconds at which a key ends.",
        "key",
    ),
    row("pexpiretime", 2, READONLY | FAST, ONE, Read, keys::pexpiretime).doc(
        GENERIC,
        "7.0.0",
        "O(1)",
        "Answers the Unix time in milliseconds at which a key ends.",
        "key",
    ),
    row("dump", 2, READONLY, ONE, Read, keys::dump).doc(
        GENERIC,
        "2.6.0",
        "O(N), N being the size of the value",
        "Answers the value at a key in a portable form.",
        "key",
    ),
    row("set", -3, WRITE | DENYOOM, ONE, Overwrite, strings::set).doc(
        "string",
        "1.0.0",
        "O(1)",
        "Sets the string at a key.",
        "key value [NX|XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    ),
    row("get", 2, READONLY | FAST, ONE, Read, strings::get).doc(
        "string",
        "1.0.0",
        "O(1)",
        "Answers the string at a key.",
        "key",
    ),
];
