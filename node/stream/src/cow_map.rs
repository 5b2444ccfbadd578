//! A persistent ordered map: cloning is O(1), and a change copies only the path that it touches.
//!
//! All state of the machine lives in such maps, so that a snapshot is a clone and no command ever copies
//! more than a few nodes of bounded size, however large the state is. It is a B-tree of shared nodes; a
//! node that nobody else holds is changed in place.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;

/// Most children or pairs in a node. Small in the tests of this crate, so that their trees are deep.
const NODE_MAX: usize = if cfg!(test) { 6 } else { 32 };
/// A node with fewer looks for a neighbour to merge with.
const NODE_FEW: usize = NODE_MAX / 4 + 1;
/// Most that a merge of two neighbours may make, so that the next insert does not split it again.
const MERGED_MAX: usize = NODE_MAX * 3 / 4;

/// Ordered map with O(1) clone.
///
/// Invariants: all leaves have the same depth; no node but an absent root is empty; the bound of a child, unless
/// it is its node's first, is at most the child's first key and above the last key of the child before it.
#[derive(Clone)]
pub(crate) struct CowMap<K, V> {
    root: Option<Arc<Node<K, V>>>,
    len: usize,
}

#[derive(Clone)]
enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    Inner(Vec<Child<K, V>>),
}

/// A child behind the lower bound of its keys. The bound of a node's first child means nothing: all that is
/// below the second goes there.
type Child<K, V> = (K, Arc<Node<K, V>>);

enum Inserted<K, V> {
    Replaced(V),
    Fit,
    Split(K, Arc<Node<K, V>>),
}

/// Which pairs an iteration starts with.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a, Q: ?Sized> {
    /// The very first (or, backwards, the very last) pair.
    Edge,
    /// This key or the next one in the direction of travel.
    At(&'a Q),
    /// Beyond this key.
    Beyond(&'a Q),
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        CowMap { root: None, len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> CowMap<K, V> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf(pairs) => return position(pairs, key).ok().map(|at| &pairs[at].1),
                Node::Inner(children) => node = &children[child_of(children, key)].1,
            }
        }
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Copies the path to the value where it is shared. Ask [`CowMap::contains_key`] first if a miss is likely.
    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let mut node = Arc::make_mut(self.root.as_mut()?);
        loop {
            match node {
                Node::Leaf(pairs) => return position(pairs, key).ok().map(|at| &mut pairs[at].1),
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    node = Arc::make_mut(&mut children[at].1);
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::Leaf(alloc::vec![(key, value)])));
            self.len = 1;
            return None;
        };
        match insert(root, key, value) {
            Inserted::Replaced(old) => return Some(old),
            Inserted::Fit => {}
            Inserted::Split(bound, right) => {
                let left = root.clone();
                let children = alloc::vec![(first_key(&left).clone(), left), (bound, right)];
                *root = Arc::new(Node::Inner(children));
            }
        }
        self.len += 1;
        None
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // A miss must not copy the path.
        if !self.contains_key(key) {
            return None;
        }
        let removed = remove(self.root.as_mut()?, key);
        self.len -= usize::from(removed.is_some());
        self.shrink_root();
        removed
    }

    /// Removes every pair below `key` and hands them back as a map.
    pub(crate) fn split_below<Q: Ord + ?Sized>(&mut self, key: &Q) -> CowMap<K, V>
    where
        K: Borrow<Q>,
    {
        let Some(root) = &mut self.root else { return CowMap::new() };
        let mut below = CowMap { root: split_below(root, key), len: 0 };
        below.len = below.root.as_deref().map_or(0, count);
        below.shrink_root();
        if node_len(root) == 0 {
            self.root = None;
        }
        self.len -= below.len;
        self.shrink_root();
        below
    }

    fn shrink_root(&mut self) {
        while let Some(root) = &self.root {
            let next = match &**root {
                Node::Inner(children) if children.len() == 1 => Some(children[0].1.clone()),
                node if node_len(node) == 0 => None,
                _ => return,
            };
            self.root = next;
        }
    }

    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf(pairs) => return pairs.first().map(|(k, v)| (k, v)),
                Node::Inner(children) => node = &children.first()?.1,
            }
        }
    }

    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf(pairs) => return pairs.last().map(|(k, v)| (k, v)),
                Node::Inner(children) => node = &children.last()?.1,
            }
        }
    }

    /// The pair with the largest key that is at most `key`.
    pub(crate) fn floor<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        floor(self.root.as_deref()?, key)
    }

    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        self.iter_from::<K>(Start::Edge)
    }

    /// Walks upwards.
    pub(crate) fn iter_from<Q: Ord + ?Sized>(&self, from: Start<'_, Q>) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let mut iter = Iter { inner: Vec::new(), leaf: &[], at: 0 };
        let Some(mut node) = self.root.as_deref() else { return iter };
        loop {
            match node {
                Node::Inner(children) => {
                    let at = match from {
                        Start::Edge => 0,
                        Start::At(key) | Start::Beyond(key) => child_of(children, key),
                    };
                    iter.inner.push((children, at));
                    node = &children[at].1;
                }
                Node::Leaf(pairs) => {
                    iter.leaf = pairs;
                    iter.at = match from {
                        Start::Edge => 0,
                        Start::At(key) => position(pairs, key).unwrap_or_else(|at| at),
                        Start::Beyond(key) => position(pairs, key).map_or_else(|at| at, |at| at + 1),
                    };
                    return iter;
                }
            }
        }
    }

    /// Walks downwards.
    pub(crate) fn iter_back_from<Q: Ord + ?Sized>(&self, from: Start<'_, Q>) -> IterBack<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let mut iter = IterBack { inner: Vec::new(), leaf: &[], left: 0 };
        let Some(mut node) = self.root.as_deref() else { return iter };
        loop {
            match node {
                Node::Inner(children) => {
                    let at = match from {
                        Start::Edge => children.len() - 1,
                        Start::At(key) | Start::Beyond(key) => child_of(children, key),
                    };
                    iter.inner.push((children, at));
                    node = &children[at].1;
                }
                Node::Leaf(pairs) => {
                    iter.leaf = pairs;
                    iter.left = match from {
                        Start::Edge => pairs.len(),
                        Start::At(key) => position(pairs, key).map_or_else(|at| at, |at| at + 1),
                        Start::Beyond(key) => position(pairs, key).unwrap_or_else(|at| at),
                    };
                    return iter;
                }
            }
        }
    }

    /// Takes the map apart for dropping in slices.
    pub(crate) fn into_debris(self) -> Debris<K, V> {
        Debris { nodes: self.root.into_iter().collect() }
    }
}

fn position<K: Borrow<Q>, V, Q: Ord + ?Sized>(pairs: &[(K, V)], key: &Q) -> Result<usize, usize> {
    // Ids grow, so most searches end behind the last key.
    match pairs.last() {
        Some((last, _)) if last.borrow() < key => Err(pairs.len()),
        _ => pairs.binary_search_by(|(k, _)| k.borrow().cmp(key)),
    }
}

/// The child whose range covers `key`.
fn child_of<K: Borrow<Q>, C, Q: Ord + ?Sized>(children: &[(K, C)], key: &Q) -> usize {
    match children.last() {
        Some((bound, _)) if bound.borrow() <= key => children.len() - 1,
        _ => children[1..].partition_point(|(bound, _)| bound.borrow() <= key),
    }
}

fn first_key<K, V>(node: &Node<K, V>) -> &K {
    match node {
        Node::Leaf(pairs) => &pairs[0].0,
        Node::Inner(children) => &children[0].0,
    }
}

fn node_len<K, V>(node: &Node<K, V>) -> usize {
    match node {
        Node::Leaf(pairs) => pairs.len(),
        Node::Inner(children) => children.len(),
    }
}

fn count<K, V>(node: &Node<K, V>) -> usize {
    match node {
        Node::Leaf(pairs) => pairs.len(),
        Node::Inner(children) => children.iter().map(|(_, child)| count(child)).sum(),
    }
}

/// Makes room at `at` in a full node: an append opens a new node (ids grow, and full nodes stay full),
/// anything else halves.
fn split_at_for<T>(items: &mut Vec<T>, at: usize) -> Option<Vec<T>> {
    (items.len() >= NODE_MAX).then(|| items.split_off(if at == items.len() { at } else { NODE_MAX / 2 }))
}

fn insert_item<T>(items: &mut Vec<T>, at: usize, item: T) -> Option<Vec<T>> {
    let right = split_at_for(items, at);
    match right {
        Some(mut right) => {
            if at > items.len() || right.is_empty() {
                right.insert(at - items.len(), item);
            } else {
                items.insert(at, item);
            }
            Some(right)
        }
        None => {
            items.insert(at, item);
            None
        }
    }
}

fn insert<K: Ord + Clone, V: Clone>(node: &mut Arc<Node<K, V>>, key: K, value: V) -> Inserted<K, V> {
    match Arc::make_mut(node) {
        Node::Leaf(pairs) => match position(pairs, &key) {
            Ok(at) => Inserted::Replaced(core::mem::replace(&mut pairs[at].1, value)),
            Err(at) => match insert_item(pairs, at, (key, value)) {
                None => Inserted::Fit,
                Some(right) => Inserted::Split(right[0].0.clone(), Arc::new(Node::Leaf(right))),
            },
        },
        Node::Inner(children) => {
            let at = child_of(children, &key);
            match insert(&mut children[at].1, key, value) {
                Inserted::Split(bound, right) => match insert_item(children, at + 1, (bound, right)) {
                    None => Inserted::Fit,
                    Some(right) => Inserted::Split(right[0].0.clone(), Arc::new(Node::Inner(right))),
                },
                done => done,
            }
        }
    }
}

fn remove<K: Ord + Clone + Borrow<Q>, V: Clone, Q: Ord + ?Sized>(
    node: &mut Arc<Node<K, V>>,
    key: &Q,
) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Leaf(pairs) => {
            let at = position(pairs, key).ok()?;
            Some(pairs.remove(at).1)
        }
        Node::Inner(children) => {
            let at = child_of(children, key);
            let removed = remove(&mut children[at].1, key)?;
            tidy(children, at);
            Some(removed)
        }
    }
}

/// After a removal under child `at`: drops it when empty, merges it with a neighbour when both are small.
fn tidy<K: Ord + Clone, V: Clone>(children: &mut Vec<Child<K, V>>, at: usize) {
    let len = node_len(&children[at].1);
    if len == 0 {
        children.remove(at);
        return;
    }
    if len >= NODE_FEW {
        return;
    }
    let fits = |children: &[Child<K, V>], i: usize| len + node_len(&children[i].1) <= MERGED_MAX;
    let left = if at > 0 && fits(children, at - 1) {
        at - 1
    } else if at + 1 < children.len() && fits(children, at + 1) {
        at
    } else {
        return;
    };
    let (bound, right) = children.remove(left + 1);
    match (Arc::make_mut(&mut children[left].1), Arc::unwrap_or_clone(right)) {
        (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
        (Node::Inner(left), Node::Inner(mut right)) => {
            // A first child's bound is never searched, so it may be off; from here on it has to separate.
            right[0].0 = bound;
            left.extend(right);
        }
        _ => unreachable!("siblings have the same depth"),
    }
}

/// Splits off what lies below `key`; `node` may be left empty.
fn split_below<K: Ord + Clone + Borrow<Q>, V: Clone, Q: Ord + ?Sized>(
    node: &mut Arc<Node<K, V>>,
    key: &Q,
) -> Option<Arc<Node<K, V>>> {
    match Arc::make_mut(node) {
        Node::Leaf(pairs) => {
            let at = position(pairs, key).unwrap_or_else(|at| at);
            let below: Vec<_> = pairs.drain(..at).collect();
            (!below.is_empty()).then(|| Arc::new(Node::Leaf(below)))
        }
        Node::Inner(children) => {
            let at = child_of(children, key);
            let mut below: Vec<_> = children.drain(..at).collect();
            let (bound, child) = &mut children[0];
            if let Some(part) = split_below(child, key) {
                below.push((bound.clone(), part));
            }
            if node_len(child) == 0 {
                children.remove(0);
            }
            (!below.is_empty()).then(|| Arc::new(Node::Inner(below)))
        }
    }
}

fn floor<'a, K: Borrow<Q>, V, Q: Ord + ?Sized>(node: &'a Node<K, V>, key: &Q) -> Option<(&'a K, &'a V)> {
    match node {
        Node::Leaf(pairs) => {
            let end = position(pairs, key).map_or_else(|at| at, |at| at + 1);
            pairs[..end].last().map(|(k, v)| (k, v))
        }
        // The covering child can lack a key that low; then the child before it ends with the answer.
        Node::Inner(children) => {
            let at = child_of(children, key);
            children[..=at].iter().rev().find_map(|(_, child)| floor(child, key))
        }
    }
}

/// See [`CowMap::iter_from`].
pub(crate) struct Iter<'a, K, V> {
    inner: Vec<(&'a [Child<K, V>], usize)>,
    leaf: &'a [(K, V)],
    at: usize,
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at >= self.leaf.len() {
            let (children, at) = loop {
                let (children, at) = self.inner.last_mut()?;
                *at += 1;
                if *at < children.len() {
                    break (*children, *at);
                }
                self.inner.pop();
            };
            let mut node = &*children[at].1;
            while let Node::Inner(children) = node {
                self.inner.push((children, 0));
                node = &children[0].1;
            }
            if let Node::Leaf(pairs) = node {
                self.leaf = pairs;
                self.at = 0;
            }
        }
        let (key, value) = &self.leaf[self.at];
        self.at += 1;
        Some((key, value))
    }
}

/// See [`CowMap::iter_back_from`].
pub(crate) struct IterBack<'a, K, V> {
    inner: Vec<(&'a [Child<K, V>], usize)>,
    leaf: &'a [(K, V)],
    left: usize,
}

impl<'a, K, V> Iterator for IterBack<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.left == 0 {
            let (children, at) = loop {
                let (children, at) = self.inner.last_mut()?;
                if *at > 0 {
                    *at -= 1;
                    break (*children, *at);
                }
                self.inner.pop();
            };
            let mut node = &*children[at].1;
            while let Node::Inner(children) = node {
                self.inner.push((children, children.len() - 1));
                node = &children[children.len() - 1].1;
            }
            if let Node::Leaf(pairs) = node {
                self.leaf = pairs;
                self.left = pairs.len();
            }
        }
        self.left -= 1;
        let (key, value) = &self.leaf[self.left];
        Some((key, value))
    }
}

/// A map on its way out, dropped a few pairs at a time.
pub(crate) struct Debris<K, V> {
    nodes: Vec<Arc<Node<K, V>>>,
}

impl<K, V> Debris<K, V> {
    /// Drops nodes until `budget` (in pairs) is used up, handing values that nobody else holds to `shed`.
    /// Answers whether anything is left.
    pub(crate) fn drop_slice(&mut self, budget: &mut usize, mut shed: impl FnMut(V)) -> bool {
        while *budget > 0 {
            let Some(node) = self.nodes.pop() else { return false };
            // A node that a clone still holds is the clone's to drop.
            match Arc::into_inner(node) {
                Some(Node::Inner(children)) => {
                    *budget = budget.saturating_sub(1);
                    self.nodes.extend(children.into_iter().map(|(_, child)| child));
                }
                Some(Node::Leaf(pairs)) => {
                    *budget = budget.saturating_sub(pairs.len());
                    pairs.into_iter().for_each(|(_, value)| shed(value));
                }
                None => *budget = budget.saturating_sub(1),
            }
        }
        !self.nodes.is_empty()
    }
}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for CowMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u16, u32),
        Append(u32),
        Remove(u16),
        /// Keys that follow each other: whole nodes go.
        RemoveRun(u16, u16),
        RemoveFirst,
        Change(u16, u32),
        SplitBelow(u16),
        Keep,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..500u16, any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
            6 => any::<u32>().prop_map(Step::Append),
            4 => (0..500u16).prop_map(Step::Remove),
            2 => (0..500u16, 1..40u16).prop_map(|(k, n)| Step::RemoveRun(k, n)),
            2 => Just(Step::RemoveFirst),
            2 => (0..500u16, any::<u32>()).prop_map(|(k, v)| Step::Change(k, v)),
            1 => (0..500u16).prop_map(Step::SplitBelow),
            1 => Just(Step::Keep),
        ]
    }

    fn check(map: &CowMap<u16, u32>, model: &BTreeMap<u16, u32>) {
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter()));
        assert!(map.iter_back_from::<u16>(Start::Edge).eq(model.iter().rev()));
        assert_eq!(map.first(), model.first_key_value());
        assert_eq!(map.last(), model.last_key_value());
        if let Some(root) = &map.root {
            assert_shape(root);
        }
    }

    /// Depth of the leaves under `node`, after checking the invariants.
    fn assert_shape(node: &Node<u16, u32>) -> usize {
        assert!((1..=NODE_MAX).contains(&node_len(node)));
        match node {
            Node::Leaf(_) => 0,
            Node::Inner(children) => {
                let depths: Vec<_> = children.iter().map(|(_, child)| assert_shape(child)).collect();
                assert!(depths.iter().all(|d| *d == depths[0]));
                assert!(children.iter().skip(1).all(|(bound, child)| *bound <= min_key(child)));
                assert!(children[1..].windows(2).all(|w| w[0].0 < w[1].0));
                depths[0] + 1
            }
        }
    }

    fn min_key(node: &Node<u16, u32>) -> u16 {
        match node {
            Node::Leaf(pairs) => pairs[0].0,
            Node::Inner(children) => min_key(&children[0].1),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_map_and_its_clones_each_behave_like_a_btree_map(
            steps in prop::collection::vec(step(), 0..1500),
            probes in prop::collection::vec(0..600u16, 60),
        ) {
            let mut map = CowMap::new();
            let mut model = BTreeMap::new();
            let mut kept: Vec<(CowMap<u16, u32>, BTreeMap<u16, u32>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(k, v) => prop_assert_eq!(map.insert(k, v), model.insert(k, v)),
                    Step::Append(v) => {
                        let k = model.keys().next_back().map_or(0, |k| k + 1);
                        prop_assert_eq!(map.insert(k, v), model.insert(k, v));
                    }
                    Step::Remove(k) => prop_assert_eq!(map.remove(&k), model.remove(&k)),
                    Step::RemoveRun(from, n) => {
                        for k in from..from + n {
                            prop_assert_eq!(map.remove(&k), model.remove(&k));
                        }
                    }
                    Step::RemoveFirst => {
                        let k = model.keys().next().copied().unwrap_or(0);
                        prop_assert_eq!(map.remove(&k), model.remove(&k));
                    }
                    Step::Change(k, v) => {
                        let (a, b) = (map.get_mut(&k), model.get_mut(&k));
                        prop_assert_eq!(a.is_some(), b.is_some());
                        if let (Some(a), Some(b)) = (a, b) {
                            (*a, *b) = (v, v);
                        }
                    }
                    Step::SplitBelow(k) => {
                        let above = model.split_off(&k);
                        let below = core::mem::replace(&mut model, above);
                        check(&map.split_below(&k), &below);
                    }
                    Step::Keep => kept.push((map.clone(), model.clone())),
                }
            }
            check(&map, &model);
            for probe in probes {
                prop_assert_eq!(map.get(&probe), model.get(&probe));
                prop_assert_eq!(map.floor(&probe), model.range(..=probe).next_back());
                prop_assert!(map.iter_from(Start::At(&probe)).eq(model.range(probe..)));
                prop_assert!(map.iter_from(Start::Beyond(&probe)).eq(model.range(probe + 1..)));
                prop_assert!(map.iter_back_from(Start::At(&probe)).eq(model.range(..=probe).rev()));
                prop_assert!(map.iter_back_from(Start::Beyond(&probe)).eq(model.range(..probe).rev()));
            }
            for (map, model) in &kept {
                check(map, model);
            }
        }
    }

    #[test]
    fn debris_goes_in_slices_and_spares_what_a_clone_holds() {
        let mut map = CowMap::new();
        for k in 0..10_000u16 {
            map.insert(k, u32::from(k));
        }
        let kept = map.clone();
        let mut debris = map.into_debris();
        let mut shed = 0;
        while debris.drop_slice(&mut 100, |_| shed += 1) {}
        assert_eq!(shed, 0);
        assert_eq!(kept.iter().count(), 10_000);
        let mut debris = kept.into_debris();
        let mut slices = 1;
        while debris.drop_slice(&mut 100, |_| shed += 1) {
            slices += 1;
        }
        assert_eq!(shed, 10_000);
        assert!(slices > 50);
    }
}
