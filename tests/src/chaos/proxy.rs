//! Proxies between nodes, for what neighbour entries cannot do: packets that come late, and connections that break.
//!
//! A proxy sees bytes, not packets. What a lost packet does to a connection (everything behind it waits until it is
//! sent again) looks here like a stall; bytes of one direction never overtake each other.

use super::network::{PORT, pair};
use anyhow::{Context, Result};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

const PEER_PORT: u16 = PORT + 10_000;
/// Pieces of one direction of a connection that are under way at once.
const PIECES_MAX: usize = 1024;

/// What a proxy does to what passes.
#[derive(Debug, Clone)]
pub struct Weather {
    /// Milliseconds that each piece is late.
    pub late_ms: Range<u64>,
    /// Chance of a piece to stall.
    pub stalls: f64,
    /// Milliseconds that a stall takes.
    pub stall_ms: Range<u64>,
    /// Chance of a piece to break its connection.
    pub breaks: f64,
}

#[derive(Debug)]
struct Shared {
    weather: Mutex<Weather>,
    /// Changes when every connection has to go.
    epoch: watch::Sender<u64>,
}

/// The proxies of all pairs of nodes.
#[derive(Debug)]
pub struct Proxies(Arc<Shared>);

impl Proxies {
    /// Listens at the address of every pair.
    ///
    /// # Errors
    /// What the system says.
    pub async fn start(nodes: usize, seed: u64) -> Result<Proxies> {
        let calm = Weather { late_ms: 0..1, stalls: 0.0, stall_ms: 0..1, breaks: 0.0 };
        let shared = Arc::new(Shared { weather: Mutex::new(calm), epoch: watch::channel(0).0 });
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                let at = pair(from, to);
                let listener =
                    TcpListener::bind((at.as_str(), PEER_PORT)).await.with_context(|| at.clone())?;
                let rng = StdRng::seed_from_u64(seed ^ ((from as u64) << 8 | to as u64));
                tokio::spawn(accept(listener, super::network::address(to), shared.clone(), rng));
            }
        }
        Ok(Proxies(shared))
    }

    /// What happens to all that passes from now on.
    pub fn set(&self, weather: Weather) {
        *self.0.weather.lock().expect("weather") = weather;
    }

    /// Breaks every connection.
    pub fn break_all(&self) {
        self.0.epoch.send_modify(|epoch| *epoch += 1);
    }
}

async fn accept(listener: TcpListener, to: String, shared: Arc<Shared>, mut rng: StdRng) {
    while let Ok((near, _)) = listener.accept().await {
        let (to, shared) = (to.clone(), shared.clone());
        let rngs = [StdRng::seed_from_u64(rng.random()), StdRng::seed_from_u64(rng.random())];
        tokio::spawn(async move {
            let mut epoch = shared.epoch.subscribe();
            let carried = async {
                let far = TcpStream::connect((to.as_str(), PEER_PORT)).await?;
                near.set_nodelay(true)?;
                far.set_nodelay(true)?;
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                let [there, back] = rngs;
                // Either way that ends takes the whole connection with it.
                tokio::select! {
                    ended = carry(near_in, far_out, &shared, there) => ended,
                    ended = carry(far_in, near_out, &shared, back) => ended,
                }
            };
            tokio::select! {
                _ = carried => {}
                _ = epoch.changed() => {}
            }
        });
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    mut rng: StdRng,
) -> std::io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let read = async {
        let mut due = Instant::now();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = from.read(&mut buffer).await?;
            let weather = shared.weather.lock().expect("weather").clone();
            if count == 0 || rng.random_bool(weather.breaks) {
                return std::io::Result::Ok(());
            }
            let mut late = rng.random_range(weather.late_ms);
            if rng.random_bool(weather.stalls) {
                late += rng.random_range(weather.stall_ms);
            }
            due = due.max(Instant::now() + Duration::from_millis(late));
            if sender.send((due, buffer[..count].to_vec())).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}
