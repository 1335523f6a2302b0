//! Arm CoreLink QoS-400 regulators: how many transactions of a master may pass in a clock
//! (transaction rate regulation).
//!
//! Three parameters, for reads and writes apart (bao-throttling 3.1.1 and 5.1): average rate as a
//! 12-bit fraction of a transaction per clock, burstiness as a number of transactions, peak rate as
//! an 8-bit fraction. In any window of L clocks pass at most `burst` + ceil(L `average` / 2^12)
//! transactions, and of a master that always wants one exactly that rate: Eq. 1 of rt-virtio. With
//! a *hold*, no credit is gathered in so many clocks after each transaction, and the rate stays
//! below Eq. 1.

/// The registers of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QosRate {
    /// `ar_r`, `aw_r`: transactions per 2^12 clocks, below 2^12; 0 does not regulate.
    pub average: u16,
    /// `ar_b`, `aw_b`: transactions that may pass at once after a pause; 0 acts as 1.
    pub burst: u16,
    /// `ar_p`, `aw_p`: transactions per 2^8 clocks within a burst; 0 sets no limit.
    pub peak: u8,
}

/// Credit that grows with time up to a depth. Counted in fractions of a transaction, so that
/// nothing is lost to rounding: a clock's growth may carry the level over the depth by less than
/// that growth.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Units that a clock brings; 0: no limit.
    rate: u64,
    /// Units of one transaction.
    cost: u64,
    /// Most units, but for what the last clock brought.
    depth: u64,
    level: u64,
    /// Clock of `level`; it does not grow before.
    at: u64,
}

impl Bucket {
    fn new(rate: u64, cost: u64, transactions: u64) -> Self {
        let depth = cost * transactions;
        Self { rate, cost, depth, level: depth, at: 0 }
    }

    fn level_at(&self, now: u64) -> u64 {
        // It grows clock by clock until it is full.
        let clocks = self.depth.saturating_sub(self.level).div_ceil(self.rate);
        self.level + self.rate * clocks.min(now.saturating_sub(self.at))
    }

    fn ready(&self, now: u64) -> u64 {
        if self.rate == 0 {
            return now;
        }
        let missing = self.cost.saturating_sub(self.level_at(now));
        // What is missing comes from when it grows on.
        if missing == 0 { now } else { now.max(self.at) + missing.div_ceil(self.rate) }
    }

    fn take(&mut self, now: u64, hold: u64) {
        if self.rate > 0 {
            self.level = self.level_at(now) - self.cost;
            self.at = now + hold;
        }
    }
}

/// One direction of a regulator.
#[derive(Clone, Copy, Debug)]
struct Gate {
    average: Bucket,
    peak: Bucket,
    hold: u64,
}

impl Gate {
    fn new(rate: QosRate, hold: u64) -> Self {
        let burst = u64::from(rate.burst.max(1));
        Self {
            hold,
            average: Bucket::new(u64::from(rate.average), 1 << 12, burst),
            peak: Bucket::new(u64::from(rate.peak), 1 << 8, 1),
        }
    }

    fn ready(&self, now: u64) -> u64 {
        self.average.ready(now).max(self.peak.ready(now))
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
    reads: Gate,
    writes: Gate,
}

impl QosRegulator {
    /// A regulator with full credit at clock 0.
    #[must_use]
    pub fn new(reads: QosRate, writes: QosRate) -> Self {
        Self::with_hold(reads, writes, 0)
    }

    /// One that gathers no credit in `hold` clocks after each transaction.
    #[must_use]
    pub fn with_hold(reads: QosRate, writes: QosRate, hold: u64) -> Self {
        Self { reads: Gate::new(reads, hold), writes: Gate::new(writes, hold) }
    }

    /// The first clock from `now` on at which a transaction may pass.
    #[must_use]
    pub fn probe(&self, write: bool, now: u64) -> u64 {
        if write { &self.writes } else { &self.reads }.ready(now)
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
        let gate = if write { &mut self.writes } else { &mut self.reads };
        gate.average.take(now, gate.hold);
        gate.peak.take(now, 0);
        Ok(())
    }
}
