//! Users and their rights on one whole node: texts and shapes as a Redis 8.10 answers them.

use crate::connection::{Server, script};

#[tokio::test]
async fn logging_in_and_being_refused() {
    let server = Server::start().await;
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    script(
        &server,
        &format!(
            "
            ACL WHOAMI => default
            ACL LIST => [user default on nopass sanitize-payload ~* &* +@all]
            AUTH x => -ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?
            AUTH nobody x => -WRONGPASS invalid username-password pair or user is disabled.
            AUTH a b c => -ERR syntax error
            ACL SETUSER a b => -ERR Error in ACL SETUSER modifier 'b': Syntax error
            ACL SETUSER alice on >secret ~a* +@read +set +multi +exec +acl|whoami => OK
            ACL GETUSER alice => [flags [on sanitize-payload] passwords [{hash}] commands -@all +@read +set +multi +exec +acl|whoami keys ~a* channels  selectors []]
            ACL GETUSER nobody => nil
            ACL USERS => [alice default]
            ACL DRYRUN alice SET ab 1 => OK
            ACL DRYRUN alice SET b 1 => User alice has no permissions to access the 'b' key
            ACL DRYRUN alice DEL ab => User alice has no permissions to run the 'del' command
            ACL DRYRUN nobody GET a => -ERR User 'nobody' not found
            ACL DRYRUN alice NOSUCH => -ERR Command 'NOSUCH' not found
            ACL DRYRUN alice GET => -ERR wrong number of arguments for 'get' command
            ACL CAT nosuch => -ERR Unknown category 'nosuch'
            ACL GENPASS 0 => -ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096
            ACL LOAD => -ERR This Redis instance is not configured to use an ACL file.*
            ACL DELUSER default => -ERR The 'default' user cannot be removed
            ACL SETUSER => -ERR wrong number of arguments for 'acl|setuser' command
            ACL NOSUCH => -ERR unknown subcommand 'NOSUCH'. Try ACL HELP.
            AUTH alice wrong => -WRONGPASS invalid username-password pair or user is disabled.
            HELLO 3 AUTH alice wrong => -WRONGPASS invalid username-password pair or user is disabled.
            AUTH alice secret => OK
            ACL WHOAMI => alice
            SET a1 v => OK
            GET a1 => v
            SET b v => -NOPERM No permissions to access a key
            DEL a1 => -NOPERM User alice has no permissions to run the 'del' command
            CLIENT LIST => -NOPERM User alice has no permissions to run the 'client|list' command
            MULTI => OK
            SET a2 v => QUEUED
            SET b v => -NOPERM No permissions to access a key
            EXEC => -EXECABORT Transaction discarded because of previous errors.
            GET a2 => nil
            RESET => RESET
            ACL WHOAMI => default
            "
        ),
    )
    .await;
    let mut c = server.connect().await;
    let log = c.ask("ACL LOG").await;
    for entry in [
        "[count 1 reason key context multi object b username alice age-seconds",
        "reason command context toplevel object client|list username alice",
        "reason command context toplevel object del username alice",
        "count 1 reason auth context toplevel object HELLO username alice",
        "count 1 reason auth context toplevel object AUTH username alice",
    ] {
        assert!(log.contains(entry), "{entry}\n{log}");
    }
    assert_eq!(c.ask("ACL LOG RESET").await, "OK");
    assert_eq!(c.ask("ACL LOG").await, "[]");
    let categories = c.ask("ACL CAT").await;
    assert!(
        categories.starts_with("[keyspace read write") && categories.contains(" stream "),
        "{categories}"
    );
    let stream = c.ask("ACL CAT stream").await;
    assert!(
        stream.contains(" xackdel ") && stream.contains("xinfo|stream") && !stream.contains(" get "),
        "{stream}"
    );
    assert_eq!(c.ask("ACL GENPASS").await.len(), 64);
    assert_eq!(c.ask("ACL GENPASS 5").await.len(), 2);
}

#[tokio::test]
async fn without_login_there_is_little_to_do_and_little_to_send() {
    let server = Server::start_with(&[("requirepass", "pw")]).await;
    script(
        &server,
        "
        PING => -NOAUTH Authentication required.
        NOSUCH => -ERR unknown command 'NOSUCH'
        HELLO 3 => -NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time
        AUTH wrong => -WRONGPASS invalid username-password pair or user is disabled.
        AUTH pw => OK
        PING => PONG
        CONFIG GET requirepass => [requirepass ]
        RESET => RESET
        PING => -NOAUTH Authentication required.
        HELLO 3 AUTH default pw => {server: redis*
        PING => PONG
        ",
    )
    .await;
    let mut c = server.connect().await;
    let many = format!("MSET{}", " x".repeat(10));
    assert_eq!(c.ask(&many).await, "-ERR Protocol error: unauthenticated multibulk length");
    let mut c = server.connect().await;
    let long = format!("AUTH {}", "x".repeat(16 * 1024 + 1));
    assert_eq!(c.ask(&long).await, "-ERR Protocol error: unauthenticated bulk length");
    let mut c = server.connect().await;
    assert_eq!(c.ask("AUTH pw").await, "OK");
    let long = format!("SET k {}", "x".repeat(64 * 1024));
    assert_eq!(c.ask(&long).await, "OK", "the bounds are those of everybody now");
}

#[tokio::test]
async fn rights_that_change_between_multi_and_exec_are_those_at_exec() {
    let server = Server::start().await;
    let (mut admin, mut c) = (server.connect().await, server.connect().await);
    assert_eq!(admin.ask("ACL SETUSER u on nopass ~* +@all").await, "OK");
    assert_eq!(c.ask("AUTH u x").await, "OK");
    c.send("MULTI\nSET {t}a 1\nSET {t}b 1\nPING").await;
    assert_eq!(c.answers(4).await, ["OK", "QUEUED", "QUEUED", "QUEUED"]);
    assert_eq!(admin.ask("ACL SETUSER u resetkeys ~{t}b -ping").await, "OK");
    let changed = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: ";
    assert_eq!(
        c.ask("EXEC").await,
        format!(
            "[{changed}no permission to touch the specified keys OK {changed}no permission to execute the command or subcommand]"
        )
    );
    assert_eq!(admin.ask("MGET {t}a {t}b").await, "[nil 1]");
    // Removing oneself is answered first.
    assert_eq!(c.ask("ACL DELUSER u").await, "1");
    assert!(c.next().await.is_none(), "and then it is over");
}

#[tokio::test]
async fn a_client_that_speaks_tls_to_a_plain_port_is_told() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send_bytes(&[0x16, 0x03, 0x01, 0x00, 0x05, 1, 2, 3, 4, 5]).await;
    assert_eq!(c.answers(1).await, ["-ERR this port does not speak TLS"]);
    assert!(c.next().await.is_none());
}
