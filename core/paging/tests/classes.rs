//! Page classes against a brute force over addresses, on random geometries.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_paging::PAGE;
use weir_paging::classes::{
    BadGeometry, ClassSet, Geometry, MAX_BANK_BITS, PageClass, PageClasses, Pages,
};

const CACHE_LINE: u64 = 64;

/// What a page touches, found line by line: its color, and every bank that one of its lines is in.
fn touched(geometry: &Geometry, page: u64) -> (u64, BTreeSet<u64>) {
    let bank = |address: u64| {
        let parity = |mask: &u64| u64::from((address & mask).count_ones() % 2);
        geometry.banks.iter().rev().fold(0, |bank, mask| bank << 1 | parity(mask))
    };
    let lines = (page..page + PAGE).step_by(CACHE_LINE as usize);
    (page & geometry.colors, lines.map(bank).collect())
}

fn rank(masks: &[u64]) -> usize {
    let mut span = BTreeSet::from([0]);
    for mask in masks {
        let more: Vec<_> = span.iter().map(|sum| sum ^ mask).collect();
        span.extend(more);
    }
    span.len().ilog2() as usize
}

prop_compose! {
    /// Up to four color bits and four bank functions of up to four bits each, within `top` bits.
    fn masks(top: u32)(
        color_start in 12..15u32, colors in 0..5u32,
        banks in prop::collection::vec(prop::collection::vec(6..top, 1..5), 0..5),
    ) -> Geometry {
        let mut geometry =
            Geometry { colors: ((1 << colors) - 1) << color_start, ..Geometry::NONE };
        for (slot, bits) in geometry.banks.iter_mut().zip(banks) {
            *slot = bits.iter().fold(0, |mask, bit| mask | 1 << bit);
        }
        geometry
    }
}

fn geometry(top: u32) -> impl Strategy<Value = (Geometry, PageClasses)> {
    masks(top).prop_filter_map("no geometry", |geometry| {
        Some((geometry, PageClasses::new(&geometry).ok()?))
    })
}

/// Some of the page classes, by random words: any, or those of some colors, of some banks, or of
/// both.
fn some(classes: &PageClasses, seed: [u64; 4]) -> ClassSet {
    let (color, bank) = (seed[0] & 1 != 0, seed[0] & 2 != 0);
    let chosen = |class| {
        (!color || seed[1] >> (classes.color(class) % 64) & 1 != 0)
            && (!bank || seed[2] >> (classes.bank(class) % 64) & 1 != 0)
    };
    if color || bank {
        return classes.select(chosen).unwrap_or(classes.all());
    }
    classes
        .all()
        .intersection(&ClassSet::new(seed).unwrap_or(classes.all()))
        .unwrap_or(classes.all())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Two pages are in one page class exactly when they have the same color and touch the same
    /// banks.
    #[test]
    fn classes_are_what_pages_cannot_tell_apart(
        (geometry, classes) in geometry(20), base in 0..1u64 << 20,
    ) {
        let mut seen = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        for page in (0..256).map(|page| ((base << 12) + page * PAGE) & ((1 << 40) - 1)) {
            let class = classes.class_of(page);
            let (color, banks) = touched(&geometry, page);
            prop_assert_eq!(banks.len(), usize::from(classes.banks_in_group()));
            prop_assert_eq!(seen.entry((color, banks.clone())).or_insert(class), &class);
            prop_assert_eq!(classes.class_of(page + PAGE - 1), class);
            numbers.insert(class);
        }
        prop_assert_eq!(numbers.len(), seen.len(), "two page classes alike");
        prop_assert_eq!(numbers.len(), classes.count());
        for ((color, banks), &a) in &seen {
            for ((other_color, other_banks), &b) in &seen {
                prop_assert_eq!(classes.share_color(a, b), color == other_color);
                prop_assert_eq!(classes.share_bank(a, b), banks == other_banks);
                prop_assert_eq!(banks == other_banks, !banks.is_disjoint(other_banks));
            }
        }
        let colors: BTreeSet<_> = seen.keys().map(|(color, _)| color).collect();
        let groups: BTreeSet<_> = seen.keys().map(|(_, banks)| banks).collect();
        prop_assert_eq!(colors.len(), usize::from(classes.colors()));
        prop_assert_eq!(groups.len(), usize::from(classes.bank_groups()));
    }

    #[test]
    fn dependent_functions_are_refused(geometry in masks(20)) {
        let used: Vec<_> = geometry.banks.into_iter().filter(|mask| *mask != 0).collect();
        let independent = rank(&used) == used.len();
        match PageClasses::new(&geometry) {
            Err(BadGeometry::Dependent(index)) => {
                prop_assert!(!independent);
                prop_assert_eq!(rank(&used[..=index]), index);
            }
            Err(other) => prop_assert_eq!(other, BadGeometry::TooMany(0), "unexpected"),
            Ok(_) => prop_assert!(independent),
        }
    }

    /// The bits that a set's colors depend on, against all of its colors; by these alone sets are
    /// apart that are.
    #[test]
    fn color_bits_of_sets((_, classes) in geometry(20), one: [u64; 4], two: [u64; 4]) {
        let colors =
            |set: &ClassSet| set.iter().map(|class| classes.color(class)).collect::<BTreeSet<_>>();
        let [one, two] = [some(&classes, one), some(&classes, two)];
        for bit in 0..classes.colors().ilog2() {
            let flipped: BTreeSet<_> = colors(&one).iter().map(|color| color ^ 1 << bit).collect();
            prop_assert_eq!(classes.color_bits_of(&one) >> bit & 1 != 0, flipped != colors(&one));
        }
        let bits = classes.color_bits_of(&one) | classes.color_bits_of(&two);
        prop_assert_eq!(bits >> classes.colors().ilog2(), 0);
        let seen =
            |set| colors(set).iter().map(|color| u64::from(*color) & bits).collect::<BTreeSet<_>>();
        let apart = colors(&one).is_disjoint(&colors(&two));
        prop_assert_eq!(apart, seen(&one).is_disjoint(&seen(&two)));
        prop_assert_eq!(classes.color_bits_of(&classes.all()), 0);
    }

    /// Pages, runs, places and their inverse against a walk over all pages of the range.
    #[test]
    fn pages_are_those_of_the_range(
        (_, classes) in geometry(24), seed: [u64; 4], base in 0..1u64 << 16, start in 0..8192u64,
        len in 0..12_000u64, taken in 0..100usize,
    ) {
        let set = some(&classes, seed);
        let base = base << 24;
        let range = base + start * 1024..base + start * 1024 + len * 1024;
        let all = (range.start.div_ceil(PAGE)..range.end / PAGE).map(|page| page * PAGE);
        let expected: Vec<_> = all.filter(|&page| set.contains(classes.class_of(page))).collect();
        let mut pages = Pages::new(&classes, set, range);
        prop_assert_eq!(pages.total(), expected.len() as u64);
        prop_assert_eq!(pages.end(), expected.last().map(|last| last + PAGE));
        prop_assert_eq!(&pages.clone().collect::<Vec<_>>(), &expected);
        let runs: Vec<_> = std::iter::from_fn(|| {
            pages.clone().next_run().inspect(|_| {
                pages.next_run();
            })
        })
        .collect();
        for pair in runs.windows(2) {
            prop_assert!(pair[0].end < pair[1].start, "runs are maximal");
        }
        let of_runs = runs.into_iter().flat_map(|run| run.step_by(PAGE as usize));
        prop_assert_eq!(&of_runs.collect::<Vec<_>>(), &expected);
        prop_assert_eq!(pages.left(), 0);
        let step = expected.len() / 20 + 1;
        for (index, &page) in expected.iter().enumerate().step_by(step) {
            prop_assert_eq!(pages.nth_page(index as u64), Some(page));
            prop_assert_eq!(classes.nth_page(&set, expected[0], index as u64), Some(page));
            prop_assert_eq!(pages.index_of(page + 8), Some(index as u64));
        }
        prop_assert_eq!(pages.nth_page(expected.len() as u64), None);
        if let Some(&first) = expected.get(taken) {
            let from: Vec<_> = Pages::from_page(&classes, set, first, 70 * PAGE).collect();
            prop_assert_eq!(from.len(), 70);
            prop_assert!(from.iter().zip(&expected[taken..]).all(|(a, b)| a == b));
            prop_assert_eq!(from[0], first);
        }
    }

    /// Descriptors, however many entries are asked for at once.
    #[test]
    fn fills_what_it_gives(
        (_, classes) in geometry(26), seed: [u64; 4], start in 0..1u64 << 16,
        chunks in prop::collection::vec(1..600usize, 1..8),
    ) {
        let set = some(&classes, seed);
        let mut pages = Pages::new(&classes, set, start * PAGE..1 << 32);
        let expected: Vec<_> =
            pages.clone().take(chunks.iter().sum()).map(|page| page ^ 0x7ff).collect();
        let mut filled = Vec::new();
        for chunk in chunks {
            let mut entries = vec![0; chunk];
            let count = pages.fill(&mut entries, 0x7ff);
            prop_assert!(entries[count..].iter().all(|entry| *entry == 0));
            filled.extend_from_slice(&entries[..count]);
        }
        prop_assert_eq!(filled, expected);
    }

    /// Any query of any set.
    #[test]
    fn nothing_panics(
        colors: u64, banks: [u64; MAX_BANK_BITS], used in 0..5usize, set: [u64; 4], start: u64,
        end: u64, address: u64,
    ) {
        let _ = PageClasses::new(&Geometry { colors, banks });
        let mut geometry =
            Geometry { colors: colors & 0xf00_f000, banks: banks.map(|mask| mask >> 24) };
        geometry.banks[used..].fill(0);
        let (Ok(classes), Some(set)) = (PageClasses::new(&geometry), ClassSet::new(set)) else {
            return Ok(());
        };
        for range in [start..end, start % (1 << 41)..end, address..address] {
            let mut pages = Pages::new(&classes, set, range.clone());
            let _ = (
                pages.nth_page(start),
                pages.index_of(address),
                pages.end(),
                classes.class_of(address),
            );
            let few: Vec<_> = pages.by_ref().take(20).collect();
            prop_assert!(
                few.iter()
                    .all(|page| range.contains(page) && set.contains(classes.class_of(*page)))
            );
            prop_assert!(few.is_sorted());
            pages.next_run();
        }
    }
}

#[test]
fn a_set_has_a_class() {
    assert_eq!(ClassSet::new([0; 4]), None);
    assert_eq!(ClassSet::of([]), None);
    let a = ClassSet::of([PageClass(3), PageClass(0), PageClass(255)]).unwrap();
    assert_eq!((a.len(), a.to_string().as_str()), (3, "0,3,255"));
    assert_eq!(a.without(&a), None);
    assert_eq!(a.intersection(&ClassSet::ONE), Some(ClassSet::ONE));
    assert!(ClassSet::ONE.is_within(&a) && !ClassSet::ONE.is_apart_from(&a));
    assert_eq!(
        PageClasses::ONE.set([2, 0, 0, 0]),
        None,
        "a page class that the board doesn't have"
    );
    assert_eq!(PageClasses::ONE.all(), ClassSet::ONE);
}

#[test]
fn broken_geometries_are_refused() {
    assert_eq!(Geometry::color_bits(1 << 20, 16, 4096), Ok(0xf000));
    assert_eq!(Geometry::color_bits(1 << 20, 16, 65536), Err(BadGeometry::Page(65536)));
    assert_eq!(Geometry::color_bits(1 << 20, 12, 4096), Err(BadGeometry::Cache));
    assert_eq!(
        Geometry::color_bits(32 << 10, 16, 4096),
        Err(BadGeometry::Cache),
        "a way below a page"
    );
    assert_eq!(Geometry::color_bits(1 << 20, 0, 4096), Err(BadGeometry::Cache));
    let broken = |colors, banks: &[u64]| {
        let mut geometry = Geometry { colors, ..Geometry::NONE };
        geometry.banks[..banks.len()].copy_from_slice(banks);
        PageClasses::new(&geometry).unwrap_err()
    };
    assert_eq!(broken(0x800, &[]), BadGeometry::Color(11));
    assert_eq!(broken(1 << 40, &[]), BadGeometry::Color(40));
    assert_eq!(broken(0x1ff << 12, &[]), BadGeometry::TooMany(9));
    assert_eq!(broken(0xff << 12, &[1 << 20]), BadGeometry::TooMany(9));
    assert_eq!(broken(0, &[1 << 13, 0, 1 << 14]), BadGeometry::Bank(1));
    assert_eq!(broken(0, &[1 << 41]), BadGeometry::Bank(0));
    assert_eq!(broken(0, &[3 << 13, 3 << 14, 5 << 13]), BadGeometry::Dependent(2));
    assert_eq!(broken(0, &[0x800, 0x2800, 0x2000]), BadGeometry::Dependent(2));
}
