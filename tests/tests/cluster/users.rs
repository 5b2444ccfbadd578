//! Users on a whole cluster: the same on every node at once, kept over restarts, and checked where they work.

use std::time::Duration;
use tokio::time::{sleep, timeout};
use weir_client::{Client, Error, Options};
use weir_tests::connection::Connection;
use weir_tests::testing::{ask, ask_until, connect, key_led_by, start};

#[tokio::test]
async fn a_user_made_on_one_node_is_known_on_all_and_survives_restarts_and_snapshots() {
    let mut cluster = start(3, "").await;
    let mut admin = connect(&cluster, 1).await;
    assert_eq!(
        ask(&mut admin, "ACL SETUSER alice on >secret ~app:* %R~shared:* +@all -@dangerous").await,
        "OK"
    );
    // No waiting: OK means that every node has it.
    for node in 0..3 {
        let mut c = connect(&cluster, node).await;
        assert_eq!(ask(&mut c, "AUTH alice secret").await, "OK", "node {node}");
        assert_eq!(ask(&mut c, "ACL WHOAMI").await, "alice");
        assert!(ask(&mut c, "CLIENT INFO").await.contains(" user=alice "));
        assert_eq!(ask(&mut c, "XADD other * a 1").await, "-NOPERM No permissions to access a key");
        assert!(!ask(&mut c, "XLEN shared:x").await.starts_with("-NOPERM"));
        assert_eq!(
            ask(&mut c, "FLUSHALL").await,
            "-NOPERM User alice has no permissions to run the 'flushall' command"
        );
    }
    let listed = ask(&mut admin, "ACL LIST").await;
    assert!(listed.contains("user alice on sanitize-payload #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~app:* %R~shared:* resetchannels +@all -@dangerous"), "{listed}");
    // Enough changes for snapshots of the meta group, and one that is lost on no node.
    for n in 0..40 {
        let rules = format!("ACL SETUSER bulk on >{n} ~{}", "x".repeat(40_000));
        assert_eq!(ask(&mut admin, &format!("{rules}{n}")).await, "OK");
        assert_eq!(ask(&mut admin, "ACL DELUSER bulk").await, "1");
    }
    for node in 0..3 {
        cluster.kill(node).await.expect("killed");
    }
    cluster.start_all().await.expect("ready");
    for node in 0..3 {
        let mut c = connect(&cluster, node).await;
        assert_eq!(ask(&mut c, "ACL LIST").await, listed, "node {node}");
        assert_eq!(ask(&mut c, "AUTH alice wrong").await.split(' ').next(), Some("-WRONGPASS"));
        assert_eq!(ask(&mut c, "AUTH alice secret").await, "OK");
    }
}

#[tokio::test]
async fn a_removed_user_is_disconnected_on_every_node_and_a_changed_one_is_checked_at_once() {
    let cluster = start(3, "").await;
    let mut admin = connect(&cluster, 0).await;
    assert_eq!(ask(&mut admin, "ACL SETUSER bob on nopass ~* +@all").await, "OK");
    let mut bobs = Vec::new();
    for node in 0..3 {
        let mut bob = connect(&cluster, node).await;
        assert_eq!(ask(&mut bob, "AUTH bob x").await, "OK");
        bobs.push(bob);
    }
    // One of them waits for an entry.
    let key = key_led_by(&cluster, 2).await;
    bobs[2].send(&["XREAD", "BLOCK", "0", "STREAMS", &key, "$"]).await.expect("sent");
    let mut other = connect(&cluster, 2).await;
    ask_until(&mut other, "INFO clients", |info| info.contains("blocked_clients:1")).await;

    assert_eq!(ask(&mut admin, "ACL SETUSER bob resetkeys ~else").await, "OK");
    let refused =
        timeout(Duration::from_secs(5), bobs[2].receive()).await.expect("in time").expect("a reply");
    let refused = weir_tests::connection::show(&refused);
    assert_eq!(refused, "-NOPERM No permissions to access a key", "the wait ends with the right");
    assert_eq!(ask(&mut bobs[2], "PING").await, "PONG");

    assert_eq!(ask(&mut admin, "ACL SETUSER bob off").await, "OK");
    assert_eq!(ask(&mut bobs[0], "PING").await, "PONG", "who is in stays in");
    assert!(ask(&mut other, "AUTH bob x").await.starts_with("-WRONGPASS"));

    assert_eq!(ask(&mut admin, "ACL DELUSER bob nobody").await, "1");
    for bob in &mut bobs {
        gone(bob).await;
    }
    assert_eq!(ask(&mut admin, "ACL GETUSER bob").await, "nil");
}

async fn gone(connection: &mut Connection) {
    let ended = timeout(Duration::from_secs(5), connection.receive()).await.expect("it ends");
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn users_can_be_changed_through_a_failover_and_never_half() {
    let mut cluster = start(3, "").await;
    cluster.kill(0).await.expect("killed");
    for n in 0..20 {
        let node = 1 + n % 2;
        let mut c = connect(&cluster, node).await;
        let made = ask(&mut c, &format!("ACL SETUSER u{n} on >p{n} ~k{n} +@read")).await;
        assert_eq!(made, "OK");
    }
    cluster.start_all().await.expect("ready");
    let mut c = connect(&cluster, 0).await;
    let all = ask_until(&mut c, "ACL USERS", |users| users.matches('u').count() >= 21).await;
    for n in 0..20 {
        assert!(all.contains(&format!("u{n}")), "{all}");
    }
    // Without a majority nothing is changed, and the answer does not claim otherwise.
    cluster.kill(1).await.expect("killed");
    cluster.kill(2).await.expect("killed");
    sleep(Duration::from_millis(1500)).await;
    let reply = ask(&mut c, "ACL SETUSER late on").await;
    assert!(reply.starts_with("-CLUSTERDOWN") || reply.starts_with("-UNKNOWN"), "{reply}");
}

#[tokio::test]
async fn a_wrong_password_is_a_typed_error_and_the_right_one_works_through_the_client() {
    let cluster = start(3, "--requirepass first").await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XLEN s").await, "-NOAUTH Authentication required.");
    let dial = |options: Options| {
        let options = options.timeout(Duration::from_secs(5));
        Client::connect_with(cluster.addresses(), options)
    };
    let code = |result: Result<Client, Error>| match result {
        Err(Error::Auth(error)) => error.code().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code(dial(Options::default()).await), "NOAUTH");
    assert_eq!(code(dial(Options::default().password("wrong")).await), "WRONGPASS");
    let admin = dial(Options::default().password("first")).await.expect("let in");
    for n in 0..20 {
        admin.xadd(format!("k{n}")).field("n", "1").await.expect("added");
    }
    assert_eq!(ask(&mut c, "AUTH first").await, "OK");
    assert_eq!(ask(&mut c, "ACL SETUSER app on >pw ~app:* +@stream +cluster|slots").await, "OK");
    let app = dial(Options::default().user("app", "pw")).await.expect("let in");
    app.xadd("app:1").field("n", "1").await.expect("its own key");
    let refused = app.xadd("k1").field("n", "1").await.expect_err("not its key");
    assert!(matches!(&refused, Error::Auth(error) if error.code() == "NOPERM"), "{refused}");
}
