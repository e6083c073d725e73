//! How far a partition that moves to this member has loaded, and from which sources.
//!
//! ```text
//! space:     protocol ───────────────────┤ user ──────────────────────────────┤ end
//! old owner  ════════════════════════════╪═══════╡ damaged       ╞═════════════
//! two others                                     ╞═══════════════╡
//! frontier   ────────────────────────────────────► ──────────────► ────────────
//! ```
//!
//! Invariants
//! 1. In front of the frontier each record has loaded from enough sources, and none of them was
//!    passed over.
//! 2. A source was walked without a gap from the frontier, or from before it, to where it was
//!    reached.
//! 3. A walk begins at the frontier or before it, unless the source was reached further on.
//!
//! Not here: walks (`loader.rs`, `walk.rs`), which sources are enough (crate `ownership`).

use bytes::Bytes;
use dendra_base::Space;
use dendra_ownership::loss::WalkPart;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::sources::Sources;
use std::collections::{BTreeMap, VecDeque};

/// The spaces that a new owner loads, in this order.
const SPACES: &[Space] = &[Space::Protocol, Space::User];

/// A place in the records of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadPlace {
    /// So many spaces lie in front of it.
    spaces: usize,
    /// The raw key from which on records lie behind it.
    key: Bytes,
}

impl LoadPlace {
    /// Where so much is left of a walk.
    pub(crate) fn before(left: &VecDeque<WalkPart>) -> LoadPlace {
        LoadPlace {
            spaces: SPACES.len() - left.len(),
            // A key of an answer would keep the whole frame.
            key: (left.front()).map_or(Bytes::new(), |part| Bytes::copy_from_slice(&part.start)),
        }
    }

    /// What is left of a walk here.
    pub(crate) fn left(self) -> VecDeque<WalkPart> {
        let spaces = SPACES.iter().skip(self.spaces);
        let mut left: VecDeque<WalkPart> = spaces.copied().map(WalkPart::all).collect();
        if let Some(first) = left.front_mut() {
            first.start = self.key;
        }
        left
    }

    /// Is it in front of all records?
    pub(crate) fn is_begin(&self) -> bool {
        self.spaces == 0 && self.key.is_empty()
    }

    /// Is it behind all records?
    fn is_end(&self) -> bool {
        self.spaces == SPACES.len()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// The epoch in which its position began to move.
    pub(crate) since: u64,
    frontier: LoadPlace,
    /// How far sources were walked.
    reached: BTreeMap<MemberIndex, LoadPlace>,
    pub(crate) is_told: bool,
}

impl Arriving {
    /// Nothing has loaded since that epoch.
    pub(crate) fn new(since: u64) -> Arriving {
        Arriving {
            since,
            frontier: LoadPlace::default(),
            reached: BTreeMap::new(),
            is_told: false,
        }
    }

    /// Where the next walk of the source has to begin.
    pub(crate) fn start_at(&self, source: MemberIndex) -> LoadPlace {
        let reached = self.reached.get(&source);
        reached
            .max(Some(&self.frontier))
            .cloned()
            .unwrap_or_default()
    }

    /// Was the source walked to its end?
    pub(crate) fn is_walked(&self, source: MemberIndex) -> bool {
        self.reached.get(&source).is_some_and(LoadPlace::is_end)
    }

    /// A walk of the source has got there.
    pub(crate) fn reach(&mut self, source: MemberIndex, place: &LoadPlace) {
        let reached = self.reached.entry(source).or_default();
        if *reached < *place {
            reached.clone_from(place);
        }
    }

    /// Moves the frontier to where enough sources were reached, from one such place to the next.
    pub(crate) fn advance(&mut self, of: &Sources) {
        loop {
            let places = self.reached.values();
            let Some(next) = places.filter(|place| **place > self.frontier).min() else {
                return;
            };
            let is_behind = |source: &MemberIndex| self.reached.get(source) >= Some(next);
            let is_enough = of.old.is_some_and(|old| is_behind(&old.member))
                || of.missing(is_behind, |_| false, |_| false).is_none();
            if !is_enough {
                return;
            }
            self.frontier = next.clone();
        }
    }
}

/// Where sources could not be read, and until when they are not asked there.
#[derive(Debug, Default)]
pub(crate) struct DamagedPlaces(BTreeMap<(MemberIndex, LoadPlace), u64>);

impl DamagedPlaces {
    /// Is there none?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The source could not be read at this place.
    pub(crate) fn note(&mut self, source: MemberIndex, place: LoadPlace, until_us: u64) {
        self.0.insert((source, place), until_us);
    }

    /// Sources are asked again where their time is over.
    pub(crate) fn forget(&mut self, now_us: u64) {
        self.0.retain(|_, until_us| now_us < *until_us);
    }

    /// Would the next walk of the source for this partition begin at such a place?
    pub(crate) fn stops(&self, source: MemberIndex, arriving: &Arriving) -> bool {
        let place = (source, arriving.start_at(source));
        self.0.contains_key(&place)
    }
}
