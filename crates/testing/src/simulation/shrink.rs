//! Shortens a history that breaks a promise.

use std::time::Duration;

use anyhow::Result;

use crate::simulation::{
    Variant,
    history::History,
    run::run,
    step::Action,
    store_pool::StorePool,
    violation::{Promise, Violation},
};

/// Returns a history that breaks the same promise, and from which no single step can be left out. Leaves out all steps
/// after the step that showed the violation, then single steps, and at last the skew of the clocks.
///
/// The short history determines which promise is reported. A value that is deleted early breaks R8 if the history needs
/// clocks that differ or jump, R7 if the history needs the loss of the timeline, and R2 or R3 otherwise.
///
/// # Errors
///
/// Fails if the store cannot be opened or used.
pub async fn shrink(
    history: &History,
    steps: usize,
    found: Violation,
    pool: &StorePool,
    variant: &Variant,
) -> Result<(History, Violation)> {
    let mut shortest = history.with(history.steps[..steps].to_vec());
    let mut violation = found;
    loop {
        let mut shorter = None;
        for left_out in (0..shortest.steps.len()).rev() {
            let mut steps = shortest.steps.clone();
            steps.remove(left_out);
            let tried = shortest.with(steps);
            if let Some((steps, found)) = run(&tried, pool, variant).await?.found
                && found.promise == violation.promise
            {
                shorter = Some((tried.with(tried.steps[..steps].to_vec()), found));
                break;
            }
        }
        match shorter {
            Some((history, found)) => (shortest, violation) = (history, found),
            None => break,
        }
    }
    let agreeing = with_clocks_that_agree(&shortest);
    if let Some((_, found)) = run(&agreeing, pool, variant).await?.found
        && found.promise == violation.promise
    {
        (shortest, violation) = (agreeing, found);
    }
    violation.promise = broken_promise_of(violation.promise, &shortest);
    Ok((shortest, violation))
}

fn with_clocks_that_agree(history: &History) -> History {
    let mut history = history.clone();
    history.setup.skew = Duration::ZERO;
    let of_steps = history.steps.iter_mut().filter_map(|step| match &mut step.action {
        Action::SetPolicy(policy) => policy.as_mut(),
        _ => None,
    });
    of_steps.chain(&mut history.setup.policy).for_each(|policy| policy.skew = Duration::ZERO);
    history
}

/// Names the promise that a shortest history breaks.
fn broken_promise_of(promise: Promise, shortest: &History) -> Promise {
    let has = |what: fn(&Action) -> bool| shortest.steps.iter().any(|step| what(&step.action));
    match promise {
        Promise::R2 | Promise::R3 if shortest.setup.skew > Duration::ZERO => Promise::R8,
        Promise::R2 | Promise::R3 if has(|action| matches!(action, Action::Jump { .. })) => Promise::R8,
        Promise::R2 | Promise::R3 if has(|action| matches!(action, Action::LoseTimeline)) => Promise::R7,
        promise => promise,
    }
}
