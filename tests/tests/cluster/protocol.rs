//! Bytes that are no commands, commands that are none of ours, and connections that misbehave: each ends in one clear
//! error, and nobody else notices.

use std::time::Duration;
use tokio::time::timeout;
use weir_tests::connection::{Connection, show};
use weir_tests::testing::{TestCluster, ask, ask_until, connect, start};

/// Sends bytes on a connection of their own; all that is answered, and whether the server then closed it.
async fn spit(cluster: &TestCluster, bytes: &[u8]) -> (Vec<String>, bool) {
    let mut connection = connect(cluster, 0).await;
    connection.send_raw(bytes).await.expect("sent");
    let mut answers = Vec::new();
    loop {
        match timeout(Duration::from_millis(500), connection.receive()).await {
            Ok(Ok(value)) => answers.push(show(&value)),
            Ok(Err(_)) => return (answers, true),
            Err(_) => return (answers, false),
        }
    }
}

#[tokio::test]
async fn malformed_protocol_is_answered_once_and_closes_only_that_connection() {
    let cluster = start(1, "").await;
    let mut bystander = connect(&cluster, 0).await;
    let cases: &[(&[u8], &str)] = &[
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1048577\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\nPING\r\n", "-ERR Protocol error: expected '$', got 'P'"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"SET \"open\r\n", "-ERR Protocol error: unbalanced quotes in request"),
    ];
    for (bytes, error) in cases {
        let text = String::from_utf8_lossy(bytes);
        let (answers, closed) = spit(&cluster, bytes).await;
        assert_eq!((answers, closed), (vec![(*error).to_owned()], true), "{text:?}");
        // What came before in the same piece is still answered, in order.
        let (answers, closed) = spit(&cluster, &[b"PING\r\n", *bytes].concat()).await;
        assert_eq!((answers, closed), (vec!["PONG".into(), (*error).to_owned()], true), "{text:?}");
        assert_eq!(ask(&mut bystander, "PING").await, "PONG");
    }
    let (answers, closed) = spit(&cluster, &vec![b'a'; 70 * 1024]).await;
    assert_eq!((answers, closed), (vec!["-ERR Protocol error: too big inline request".into()], true));
    // Line noise of every byte, without structure.
    let noise: Vec<u8> = (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    spit(&cluster, &noise).await;
    assert_eq!(ask(&mut bystander, "PING").await, "PONG");
}

#[tokio::test]
async fn a_web_page_cannot_slip_commands_into_a_request() {
    let cluster = start(1, "").await;
    let mut bystander = connect(&cluster, 0).await;
    for head in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"] {
        let request = format!("{head}Content-Type: text/plain\r\n\r\nSET slipped in\r\n");
        let (answers, closed) = spit(&cluster, request.as_bytes()).await;
        assert!(closed && !answers.iter().any(|answer| answer == "OK"), "{answers:?}");
        assert_eq!(ask(&mut bystander, "EXISTS slipped").await, "0");
    }
}

#[tokio::test]
async fn commands_that_cannot_be_are_refused_and_the_connection_lives_on() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    let cases = [
        ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "),
        ("XADD s", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD s * a", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD s nonsense a 1", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD s 0-0 a 1", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD s 99999999999999999999-1 a 1", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD s MAXLEN -1 * a 1", "-ERR The MAXLEN argument must be >= 0."),
        ("XRANGE s - + COUNT x", "-ERR value is not an integer or out of range"),
        ("XRANGE s - + COUNT 99999999999999999999", "-ERR value is not an integer or out of range"),
        ("XREAD STREAMS s", "-ERR wrong number of arguments for 'xread' command"),
        ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
        ("WAIT x 0", "-ERR value is not an integer or out of range"),
        ("CLUSTER NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."),
        ("PING", "PONG"),
    ];
    for (command, answer) in cases {
        assert_eq!(ask(&mut c, command).await, answer, "{command}");
    }
    assert_eq!(ask(&mut c, "EXISTS s").await, "0");
    assert_eq!(ask(&mut c, "SET plain 1").await, "OK");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for command in
        ["XADD plain * a 1", "XLEN plain", "XRANGE plain - +", "XGROUP CREATE plain g 0", "XACK plain g 1-1"]
    {
        assert_eq!(ask(&mut c, command).await, wrong, "{command}");
    }
}

#[tokio::test]
async fn keys_and_values_are_any_bytes() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    let every: Vec<u8> = (0..=255).collect();
    let key = [b"k\0\xff\r\n".as_slice(), &every].concat();
    let limit = Duration::from_secs(5);
    let id = c
        .call(&[b"XADD".as_slice(), &key, b"*", &every, b"\r\n$-1\r\n", b"", b""], limit)
        .await
        .expect("added");
    let back = c.call(&[b"XRANGE".as_slice(), &key, b"-", b"+"], limit).await.expect("read");
    let weir_resp::Value::Array(rows) = &back else { panic!("{back:?}") };
    let weir_resp::Value::Array(row) = &rows[0] else { panic!("{back:?}") };
    let weir_resp::Value::Array(fields) = &row[1] else { panic!("{back:?}") };
    assert_eq!(row[0], id);
    let fields: Vec<&[u8]> = fields.iter().map(|f| f.bytes().expect("bulk").as_ref()).collect();
    assert_eq!(fields, [every.as_slice(), b"\r\n$-1\r\n", b"", b""]);
    // 8 MB in one value, and 10,000 fields in one entry.
    let large = vec![b'v'; 8 << 20];
    c.call(&[b"XADD".as_slice(), b"large", b"*", b"f", &large], limit).await.expect("added");
    assert_eq!(ask(&mut c, "XLEN large").await, "1");
    let mut many: Vec<Vec<u8>> = ["XADD", "many", "*"].iter().map(|w| w.as_bytes().to_vec()).collect();
    many.extend((0..20_000).map(|n| n.to_string().into_bytes()));
    c.call(&many, limit).await.expect("added");
    assert_eq!(ask(&mut c, "XLEN many").await, "1");
}

#[tokio::test]
async fn a_command_in_pieces_is_one_command_and_half_a_command_is_none() {
    let cluster = start(1, "").await;
    let whole = b"*5\r\n$4\r\nXADD\r\n$4\r\nhalf\r\n$1\r\n*\r\n$1\r\na\r\n$1\r\n1\r\n";
    for cut in 0..whole.len() {
        // The sender goes away in the middle.
        let mut gone = connect(&cluster, 0).await;
        gone.send_raw(&whole[..cut]).await.expect("sent");
    }
    let mut slow = connect(&cluster, 0).await;
    for byte in whole {
        slow.send_raw(&[*byte]).await.expect("sent");
        tokio::task::yield_now().await;
    }
    let answer = slow.receive().await.expect("an answer");
    assert!(show(&answer).contains('-'), "{answer:?}");
    assert_eq!(ask(&mut slow, "XLEN half").await, "1");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order_behind_a_blocking_command_too() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    let mut bytes = Vec::new();
    for n in 0..500 {
        bytes.extend_from_slice(format!("XADD s * n {n}\r\nPING {n}\r\nXLEN s\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"XREAD BLOCK 300 STREAMS s $\r\nPING after\r\n");
    c.send_raw(&bytes).await.expect("sent");
    for n in 0..500 {
        let id = show(&c.receive().await.expect("an id"));
        assert!(!id.starts_with('-'), "{id}");
        assert_eq!(show(&c.receive().await.expect("a pong")), n.to_string());
        assert_eq!(show(&c.receive().await.expect("a length")), (n + 1).to_string());
    }
    // While that one waits, others are served.
    let mut other = connect(&cluster, 0).await;
    assert_eq!(ask(&mut other, "PING").await, "PONG");
    assert_eq!(show(&c.receive().await.expect("nothing new")), "nil");
    assert_eq!(show(&c.receive().await.expect("a pong")), "after");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let cluster = start(1, "--maxclients 40").await;
    let mut crowd: Vec<Connection> = Vec::new();
    for _ in 0..40 {
        crowd.push(connect(&cluster, 0).await);
    }
    for c in &mut crowd {
        assert_eq!(ask(c, "PING").await, "PONG");
    }
    let refused = spit(&cluster, b"").await;
    assert_eq!(refused, (vec!["-ERR max number of clients reached".into()], true));
    crowd.pop();
    // The server notices the end in its own time.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while spit(&cluster, b"PING\r\n").await.0 != ["PONG"] {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the place of a closed connection is not given away again"
        );
    }
    assert_eq!(ask(&mut crowd[0], "PING").await, "PONG");
}

#[tokio::test]
async fn ten_thousand_idle_connections_disturb_nobody() {
    let cluster = start(1, "").await;
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let files: usize = files.split_whitespace().nth(3).and_then(|n| n.parse().ok()).unwrap_or(1024);
    // One less than the default of maxclients; fewer where this process may not open so many files.
    let wanted = 9_999.min(files.saturating_sub(100));
    let mut idle = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        idle.push(connect(&cluster, 0).await);
    }
    let mut c = idle.pop().expect("a connection");
    for n in 1..=50 {
        ask(&mut c, "XADD s * a 1").await;
        assert_eq!(ask(&mut c, "XLEN s").await, n.to_string());
    }
    drop(idle);
    ask_until(&mut c, "CLIENT LIST", |list| list.lines().count() == 1).await;
}
