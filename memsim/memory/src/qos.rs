//! Arm CoreLink QoS-400 regulators: how many transactions of a master may pass in a clock
//! (transaction rate regulation).
//!
//! The average rate is a 12-bit fraction of a transaction per clock, for reads and for writes apart
//! (bao-throttling 3.1.1 and 5.1), without bursts. In any window of L clocks pass at most
//! 1 + ceil(L `average` / 2^12) transactions of a direction, and of a master that always wants one
//! exactly that rate: Eq. 1 of rt-virtio. With a *hold*, no credit is gathered in so many clocks
//! after each transaction, and the rate stays below Eq. 1.

/// The setting of a regulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QosRate {
    /// `ar_r`, `aw_r`: transactions of a direction per 2^12 clocks, below 2^12; 0 does not
    /// regulate.
    pub average: u16,
    /// Clocks after each transaction in which the regulator gathers no credit.
    pub hold: u64,
}

/// What one transaction takes of a direction's credit, and the most credit but for what the last
/// clock brought.
const COST: u64 = 1 << 12;

/// The credit of one direction, in fractions of a transaction, so that nothing is lost to rounding:
/// a clock's growth may carry it over [`COST`] by less than that growth.
#[derive(Clone, Copy, Debug)]
struct Credit {
    level: u64,
    /// Clock of `level`; it does not grow before.
    at: u64,
}

impl Credit {
    fn level_at(self, rate: u64, now: u64) -> u64 {
        // It grows clock by clock until it is full.
        let clocks = COST.saturating_sub(self.level).div_ceil(rate);
        self.level + rate * clocks.min(now.saturating_sub(self.at))
    }

    fn ready(self, rate: u64, now: u64) -> u64 {
        if rate == 0 {
            return now;
        }
        let missing = COST.saturating_sub(self.level_at(rate, now));
        // What is missing comes from when it grows on.
        if missing == 0 { now } else { now.max(self.at) + missing.div_ceil(rate) }
    }
}

/// Too early for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooEarly {
    /// The first clock at which it may pass, if no other passes before.
    pub ready: u64,
}

/// A regulator at a master's port. Time is in clocks of the interconnect, and must not run
/// backwards.
#[derive(Clone, Copy, Debug)]
pub struct QosRegulator {
    rate: QosRate,
    /// Of reads, of writes.
    credits: [Credit; 2],
}

impl QosRegulator {
    /// A regulator with full credit at clock 0.
    #[must_use]
    pub fn new(rate: QosRate) -> Self {
        Self { rate, credits: [Credit { level: COST, at: 0 }; 2] }
    }

    /// The first clock from `now` on at which a transaction may pass.
    #[must_use]
    pub fn probe(&self, write: bool, now: u64) -> u64 {
        self.credits[usize::from(write)].ready(self.rate.average.into(), now)
    }

    /// Lets a transaction pass.
    ///
    /// # Errors
    /// [`TooEarly`] if it is too early; nothing has changed then.
    pub fn issue(&mut self, write: bool, now: u64) -> Result<(), TooEarly> {
        let ready = self.probe(write, now);
        if now < ready {
            return Err(TooEarly { ready });
        }
        let rate = u64::from(self.rate.average);
        if rate > 0 {
            let credit = &mut self.credits[usize::from(write)];
            let level = credit.level_at(rate, now) - COST;
            *credit = Credit { level, at: now + self.rate.hold };
        }
        Ok(())
    }
}
