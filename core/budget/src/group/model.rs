//! The words of a group as shipped, on loom's words: every interleaving of a few cores, and every
//! value that Armv8's memory model (and a weaker one) lets a load return. The same models are run
//! on words that do less than required, with which the models must fail.

use super::{GroupWords, Reserve, Spent, Waiting, usage::Slot};
use crate::{
    BudgetVerdict, Compensation, Counts, Event, Memguard, Nanos, Pool, RegulatorKind, Setting,
    Static,
    word::{Ordering, Word},
};
use loom::{
    sync::{Arc, atomic::AtomicU64},
    thread,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// A word that a model can create.
trait Modeled: Word + Send + Sync + 'static {
    fn new(value: u64) -> Self;
}

impl Modeled for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
}

/// A word whose loads and stores ignore a request to acquire or release.
struct Weak<const LOADS: bool, const STORES: bool>(AtomicU64);

impl<const LOADS: bool, const STORES: bool> Word for Weak<LOADS, STORES> {
    fn load(&self, order: Ordering) -> u64 {
        Word::load(&self.0, if LOADS { Ordering::Relaxed } else { order })
    }

    fn store(&self, value: u64, order: Ordering) {
        Word::store(&self.0, value, if STORES { Ordering::Relaxed } else { order });
    }

    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        Word::exchange(&self.0, old, new)
    }
}

impl<const LOADS: bool, const STORES: bool> Modeled for Weak<LOADS, STORES> {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

type WeakLoads = Weak<true, false>;
type WeakStores = Weak<false, true>;

/// A word whose exchange has two steps, with room for another core between them.
struct Split(AtomicU64);

impl Word for Split {
    fn load(&self, order: Ordering) -> u64 {
        Word::load(&self.0, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Word::store(&self.0, value, order);
    }

    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        let value = Word::load(&self.0, Ordering::SeqCst);
        if value != old {
            return Err(value);
        }
        Word::store(&self.0, new, Ordering::SeqCst);
        Ok(value)
    }
}

impl Modeled for Split {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

/// Runs all executions of `model` in which a core is preempted by another at most twice.
fn holds(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Returns whether one of these executions fails.
fn fails(model: fn()) -> bool {
    catch_unwind(AssertUnwindSafe(|| holds(model))).is_err()
}

/// Runs all tasks concurrently, each on its own core. Returns their results.
fn together<T: Send + 'static>(tasks: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
    let threads: Vec<_> = tasks.into_iter().map(thread::spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Three cores enter period 2 and draw; one of them does so after it drew the last of period 1.
fn no_more_is_drawn_than_there_is<W: Modeled>() {
    let reserve = Arc::new(Reserve::on(W::new(0)));
    assert_eq!(reserve.draw(1, 1, 1), 1);
    let core = |want: [(u64, u64); 2]| {
        let reserve = Arc::clone(&reserve);
        let draw = move || want.map(|(period, want)| reserve.draw(period, 5, want));
        Box::new(draw) as Box<dyn FnOnce() -> [u64; 2] + Send>
    };
    let got = together(vec![core([(1, 2), (2, 2)]), core([(2, 2), (2, 3)])]);
    // Period 1 had one access, which is gone.
    assert_eq!(got[0][0], 0);
    assert_eq!(got[0][1] + got[1][0] + got[1][1], 5);
    assert_eq!(reserve.draw(2, 5, 5), 0);
}

/// Two cores give and draw in the period that each of them may begin.
fn what_is_given_is_there_once<W: Modeled>() {
    let reserve = Arc::new(Reserve::on(W::new(0)));
    let core = |gift: u64| {
        let reserve = Arc::clone(&reserve);
        let swap = move || {
            let given = reserve.give(1, gift);
            (given, reserve.draw(1, 0, 4))
        };
        Box::new(swap) as Box<dyn FnOnce() -> (u64, u64) + Send>
    };
    let cores = together(vec![core(3), core(2)]);
    let (given, drawn) = (cores[0].0 + cores[1].0, cores[0].1 + cores[1].1);
    assert_eq!(given, 5);
    assert_eq!(drawn + reserve.draw(1, 0, 9), given);
}

/// Three members spend their budgets; exactly one of them is the last.
fn one_is_the_last<W: Modeled>() {
    let spent = Arc::new(Spent::on(W::new(0)));
    let core = |member: u32| {
        let spent = Arc::clone(&spent);
        Box::new(move || spent.mark(1, member, 0b111)) as Box<dyn FnOnce() -> _ + Send>
    };
    let mut marks = together(vec![core(0b001), core(0b010)]);
    marks.push(spent.mark(1, 0b100, 0b111));
    assert_eq!(marks.iter().filter(|mark| mark.news).count(), 1);
    assert!(spent.mark(1, 0b100, 0b111).all);
}

/// Two vCPUs ask for budget in period 1, and two others return some: each vCPU that asked is named
/// once.
fn each_that_asks_is_woken_once<W: Modeled>() {
    let waiting = Arc::new(Waiting::on(W::new(0)));
    waiting.ask(1, 0b01);
    let core = |asks: u32| {
        let waiting = Arc::clone(&waiting);
        let meet = move || {
            if asks != 0 {
                waiting.ask(1, asks);
            }
            waiting.take(1, u32::MAX)
        };
        Box::new(meet) as Box<dyn FnOnce() -> u32 + Send>
    };
    let mut named = together(vec![core(0), core(0b10)]);
    named.push(waiting.take(1, u32::MAX));
    assert_eq!(named.iter().map(|named| named.count_ones()).sum::<u32>(), 2, "{named:?}");
    assert_eq!(named.iter().fold(0, |all, named| all | named), 0b11);
    assert_eq!(waiting.take(2, u32::MAX), 0, "of another period");
}

/// One core publishes its use in periods 1 and 3, and another core reads both. A count that is
/// found is the use of that period.
fn counts_belong_to_their_period<P: Modeled, D: Modeled>() {
    let slot = Arc::new(Slot { period: P::new(0), reads: D::new(0), writes: D::new(0) });
    let used = |period: u64| Counts { reads: period * 10, writes: period * 20 };
    let writer = {
        let slot = Arc::clone(&slot);
        thread::spawn(move || {
            slot.write(1, used(1));
            slot.write(3, used(3));
        })
    };
    for period in [1, 3] {
        if let Some(found) = slot.read(period) {
            assert_eq!(found, used(period));
        }
    }
    writer.join().unwrap();
    assert_eq!(slot.read(3), Some(used(3)));
    assert_eq!(slot.read(1), None);
}

const PERIOD: u64 = 10;

fn setting(kind: RegulatorKind, budget: u64, vcpu: u8) -> Setting {
    Setting {
        kind,
        slice: Counts::one(1),
        ..Setting::new(Nanos(PERIOD), Counts::one(budget), vcpu, 2)
    }
}

/// Uses up to `wanted` accesses in the period that begins at `now`. Returns the number of accesses
/// made.
fn use_up(
    now: u64,
    from: u64,
    wanted: u64,
    mut step: impl FnMut(Nanos, Counts, Event) -> BudgetVerdict,
) -> u64 {
    let mut used = 0;
    let mut verdict = step(Nanos(now), Counts { reads: from, writes: 0 }, Event::Period);
    while verdict.run && used < wanted {
        assert!(verdict.limit.reads > from + used, "no vCPU runs with a limit that is reached");
        used = wanted.min(verdict.limit.reads - from);
        verdict = step(Nanos(now), Counts { reads: from + used, writes: 0 }, Event::Count);
    }
    used
}

/// Two vCPUs spend a VM's budget of 3 in each of two periods.
fn a_pool_serves_two_vcpus<W: Modeled>() {
    let group = Arc::new(GroupWords::on(|| W::new(0)));
    let core = |vcpu: u8| {
        let group = Arc::clone(&group);
        let mut pool = Pool::new(&setting(RegulatorKind::Pool, 3, vcpu));
        Box::new(move || {
            let mut step = |now, counts, event| pool.step_on(&group, now, counts, event);
            let first = use_up(0, 0, 2, &mut step);
            [first, use_up(PERIOD, first, 2, &mut step)]
        }) as Box<dyn FnOnce() -> [u64; 2] + Send>
    };
    let used = together(vec![core(0), core(1)]);
    for period in [0, 1] {
        assert!(used[0][period] + used[1][period] <= 3, "{used:?}");
    }
}

/// A vCPU goes off, gives its budget of 2, comes back and wants the budget again, while another
/// vCPU wants 4.
fn a_domain_lends_once<W: Modeled>() {
    let group = Arc::new(GroupWords::on(|| W::new(0)));
    let core = |vcpu: u8, wanted: u64| {
        let group = Arc::clone(&group);
        let mut memguard = Memguard::new(&setting(RegulatorKind::Memguard, 2, vcpu));
        if vcpu == 0 {
            memguard.step_on(&group, Nanos(0), Counts::ZERO, Event::Stop);
        }
        Box::new(move || {
            use_up(0, 0, wanted, |now, counts, event| memguard.step_on(&group, now, counts, event))
        }) as Box<dyn FnOnce() -> u64 + Send>
    };
    let used = together(vec![core(0, 2), core(1, 4)]);
    assert!(used[0] <= 2 && used[1] >= 2 && used[0] + used[1] == 4, "{used:?}");
}

/// A critical vCPU uses 1 of 3 and then 5, while the vCPU that compensates it goes through its
/// periods.
fn a_use_compensates_when_known<W: Modeled>() {
    let group = Arc::new(GroupWords::on(|| W::new(0)));
    let mut critical =
        Static::new(&Setting { publish: true, ..setting(RegulatorKind::Static, u64::MAX, 0) });
    let publish = {
        let group = Arc::clone(&group);
        thread::spawn(move || {
            for (period, reads) in [0, 1, 6].into_iter().enumerate() {
                critical.step_on(
                    &group,
                    Nanos(PERIOD * period as u64),
                    Counts { reads, writes: 0 },
                );
            }
        })
    };
    let mut interferer =
        Compensation::new(&Setting { window: 4, ..setting(RegulatorKind::Compensation, 3, 0) });
    let limits = [0, 1, 2]
        .map(|period| interferer.step_on(&group, Nanos(PERIOD * period), Counts::ZERO).limit.reads);
    publish.join().unwrap();
    assert!(limits[0] == 3 && [3, 5].contains(&limits[1]), "{limits:?}");
    // Nothing was used, so nothing is subtracted in the second period.
    assert!([3, 5].contains(&limits[2]) && limits[2] >= limits[1], "{limits:?}");
}

/// A word that another core always changes first.
struct Contended;

impl Word for Contended {
    fn load(&self, _: Ordering) -> u64 {
        0
    }

    fn store(&self, _: u64, _: Ordering) {}

    fn exchange(&self, old: u64, _: u64) -> Result<u64, u64> {
        Err(old)
    }
}

#[test]
fn who_is_never_first_gets_nothing() {
    let reserve = Reserve::on(Contended);
    assert_eq!((reserve.draw(1, 5, 5), reserve.give(1, 5)), (0, 0));
    assert!(!Spent::on(Contended).mark(1, 1, 1).all);
    Contended.store(1, Ordering::Relaxed);
    let used = Slot { period: Contended, reads: Contended, writes: Contended }.read(1);
    assert_eq!(used, None);
}

#[test]
fn what_is_over_stays_over() {
    let reserve = Reserve::on(std::sync::atomic::AtomicU64::new(0));
    assert_eq!(reserve.draw(7, 5, 3), 3);
    assert_eq!((reserve.draw(6, 5, 3), reserve.give(6, 3)), (0, 0));
    assert_eq!(
        (reserve.give(7, u64::MAX), reserve.draw(7, 5, u64::MAX)),
        (super::MOST - 2, super::MOST)
    );
    // The period numbers wrap around.
    let last = (1 << 24) - 1;
    assert_eq!([last >> 1, last - 9, last + 5].map(|period| reserve.draw(period, 5, 9)), [5; 3]);
    let spent = Spent::on(std::sync::atomic::AtomicU64::new(0));
    assert!(!spent.mark(7, 1, 3).all && !spent.mark(6, 2, 3).all && spent.mark(7, 2, 3).all);
    assert!(!spent.mark(8, 1, 3).all && spent.mark(8, 2, 3).news && !spent.mark(8, 2, 3).news);
}

#[test]
fn regulators_share_exactly() {
    holds(a_pool_serves_two_vcpus::<AtomicU64>);
    holds(a_domain_lends_once::<AtomicU64>);
    holds(a_use_compensates_when_known::<AtomicU64>);
}

#[test]
fn regulators_need_the_exchange_to_be_one() {
    assert!(fails(a_domain_lends_once::<Split>));
    assert!(fails(a_pool_serves_two_vcpus::<Split>));
}

#[test]
fn a_compensation_needs_the_orders() {
    assert!(fails(a_use_compensates_when_known::<WeakStores>));
    assert!(fails(a_use_compensates_when_known::<WeakLoads>));
}

#[test]
fn the_reserve_is_exact() {
    holds(no_more_is_drawn_than_there_is::<AtomicU64>);
    holds(what_is_given_is_there_once::<AtomicU64>);
}

#[test]
fn the_reserve_needs_its_exchange_to_be_one() {
    assert!(fails(no_more_is_drawn_than_there_is::<Split>));
    assert!(fails(what_is_given_is_there_once::<Split>));
}

#[test]
fn one_member_is_the_last_to_spend() {
    holds(one_is_the_last::<AtomicU64>);
    assert!(fails(one_is_the_last::<Split>));
}

#[test]
fn each_waiting_vcpu_is_woken_once() {
    holds(each_that_asks_is_woken_once::<AtomicU64>);
    assert!(fails(each_that_asks_is_woken_once::<Split>));
}

#[test]
fn a_published_use_is_whole() {
    holds(counts_belong_to_their_period::<AtomicU64, AtomicU64>);
}

#[test]
fn each_order_of_a_published_use_is_needed() {
    // Release on the period and on the counts; acquire on the period and on the counts.
    assert!(fails(counts_belong_to_their_period::<WeakStores, AtomicU64>));
    assert!(fails(counts_belong_to_their_period::<AtomicU64, WeakStores>));
    assert!(fails(counts_belong_to_their_period::<WeakLoads, AtomicU64>));
    assert!(fails(counts_belong_to_their_period::<AtomicU64, WeakLoads>));
}
