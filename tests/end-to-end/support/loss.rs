//! What a victim loses by an attack. The test runner collects it for docs/results/attacks.md.

use super::board::{MARK, sharing};
use serde_json::json;
use weir_image::build_id::of_checkout;

/// An attack: the attacker's guest with its arguments, and its cores from the victim's view.
#[derive(Clone, Copy, Debug)]
pub struct Attack<'a> {
    pub guest: &'a str,
    pub core: &'a str,
}

/// The loss of a control loop that shares its core.
pub const LATER: &str = "ns later than next to a VM that computes";

impl Attack<'_> {
    /// Reports how much later than without the attack the latest activation of a loop is, if it
    /// begins with its slot. Fails if that is more than the board's longest switch, which contains the
    /// longest section of EL2.
    pub fn assert_late(self, latest: u64, quiet: u64) {
        self.assert_loss(LATER, latest.saturating_sub(quiet), sharing().switch.0);
    }

    /// Reports a loss, `measured` of `what`, and fails above `limit`.
    pub fn assert_loss(self, what: &str, measured: u64, limit: u64) {
        let Self { guest, core } = self;
        let loss = json!({
            "attacker": guest, "core": core, "what": what, "measured": measured, "limit": limit,
            "build": of_checkout(),
        });
        println!("{MARK}loss: {loss}");
        assert!(measured <= limit, "{guest}: {measured} {what}; {limit} allowed");
    }
}
