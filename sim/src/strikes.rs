//! Carries a plan's faults out and takes them back when their time is over.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use weir_tests::check::Violation;

use crate::{
    book::Book,
    cluster::Cluster,
    coverage::Coverage,
    disk::Changes,
    faults::{Crash, Cut, Damage, Fault, Who},
    invariants::damaged_nodes_stop::{self, Excuse},
    plan::Planned,
};

/// Answers may be late for this long after a fault is over: elections, reconnects, what gathered meanwhile.
const AFTERMATH: Duration = Duration::from_millis(2500);

/// What is done when a fault's time is over.
#[derive(Debug)]
enum Undo {
    Start(usize),
    Mend(u64),
    Resume(usize, u64),
    DiskSpeed(usize),
    DiskSpace(usize),
    Latency,
    /// The second half of an interrupted install: mend the cut, crash the node a moment later.
    Rejoin {
        cut: u64,
        node: usize,
        then: Duration,
        how: Crash,
        down: Duration,
    },
    Crash {
        node: usize,
        how: Crash,
        down: Duration,
    },
}

/// The faults of a run.
pub(crate) struct Strikes {
    planned: Vec<Planned>,
    next: usize,
    started: Duration,
    undo: Vec<(Duration, Undo)>,
    /// Why a node may stop by itself, and whether it is started again after that.
    excuses: BTreeMap<usize, (Excuse, Option<Duration>)>,
    /// Nodes that may stay out.
    damaged: BTreeSet<usize>,
    /// When nodes went down that have not come back.
    down_since: BTreeMap<usize, Duration>,
    /// The fault that each node's ordered stop belongs to, and how long the node is down then.
    ordered: BTreeMap<usize, (String, Duration)>,
    cuts: Rc<Cell<u64>>,
    book: Book,
    pub(crate) coverage: Coverage,
}

impl Strikes {
    pub(crate) fn new(planned: Vec<Planned>, started: Duration, cuts: Rc<Cell<u64>>, book: Book) -> Self {
        Self {
            planned,
            next: 0,
            started,
            undo: Vec::new(),
            excuses: BTreeMap::new(),
            damaged: BTreeSet::new(),
            down_since: BTreeMap::new(),
            ordered: BTreeMap::new(),
            cuts,
            book,
            coverage: Coverage::default(),
        }
    }

    /// Whether everything has struck and is over.
    pub(crate) fn over(&self) -> bool {
        self.next == self.planned.len() && self.undo.is_empty()
    }

    /// Does what is due.
    pub(crate) fn act(&mut self, cluster: &mut Cluster) {
        let now = cluster.world.now();
        // Before anything starts a node again that stopped this very moment, or it would count as down from then on.
        for (node, power, point) in std::mem::take(&mut cluster.world.stops) {
            let how = if power { "power off" } else { "kill" };
            let (fault, down) = self.ordered.remove(&node).unwrap_or_else(|| (how.to_owned(), Duration::MAX));
            for (at, undo) in &mut self.undo {
                if matches!(undo, Undo::Start(stopped) if *stopped == node) {
                    *at = (*at).min(now.saturating_add(down));
                }
            }
            self.coverage.count(&fault, &format!("{} {}", point.0, point.1));
            self.went_down(node, now);
        }
        while let Some(planned) = self.planned.get(self.next)
            && self.started + Duration::from_millis(planned.at_ms) <= now
        {
            let fault = planned.fault.clone();
            self.next += 1;
            self.strike(&fault, cluster);
        }
        while let Some(at) = self.undo.iter().position(|(at, _)| *at <= now) {
            let (_, undo) = self.undo.remove(at);
            self.take_back(undo, cluster);
        }
    }

    /// Takes everything back at once.
    pub(crate) fn end(&mut self, cluster: &mut Cluster) {
        self.next = self.planned.len();
        for (_, undo) in std::mem::take(&mut self.undo) {
            match undo {
                Undo::Rejoin { cut, .. } => cluster.world.mend(cut),
                Undo::Crash { .. } => {}
                undo => self.take_back(undo, cluster),
            }
        }
        cluster.world.mend_all();
        for node in 0..cluster.nodes() {
            cluster.world.nodes[node].disk.call_off_halt();
            cluster.world.nodes[node].disk.call_off_failing_sync();
            if !cluster.world.is_up(node) && !self.damaged.contains(&node) {
                self.start(node, cluster);
            }
        }
    }

    /// A node ended by itself: judges that, and starts it again where that should help.
    pub(crate) fn ended(&mut self, node: usize, said: &str, cluster: &mut Cluster) -> Option<Violation> {
        let name = cluster.world.nodes[node].name.clone();
        let now = cluster.world.now();
        self.went_down(node, now);
        let excuse = match self.excuses.get(&node) {
            Some((excuse, _)) => Some(*excuse),
            None if self.damaged.contains(&node) => Some(Excuse::Damaged),
            None => None,
        };
        if let Some((_, Some(again))) = self.excuses.remove(&node) {
            self.coverage.count("failed sync", "log sync");
            self.undo.push((now + again, Undo::Start(node)));
        }
        let judged = damaged_nodes_stop::check(&name, excuse, said);
        judged.err().map(|text| cluster.violation(damaged_nodes_stop::NAME, text))
    }

    fn strike(&mut self, fault: &Fault, cluster: &mut Cluster) {
        cluster.world.trace.line("world", format_args!("fault: {fault}"));
        let now = cluster.world.now();
        let end = now + Duration::from_millis(fault.lasts_ms());
        if !matches!(fault, Fault::ClockJump { .. }) {
            self.book.disturbed(now, end + AFTERMATH);
        }
        let done = self.carry_out(fault, now, end, cluster);
        if !done {
            cluster.world.trace.line("world", "nobody to strike");
        } else if !matches!(fault, Fault::Crash { how, .. } if !how.is_at_once())
            && !matches!(fault, Fault::FailSync { .. })
        {
            self.coverage.count(&fault.name(), "between steps");
        }
    }

    /// False when the fault found no one.
    fn carry_out(&mut self, fault: &Fault, now: Duration, end: Duration, cluster: &mut Cluster) -> bool {
        match fault {
            Fault::Crash { who, how, down_ms } => {
                let Some(node) = find(*who, cluster) else { return false };
                let down = Duration::from_millis(*down_ms);
                self.ordered.insert(node, (fault.name(), down));
                self.crash(node, *how, down, cluster);
            }
            Fault::PowerLossOfAll { down_ms } | Fault::KillAll { down_ms } => {
                for (node, down_ms) in down_ms.iter().enumerate().take(cluster.nodes()) {
                    let how = match fault {
                        Fault::KillAll { .. } => Crash::Kill,
                        _ => Crash::Power,
                    };
                    if cluster.world.is_up(node) || matches!(how, Crash::Power) {
                        self.crash(node, how, Duration::from_millis(*down_ms), cluster);
                    }
                }
            }
            Fault::Damage { who, what, .. } => {
                let Some(node) = find(*who, cluster).filter(|node| self.may_lose(*node)) else {
                    return false;
                };
                cluster.world.kill(node);
                self.went_down(node, now);
                let disk = &cluster.world.nodes[node].disk;
                let ours = |path: &std::path::Path| {
                    let path = path.to_string_lossy();
                    path.contains("wal") || path.contains("snap")
                };
                let hit = match what {
                    Damage::FlippedBit => disk.flip_a_bit(ours),
                    Damage::CutShort => disk.cut_short(ours),
                };
                if let Some((path, at)) = hit {
                    let name = &cluster.world.nodes[node].name;
                    cluster.world.trace.line(name, format_args!("{what:?} in {} at {at}", path.display()));
                }
                self.damaged.insert(node);
                self.undo.push((end, Undo::Start(node)));
            }
            Fault::Wipe { who, .. } => {
                let Some(node) = find(*who, cluster).filter(|node| self.may_lose(*node)) else {
                    return false;
                };
                cluster.world.kill(node);
                self.went_down(node, now);
                cluster.world.nodes[node].disk.wipe();
                self.damaged.insert(node);
                self.excuses.insert(node, (Excuse::Wiped, None));
                self.undo.push((end, Undo::Start(node)));
            }
            Fault::DiskFull { who, .. } => {
                let Some(node) = find(*who, cluster) else { return false };
                let disk = &cluster.world.nodes[node].disk;
                disk.set_capacity(disk.used_bytes());
                self.undo.push((end, Undo::DiskSpace(node)));
            }
            Fault::FailSync { who, after, down_ms } => {
                // A damaged node may stop for that, and it would not be started again.
                let Some(node) = find(*who, cluster).filter(|node| !self.damaged.contains(node)) else {
                    return false;
                };
                cluster.world.nodes[node].disk.fail_sync_after(*after);
                self.excuses.insert(node, (Excuse::SyncFails, Some(Duration::from_millis(*down_ms))));
            }
            Fault::SlowDisk { who, delay_ms_max, .. } => {
                let Some(node) = find(*who, cluster) else { return false };
                cluster.world.set_disk_delay(node, Some(*delay_ms_max));
                self.undo.push((end, Undo::DiskSpeed(node)));
            }
            Fault::Cut { cut, how, .. } => {
                let Some(links) = links(*cut, cluster) else { return false };
                let cut = cluster.world.cut(links, *how);
                self.undo.push((end, Undo::Mend(cut)));
            }
            Fault::Delay { delay_ms_max, .. } => {
                cluster.world.set_latency(Some(*delay_ms_max));
                self.undo.push((end, Undo::Latency));
            }
            Fault::Pause { who, .. } => {
                let Some(node) = find(*who, cluster) else { return false };
                let cut = cluster.world.pause(node);
                self.undo.push((end, Undo::Resume(node, cut)));
            }
            Fault::ClockJump { who, skew_ms } => {
                let Some(node) = find(*who, cluster) else { return false };
                cluster.world.set_skew(node, *skew_ms);
            }
            Fault::Transfer { shard } => return cluster.transfer(*shard),
            Fault::InterruptedInstall { shard, behind_ms, then_ms, how, down_ms } => {
                let Some(node) = cluster.follower_of(*shard) else { return false };
                let links = cluster.world.links_of(node, true, true);
                let cut = cluster.world.cut(links, crate::faults::Loss::Lost);
                let rejoin = Undo::Rejoin {
                    cut,
                    node,
                    then: Duration::from_millis(*then_ms),
                    how: *how,
                    down: Duration::from_millis(*down_ms),
                };
                self.undo.push((now + Duration::from_millis(*behind_ms), rejoin));
            }
            Fault::CutClients => self.cuts.set(self.cuts.get() + 1),
        }
        true
    }

    /// Only a minority may be lost for good.
    fn may_lose(&self, node: usize) -> bool {
        self.damaged.is_empty() || self.damaged.contains(&node)
    }

    fn went_down(&mut self, node: usize, now: Duration) {
        self.down_since.entry(node).or_insert(now);
    }

    fn crash(&mut self, node: usize, how: Crash, down: Duration, cluster: &mut Cluster) {
        let now = cluster.world.now();
        match how {
            Crash::Kill => cluster.world.kill(node),
            Crash::Power => cluster.world.power_off(node),
            Crash::KillAtChange(changes) => cluster.world.halt(node, Changes::All, changes, false),
            Crash::KillAtRareChange(changes) => cluster.world.halt(node, Changes::Rare, changes, false),
            Crash::PowerAtChange(changes) => cluster.world.halt(node, Changes::All, changes, true),
            Crash::PowerAtRareChange(changes) => cluster.world.halt(node, Changes::Rare, changes, true),
        }
        if how.is_at_once() {
            self.went_down(node, now);
        }
        self.undo.push((now + Duration::from_millis(how.waits_ms()) + down, Undo::Start(node)));
    }

    fn take_back(&mut self, undo: Undo, cluster: &mut Cluster) {
        let world = &mut cluster.world;
        match undo {
            Undo::Start(node) => {
                if world.is_up(node) {
                    // Ordered to stop at a disk change that it did not come to.
                    world.nodes[node].disk.call_off_halt();
                    self.ordered.remove(&node);
                } else {
                    self.start(node, cluster);
                }
            }
            Undo::Mend(cut) => world.mend(cut),
            Undo::Resume(node, cut) => world.resume(node, cut),
            Undo::DiskSpeed(node) => world.set_disk_delay(node, None),
            Undo::DiskSpace(node) => world.nodes[node].disk.set_capacity(crate::disk::CAPACITY),
            Undo::Latency => world.set_latency(None),
            Undo::Rejoin { cut, node, then, how, down } => {
                world.mend(cut);
                self.undo.push((world.now() + then, Undo::Crash { node, how, down }));
            }
            Undo::Crash { node, how, down } => {
                if world.is_up(node) {
                    self.ordered.insert(node, ("install cut".to_owned(), down));
                    self.crash(node, how, down, cluster);
                }
            }
        }
    }

    fn start(&mut self, node: usize, cluster: &mut Cluster) {
        let now = cluster.world.now();
        if let Some(from) = self.down_since.remove(&node) {
            self.book.outage(node, from, now);
        }
        cluster.world.start(node);
    }
}

fn find(who: Who, cluster: &Cluster) -> Option<usize> {
    match who {
        Who::Leader(shard) => cluster.leader_of(shard),
        Who::Follower(shard) => cluster.follower_of(shard),
        Who::Node(node) => Some(node).filter(|node| *node < cluster.nodes() && cluster.world.is_up(*node)),
    }
}

/// The directed links of a cut.
fn links(cut: Cut, cluster: &Cluster) -> Option<BTreeSet<(String, String)>> {
    let world = &cluster.world;
    Some(match cut {
        Cut::Isolated(who) => world.links_of(find(who, cluster)?, true, true),
        Cut::FromNodes(who) => world.links_of(find(who, cluster)?, true, false),
        Cut::FromClients(who) => world.links_of(find(who, cluster)?, false, true),
        Cut::Mute(who) | Cut::Deaf(who) => {
            let node = find(who, cluster)?;
            let name = &world.nodes[node].name;
            let mut links = world.links_of(node, true, false);
            links.retain(|(from, to)| if matches!(cut, Cut::Mute(_)) { from == name } else { to == name });
            links
        }
        Cut::Bridge(one, other) => {
            let (one, other) = (world.nodes.get(one)?.name.clone(), world.nodes.get(other)?.name.clone());
            BTreeSet::from([(one.clone(), other.clone()), (other, one)])
        }
    })
}
