//! What is said first where a call is wrong in more than one way, as a Redis 8.10 says it.

use crate::connection::{Server, script};

#[tokio::test]
async fn an_exec_that_crosses_slots_says_first_that_a_watched_key_changed() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    for (changes, queued, wanted) in [
        ("", "GET {a}s\nGET b", crossed),
        ("SET {a}s 2", "GET {a}s\nGET b", "nil"),
        ("SET {a}s 2", "GET b\nSET b 1", "nil"),
        ("", "GET b", crossed),
        ("SET {a}s 2", "GET {a}s\nGET b\nGET", aborted),
        ("", "GET {a}s\nGET b\nGET", crossed),
        ("DEL {a}s", "GET b", "nil"),
    ] {
        let lines = format!("SET {{a}}s 1\nWATCH {{a}}s\n{changes}\nMULTI\n{queued}\nEXEC");
        let count = lines.lines().filter(|line| !line.is_empty()).count();
        // At once, so that EXEC is taken while the write before it is on its way.
        c.send(&lines).await;
        assert_eq!(c.answers(count).await.last().map(String::as_str), Some(wanted), "{lines}");
    }
    assert_eq!(c.ask("GET b").await, "nil", "nothing was done");
    c.send("MULTI\nGET {a}s\nEXEC").await;
    assert_eq!(c.answers(3).await[2], "[nil]", "nothing is watched any more");
}

#[tokio::test]
async fn too_many_options_and_words_that_are_no_ids_come_after_the_type_of_the_key() {
    let server = Server::start().await;
    let no_key = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                  MKSTREAM option to create an empty stream automatically.";
    script(
        &server,
        &format!(
            "
            SET s v => OK
            XADD st 1-1 a b => 1-1
            XGROUP CREATE s g 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM => -WRONGTYPE Operation against a key holding the wrong kind of value
            XGROUP CREATE st g 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM => -ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.
            XGROUP CREATE no g 0 ENTRIESREAD 1 ENTRIESREAD 2 => {no_key}
            XGROUP CREATE no g 0 MKSTREAM ENTRIESREAD 1 ENTRIESREAD 2 => -ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.
            XGROUP CREATE s g 0 x y z w => -ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.
            XGROUP SETID s g 0 ENTRIESREAD 1 ENTRIESREAD 2 => -WRONGTYPE Operation against a key holding the wrong kind of value
            XGROUP SETID no g 0 ENTRIESREAD 1 ENTRIESREAD 2 => {no_key}
            XGROUP SETID st g 0 ENTRIESREAD 1 ENTRIESREAD 2 => -NOGROUP No such consumer group 'g' for key name 'st'
            XDELEX s DELREF IDS 3 IDS 47-2 23-1 => -WRONGTYPE Operation against a key holding the wrong kind of value
            XDELEX no DELREF IDS 3 IDS 47-2 23-1 => [-1 -1 -1]
            EXISTS no => 0
            "
        ),
    )
    .await;
}

#[tokio::test]
async fn strings_are_set_and_removed_by_what_they_are() {
    let server = Server::start().await;
    script(
        &server,
        "
        SET x ohmytext => OK
        DIGEST x => c5bd71b3a5512e5e
        DIGEST no => nil
        SET x v IFDEQ 0000000000000000 => nil
        SET x v IFDEQ abc => -ERR must be exactly 16 hexadecimal characters
        SET x v IFDEQ zzzzzzzzzzzzzzzz => nil
        SET x v IFDNE c5bd71b3a5512e5e => nil
        SET x v IFDEQ c5bd71b3a5512e5e NX => -ERR syntax error
        SET x v IFDEQ => -ERR syntax error
        SET x v2 IFDEQ C5BD71B3A5512E5E GET => ohmytext
        SET x v3 IFDNE 0000000000000000 => OK
        SET no v IFDEQ 0000000000000000 => nil
        SET no v IFDNE abc => OK
        XADD st 1-1 a b => 1-1
        SET st v IFDEQ abc => -WRONGTYPE Operation against a key holding the wrong kind of value
        DIGEST st => -WRONGTYPE Operation against a key holding the wrong kind of value
        DELEX x FOO v => -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE
        DELEX x NX v => -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE
        DELEX gone FOO v => 0
        DELEX st FOO v => -ERR Key should be of string type if conditions are specified
        DELEX st IFDEQ 00 => -ERR Key should be of string type if conditions are specified
        DELEX x IFDEQ 00 => -ERR must be exactly 16 hexadecimal characters
        DELEX gone IFDEQ 00 => 0
        DELEX x IFEQ => -ERR wrong number of arguments for 'delex' command
        DELEX x IFEQ a b => -ERR wrong number of arguments for 'delex' command
        DELEX x IFEQ no => 0
        DELEX x IFNE v3 => 0
        DELEX x IFEQ v3 => 1
        DELEX gone IFNE v => 0
        DELEX no IFDNE 0000000000000000 => 1
        DELEX st => 1
        EXISTS x no st => -CROSSSLOT*
        EXISTS x => 0
        ",
    )
    .await;
}
