//! Servers of fixed priority: whether each can spend its budget, and what its VM gets of it.

use super::{NEVER, STEPS, Switching, gcd};
use crate::units::Nanos;

/// The most budgets that a server can spend within `window` from the beginning of a period of
/// `period`. For any phase the worst case is that a budget is spent to its end just when the next
/// one comes. But the periods of both begin at multiples of their lengths, so its own begin at
/// multiples of the greatest divisor of both from there, and where that is more than its budget the
/// next one does not come before.
fn budgets_in(window: u64, (budget, its): (Nanos, Nanos), period: u64) -> u64 {
    let anew = budget.0.max(gcd(its.0, period));
    (window + (its.0 - anew)).div_ceil(its.0)
}

/// The time that a server spends beyond its budgets in any window: a non-preemptible section of EL2
/// delays its end, and it is charged with the switch after it. Its next budget is shorter by that.
const fn beyond(switching: &Switching) -> u64 {
    switching.most.0.saturating_mul(2)
}

/// Whether server `i` of servers (budget, period), highest priority first, with periods that begin
/// at multiples of their lengths, can spend its budget within each period. Counted are the servers
/// of higher priority, one non-preemptible section of EL2 for a server of lower priority, and EL2's
/// `extra` time per period for others, which these are charged with.
#[must_use]
pub fn server_holds(
    servers: &[(Nanos, Nanos)],
    i: usize,
    switching: &Switching,
    extra: &[Nanos],
) -> bool {
    servers.get(i).is_some_and(|&(budget, period)| {
        if period.0 == 0 || budget > period || period.0 > NEVER || switching.most.0 > NEVER {
            return false;
        }
        let lower = if i + 1 < servers.len() { switching.most.0 } else { 0 };
        let late = u128::from(lower) + extra.get(i).map_or(0, |time| u128::from(time.0));
        let mut r = budget.0;
        for _ in 0..STEPS {
            let spent = |higher: &(Nanos, Nanos)| {
                let budgets = budgets_in(r, *higher, period.0);
                u128::from(budgets) * u128::from(higher.0.0) + u128::from(beyond(switching))
            };
            let higher: u128 = servers[..i].iter().map(spent).sum();
            let next = u128::from(budget.0) + late + higher;
            if next > u128::from(period.0) {
                return false;
            }
            if next == u128::from(r) {
                return true;
            }
            r = next as u64;
        }
        false
    })
}

/// The guest's part of server `i`'s budget in each period in which it uses all of it: less the
/// switch to it and the one behind it, and what those of higher priority leave to it of their
/// interrupts. These come as often as they can pay for two switches.
#[must_use]
pub fn left_of_budget(servers: &[(Nanos, Nanos)], i: usize, switching: &Switching) -> Nanos {
    let Some(&(budget, period)) = servers.get(i) else { return Nanos(0) };
    let slot = (2 * switching.least.0).saturating_sub(switching.entry.0).max(1);
    let interrupts = |higher: &(Nanos, Nanos)| {
        let budgets = budgets_in(period.0, *higher, period.0);
        let time = u128::from(budgets) * u128::from(higher.0.0) + u128::from(beyond(switching));
        (time / u128::from(slot) + 1) * u128::from(switching.entry.0)
    };
    let entries: u128 = servers[..i].iter().map(interrupts).sum();
    let taken = u128::from(switching.most.0) * 2 + entries;
    Nanos(budget.0.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX)))
}
