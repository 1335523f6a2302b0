//! What a victim loses by an attack. The test runner collects it for docs/results/attacks.md.

use super::board::MARK;
use serde_json::json;

/// An attack: the attacker's guest with its arguments, and its cores from the victim's view.
#[derive(Clone, Copy, Debug)]
pub struct Attack<'a> {
    pub guest: &'a str,
    pub core: &'a str,
}

impl Attack<'_> {
    /// Reports a loss, `measured` of `what`, and fails above `limit`.
    pub fn assert_loss(self, what: &str, measured: u64, limit: u64) {
        let Self { guest, core } = self;
        let loss = json!({
            "attacker": guest, "core": core, "what": what, "measured": measured, "limit": limit,
        });
        println!("{MARK}loss: {loss}");
        assert!(measured <= limit, "{guest}: {measured} {what}; {limit} allowed");
    }
}
