//! Ends a simulation of gem5, which has no other means of turning the machine off.

use crate::arch::machine;

/// Ends the simulation.
pub fn power_off() {
    machine::end_simulation();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::recorded;

    #[test]
    fn the_simulation_ends() {
        power_off();
        assert_eq!(recorded(), ["m5 exit"]);
    }
}
