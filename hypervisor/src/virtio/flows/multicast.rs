//! Flows to several receivers: what `weir_vsock::multicast` decides is carried out here.

use super::{
    flow::{self, FlowState},
    link::LINK,
    receive::deliver,
};
use crate::{
    arch::{memory::peephole::Peephole, timer},
    vm::{self, Vm},
};
use core::sync::atomic::Ordering;
use weir_abi::MAX_FLOWS;
use weir_units::Cid;
use weir_vsock::{
    multicast::{FlowGroup, MEMBERS, Post},
    vsock::{Header, Operation},
};

/// How often what was posted can make its receivers answer: a request is refused, then the sender's
/// is.
const ROUNDS: usize = 3;

/// Calls `body` with the connections of the group that begins at flow `first`, and notes when it is
/// due from then on.
pub fn with<T>(
    first: usize,
    body: impl FnOnce(&mut FlowGroup, &mut Post) -> T,
    post: &mut Post,
) -> Option<T> {
    let (_, FlowState { group, due, .. }) = flow::get(first)?;
    let mut group = group.as_ref()?.lock();
    let given = body(&mut group, post);
    // Under the lock: whoever is asked again is so behind this.
    if let Some(link) = LINK.get() {
        let retired = (0..MEMBERS).filter(|member| post.retire >> member & 1 != 0);
        retired.for_each(|member| link.service.partition.retire(first + member));
        // The one writer, as it has the lock. Relaxed: who sees an old one is told again.
        let now_due = group.due();
        post.sooner |= now_due < due.swap(now_due, Ordering::Relaxed);
        link.service.partition.set_alarm(first, now_due);
    }
    post.retire = 0;
    Some(given)
}

/// Delivers what was posted by the group that begins at flow `first`, and takes in what is answered
/// at once.
pub fn carry_out(first: usize, mut post: Post, peephole: &mut Peephole) {
    let mut sooner = post.sooner;
    for _ in 0..ROUNDS {
        let mut next = Post::new();
        for header in post.headers() {
            if let Some(answer) = deliver(header, peephole) {
                let _ = with(first, |group, post| refused(first, group, &answer, post), &mut next);
            }
        }
        sooner |= next.sooner;
        if next.headers().is_empty() {
            break;
        }
        post = next;
    }
    // The broker has a timer, and may sleep until the time that it knew.
    if let Some(link) = LINK.get().filter(|_| sooner) {
        link.service.wake();
    }
}

/// Nobody is there for a control packet: `answer` comes in the place of its receiver's.
fn refused(first: usize, group: &mut FlowGroup, answer: &Header, post: &mut Post) {
    let Some((entry, _)) = flow::get(first) else { return };
    match member(first, answer.src_cid) {
        Some(index) => {
            group.from_member(index, answer, Operation::Reset, timer::now_ns(), post);
        }
        None if answer.src_cid == Cid::of_vm(entry.from) => group.end_sender(post),
        None => {}
    }
}

/// Which receiver of the group that begins at flow `first` has this context identifier.
fn member(first: usize, cid: Cid) -> Option<usize> {
    let (entry, _) = flow::get(first)?;
    (0..entry.members as usize).find(|index| {
        let flow = flow::get(first + index);
        flow.is_some_and(|(flow, _)| Cid::of_vm(flow.to) == cid)
    })
}

/// A control packet of flow `flow`, one of several receivers', from either end.
pub fn control(
    entry: &weir_abi::PackedFlow,
    header: &Header,
    operation: Operation,
    now: u64,
    peephole: &mut Peephole,
) {
    let first = entry.first as usize;
    let mut post = Post::new();
    let body = |group: &mut FlowGroup, post: &mut Post| match member(first, header.src_cid) {
        Some(index) => group.from_member(index, header, operation, now, post),
        None => group.from_sender(header, operation, now, post),
    };
    let _ = with(first, body, &mut post);
    carry_out(first, post, peephole);
}

/// The groups, by their first flows.
fn all() -> impl Iterator<Item = (usize, &'static weir_abi::PackedFlow, &'static FlowState)> {
    let flows = (0..MAX_FLOWS).map_while(|index| Some((index, flow::get(index)?)));
    flows
        .filter(|(_, (_, flow))| flow.group.is_some())
        .map(|(index, (entry, flow))| (index, entry, flow))
}

/// The device of `vm` is about to be reset.
pub fn end(vm: &Vm, peephole: &mut Peephole) {
    let cid = vm.view().cid();
    for (first, entry, _) in all() {
        let (is_sender, member) = (entry.from as usize == vm.index(), member(first, cid));
        // Nobody waits for the core of a VM that it has nothing to do with.
        if !is_sender && member.is_none() {
            continue;
        }
        let mut post = Post::new();
        let body = |group: &mut FlowGroup, post: &mut Post| match member {
            _ if is_sender => group.end_sender(post),
            Some(index) => group.end_member(index, timer::now_ns(), post),
            None => {}
        };
        let _ = with(first, body, &mut post);
        carry_out(first, post, peephole);
    }
}

/// Nobody moves packets any more.
pub fn abandon(peephole: &mut Peephole) {
    for (first, ..) in all() {
        let mut post = Post::new();
        let _ = with(first, FlowGroup::abandon, &mut post);
        carry_out(first, post, peephole);
    }
}

/// Drops the receivers that have kept others waiting for too long. On the broker's core, which is
/// told when that can be.
pub fn attend(peephole: &mut Peephole) {
    if !flow::has_groups() {
        return;
    }
    let now = timer::now_ns();
    for (first, entry, flow) in all() {
        // Relaxed: see `with`.
        if flow.due.load(Ordering::Relaxed) > now {
            continue;
        }
        let starves = |index: usize| {
            let flow = flow::get(first + index);
            let vm = flow.and_then(|(flow, _)| vm::all().nth(flow.to as usize));
            vm.is_some_and(|vm| vm.socket.lock().offered == 0)
        };
        let starving = (0..entry.members as usize)
            .fold(0u32, |mask, index| mask | u32::from(starves(index)) << index);
        let body = |group: &mut FlowGroup, post: &mut Post| {
            group.expire(now, |index| starving >> index & 1 != 0, post);
        };
        let mut post = Post::new();
        let _ = with(first, body, &mut post);
        carry_out(first, post, peephole);
    }
}
