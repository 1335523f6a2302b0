//! Response times next to those of `response-time-analysis`, whose equations are proved in Coq:
//! Bozhko and Brandenburg, ECRTS 2020.

use proptest::prelude::*;
use response_time_analysis::{
    arrival::Sporadic,
    demand::RBF,
    fixed_priority::fully_preemptive::dedicated_uniproc_rta,
    time::{Duration, Service},
    wcet::Scalar,
};
use weir_analysis::{
    Nanos,
    time::{Supply, Task, VmSchedule, response_times},
};

/// Above this a response time counts as none.
const LIMIT: u64 = 1 << 20;

fn demand(task: &Task) -> RBF<Sporadic, Scalar> {
    let arrivals = Sporadic::new(Duration::from(task.period.0), Duration::from(task.jitter.0));
    RBF::new(arrivals, Scalar::new(Service::from(task.wcet.0)))
}

fn task() -> impl Strategy<Value = Task> {
    (1u64..40, 5u64..200, 0u64..60).prop_map(|(wcet, period, jitter)| Task {
        wcet: Nanos(wcet),
        period: Nanos(period),
        jitter: Nanos(jitter),
        ..Task::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A task is released late by its jitter: the crate counts from the release, weir from the
    /// arrival. Without jitter of its own both are equal; with it, weir's contains the crate's.
    #[test]
    fn bounds_on_a_core_are_those_of_the_proved_analysis(
        mut tasks in prop::collection::vec(task(), 1..6), own_jitter: bool,
    ) {
        let last = tasks.len() - 1;
        if !own_jitter {
            tasks[last].jitter = Nanos(0);
        }
        let supply = Supply::new(VmSchedule::Dedicated, Vec::new()).expect("a core");
        let own = response_times(&tasks, &supply, None, None)[last];
        let others: Vec<_> = tasks[..last].iter().map(demand).collect();
        let bound = dedicated_uniproc_rta(&demand(&tasks[last]), &others, Duration::from(LIMIT));
        // In thousandths, rounded up.
        let utilization: u64 =
            tasks.iter().map(|task| (1000 * task.wcet.0).div_ceil(task.period.0)).sum();
        match bound {
            Ok(bound) if own_jitter => {
                let own = own.expect("a bound");
                prop_assert!(own.0 >= u64::from(bound), "{own} and {bound:?}");
                prop_assert!(own.0 <= u64::from(bound) + tasks[last].jitter.0);
            }
            Ok(bound) => prop_assert_eq!(own.map(|own| own.0), Some(u64::from(bound))),
            // The limit ends the one, the number of steps the other.
            Err(_) => prop_assert!(own.is_none() || utilization > 990, "{own:?}"),
        }
    }
}
