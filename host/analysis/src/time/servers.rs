//! Servers of fixed priority: whether each can spend its budget, and what its VM gets of it.

use super::{NEVER, STEPS, Switching, gcd};
use crate::units::Nanos;

/// How many of its budgets a server can spend, at the most, of what lies within `window` from the
/// beginning of a period of `period` on. At any phase the worst is that a budget is spent to its
/// end just when the next one comes. But the periods of both begin at multiples of their lengths,
/// so its own begin at multiples of the greatest divisor of both from there, and where that is more
/// than its budget the next one does not come before.
fn budgets_in(window: u64, (budget, its): (Nanos, Nanos), period: u64) -> u64 {
    let anew = budget.0.max(gcd(its.0, period));
    (window + (its.0 - anew)).div_ceil(its.0)
}

/// What a server spends beyond its budgets in any window, in the end: it is late by what EL2 does
/// in one piece, and the switch behind it is its own. Its next budget is shorter by that.
const fn beyond(switching: &Switching) -> u64 {
    switching.most.0.saturating_mul(2)
}

/// Whether servers (budget, period), highest priority first, whose periods begin at multiples of
/// their lengths, each can spend their budget within each period, beside those of higher priority,
/// what one of lower priority has EL2 do in one piece when it begins, and for each what EL2 does
/// `beside` for others in a period, which these are charged with.
#[must_use]
pub fn servers_hold(servers: &[(Nanos, Nanos)], switching: &Switching, beside: &[Nanos]) -> bool {
    (0..servers.len()).all(|i| server_holds(servers, i, switching, beside))
}

/// Whether server `i` can, as [`servers_hold`] says of all.
#[must_use]
pub fn server_holds(
    servers: &[(Nanos, Nanos)],
    i: usize,
    switching: &Switching,
    beside: &[Nanos],
) -> bool {
    servers.get(i).is_some_and(|&(budget, period)| {
        if period.0 == 0 || budget > period || period.0 > NEVER || switching.most.0 > NEVER {
            return false;
        }
        let lower = if i + 1 < servers.len() { switching.most.0 } else { 0 };
        let late = u128::from(lower) + beside.get(i).map_or(0, |time| u128::from(time.0));
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

/// What of server `i`'s budget is its guest's in each period in which it wants all of it: less the
/// switch to it and the one behind it, and what those of higher priority leave to it of their
/// interrupts. These come as often as they can pay for two switches.
#[must_use]
pub fn left_of_budget(servers: &[(Nanos, Nanos)], i: usize, switching: &Switching) -> Nanos {
    let Some(&(budget, period)) = servers.get(i) else { return Nanos(0) };
    let turn = (2 * switching.least.0).saturating_sub(switching.entry.0).max(1);
    let interrupts = |higher: &(Nanos, Nanos)| {
        let budgets = budgets_in(period.0, *higher, period.0);
        let time = u128::from(budgets) * u128::from(higher.0.0) + u128::from(beyond(switching));
        (time / u128::from(turn) + 1) * u128::from(switching.entry.0)
    };
    let entries: u128 = servers[..i].iter().map(interrupts).sum();
    let taken = u128::from(switching.most.0) * 2 + entries;
    Nanos(budget.0.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX)))
}
