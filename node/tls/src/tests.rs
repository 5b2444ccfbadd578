//! Both sides over real sockets, with certificates that fit and with all kinds that do not.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_env::time::timeout;
use weir_env::{BoxStream, Clock, Env, Net};
use weir_tests::certificates::{Authority, Good, Pair};

use crate::{ClientAuth, Dialer, Error, Files, Material, PeerNet, Reason, Server, Trust};

const HERE: &str = "127.0.0.1";

struct At(u64);

impl Clock for At {
    fn wall_ms(&self) -> u64 {
        self.0
    }

    fn mono(&self) -> Duration {
        Duration::ZERO
    }
}

fn read(ca: &Path, pair: Option<&Pair>) -> Material {
    let (cert, key) = pair.map(|pair| (pair.cert.clone(), pair.key.clone())).unwrap_or_default();
    Files { cert, key, ca: ca.to_owned() }.read(&*Env::system().disk).unwrap()
}

/// A dialed and an accepted connection, not secured.
async fn connected() -> (BoxStream, BoxStream) {
    let env = Env::system();
    let listener = env.net.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let (accepted, dialed) = tokio::join!(listener.accept(), env.net.connect(&addr));
    (dialed.unwrap(), accepted.unwrap().0)
}

/// What the dialing side sees of a ping that is answered over a secured connection.
async fn ping(dialer: &Dialer, server: &Server, host: &str) -> Result<(), Error> {
    let (dialed, accepted) = connected().await;
    let mut accepted = server.accept(accepted);
    let answer = async {
        let mut byte = [0];
        accepted.read_exact(&mut byte).await?;
        accepted.write_all(&byte).await?;
        accepted.flush().await
    };
    let ask = async {
        let mut secured = dialer.connect(dialed, host).await?;
        let exchange = async {
            secured.write_all(b"x").await?;
            secured.flush().await?;
            secured.read_exact(&mut [0]).await
        };
        exchange.await.map(drop).map_err(|e: io::Error| Error::of_io(&e).expect("it is about TLS"))
    };
    let both = async { tokio::join!(ask, answer).0 };
    timeout(Duration::from_secs(10), both).await.expect("no hang")
}

fn reason(result: Result<(), Error>) -> Reason {
    result.expect_err("refused").reason
}

#[tokio::test]
async fn a_certificate_has_to_be_trusted_valid_now_and_for_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ca = ours.write(dir, "ca");
    let clock = Env::system().clock;
    let dialer = Dialer::new(clock.clone(), &read(&ca, None), Trust::Checked).unwrap();
    let anything = Dialer::new(clock.clone(), &read(Path::new(""), None), Trust::Anything).unwrap();
    let server =
        |pair: &Pair| Server::new(clock.clone(), &read(&ca, Some(pair)), ClientAuth::No, Vec::new()).unwrap();
    let good = server(&ours.sign(dir, "good", &[HERE], Good::Now));
    assert_eq!(ping(&dialer, &good, HERE).await, Ok(()));
    assert_eq!(reason(ping(&dialer, &good, "localhost").await), Reason::WrongName);
    for (why, refused) in [
        (Reason::Expired, server(&ours.sign(dir, "past", &[HERE], Good::Past))),
        (Reason::Expired, server(&ours.sign(dir, "future", &[HERE], Good::Future))),
        (Reason::UntrustedCertificate, server(&theirs.sign(dir, "theirs", &[HERE], Good::Now))),
    ] {
        assert_eq!(reason(ping(&dialer, &refused, HERE).await), why);
        assert_eq!(ping(&anything, &refused, HERE).await, Ok(()));
    }

    let year_5000 = Dialer::new(Arc::new(At(95_617_584_000_000)), &read(&ca, None), Trust::Checked).unwrap();
    assert_eq!(reason(ping(&year_5000, &good, HERE).await), Reason::Expired, "by the clock that was given");
}

#[tokio::test]
async fn a_client_shows_a_certificate_where_one_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ca = ours.write(dir, "ca");
    let clock = Env::system().clock;
    let node = ours.sign(dir, "node", &[HERE], Good::Now);
    let server = |auth| Server::new(clock.clone(), &read(&ca, Some(&node)), auth, Vec::new()).unwrap();
    let client = |pair: Option<&Pair>| Dialer::new(clock.clone(), &read(&ca, pair), Trust::Checked).unwrap();
    let good = client(Some(&ours.sign(dir, "app", &["app"], Good::Now)));
    let strict = server(ClientAuth::Yes);
    assert_eq!(ping(&good, &strict, HERE).await, Ok(()));
    assert_eq!(reason(ping(&client(None), &strict, HERE).await), Reason::Refused);
    let expired = client(Some(&ours.sign(dir, "old", &["app"], Good::Past)));
    assert_eq!(reason(ping(&expired, &strict, HERE).await), Reason::Refused);
    let foreign = client(Some(&theirs.sign(dir, "foreign", &["app"], Good::Now)));
    assert_eq!(reason(ping(&foreign, &strict, HERE).await), Reason::Refused);
    let lenient = server(ClientAuth::Optional);
    assert_eq!(ping(&client(None), &lenient, HERE).await, Ok(()));
    assert_eq!(reason(ping(&expired, &lenient, HERE).await), Reason::Refused);
}

#[tokio::test]
async fn nodes_accept_only_certificates_for_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let authority = Authority::new();
    let ca = authority.write(dir, "ca");
    let env = Env::system();
    let net = |pair: &Pair| {
        let material = read(&ca, Some(pair));
        PeerNet::new(env.net.clone(), env.clock.clone(), &material, vec![HERE.to_owned(), "n2".to_owned()])
    };
    let node = net(&authority.sign(dir, "node", &[HERE], Good::Now)).unwrap();
    let listener = node.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let first_byte = |dialing: PeerNet| {
        let (addr, listener) = (addr.clone(), &listener);
        async move {
            let dial = async {
                let mut dialed = dialing.connect(&addr).await?;
                dialed.write_all(b"x").await?;
                dialed.flush().await?;
                // Refused certificates show here.
                dialed.read_exact(&mut [0]).await
            };
            let accept = async {
                let mut accepted = listener.accept().await?.0;
                accepted.read_exact(&mut [0]).await?;
                accepted.write_all(b"y").await?;
                accepted.flush().await?;
                io::Result::Ok(accepted)
            };
            let both = async { tokio::join!(dial, accept) };
            let (dialed, accepted) = timeout(Duration::from_secs(10), both).await.expect("no hang");
            (dialed.map(drop), accepted.map(drop))
        }
    };
    let (dialed, accepted) = first_byte(node.clone()).await;
    assert!(dialed.is_ok() && accepted.is_ok(), "{dialed:?} {accepted:?}");

    // Signed by the same authority, but no node.
    let app = net(&authority.sign(dir, "app", &["app"], Good::Now)).unwrap();
    let (dialed, accepted) = first_byte(app).await;
    assert!(dialed.is_err());
    assert_eq!(Error::of_io(&accepted.unwrap_err()).unwrap().reason, Reason::WrongName);
}

#[tokio::test]
async fn renewed_files_are_shown_to_new_connections_and_bad_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (old, new) = (Authority::new(), Authority::new());
    let env = Env::system();
    let dialer = |ca: &Path| Dialer::new(env.clock.clone(), &read(ca, None), Trust::Checked).unwrap();
    let (trusts_old, trusts_new) = (dialer(&old.write(dir, "old")), dialer(&new.write(dir, "new")));
    let pair = old.sign(dir, "node", &[HERE], Good::Now);
    let files = Files { cert: pair.cert.clone(), key: pair.key.clone(), ..Files::default() };
    let material = files.read(&*env.disk).unwrap();
    let server = Server::new(env.clock.clone(), &material, ClientAuth::No, Vec::new()).unwrap();
    assert!(!files.changed(&*env.disk, &material));
    assert_eq!(ping(&trusts_old, &server, HERE).await, Ok(()));

    new.sign(dir, "node", &[HERE], Good::Now);
    assert!(files.changed(&*env.disk, &material));
    server.renew(&files.read(&*env.disk).unwrap()).unwrap();
    assert_eq!(ping(&trusts_new, &server, HERE).await, Ok(()));

    // A key of another certificate.
    let other = old.sign(dir, "other", &[HERE], Good::Now);
    let other_key = env.disk.read(&other.key).unwrap();
    env.disk.write_atomic(&pair.key, &other_key).unwrap();
    let error = server.renew(&files.read(&*env.disk).unwrap()).unwrap_err();
    assert!(error.to_string().contains("do not fit"), "{error}");
    assert_eq!(ping(&trusts_new, &server, HERE).await, Ok(()), "what was there before stays");
    env.disk.write_atomic(&pair.key, b"nonsense").unwrap();
    let error = files.read(&*env.disk).unwrap_err();
    assert!(error.to_string().contains("node.key holds no private key"), "{error}");
}

#[tokio::test]
async fn a_side_that_does_not_speak_tls_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let authority = Authority::new();
    let ca = authority.write(dir, "ca");
    let env = Env::system();
    let dialer = Dialer::new(env.clock.clone(), &read(&ca, None), Trust::Checked).unwrap();
    let (dialed, mut accepted) = connected().await;
    let plain = async {
        accepted.write_all(b"-ERR this port does not speak TLS\r\n").await.unwrap();
        accepted.read_exact(&mut [0; 5]).await
    };
    let (secured, _) = tokio::join!(dialer.connect(dialed, HERE), plain);
    assert_eq!(secured.err().unwrap().reason, Reason::NotTls);

    let pair = authority.sign(dir, "node", &[HERE], Good::Now);
    let server = Server::new(env.clock.clone(), &read(&ca, Some(&pair)), ClientAuth::No, Vec::new()).unwrap();
    let (mut dialed, accepted) = connected().await;
    let mut accepted = server.accept(accepted);
    dialed.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
    let error = accepted.read_exact(&mut [0]).await.unwrap_err();
    assert_eq!(Error::of_io(&error).unwrap().reason, Reason::NotTls);
    let mut answer = [0; 2];
    dialed.read_exact(&mut answer).await.unwrap();
    assert!(crate::is_alert(&answer), "{answer:?}");
}
