//! A history that fails, made as short as it still fails.
//!
//! Events are left out, first halves, then ever smaller pieces, for as long as the same promise is broken.

use super::oracle::Breach;
use super::plan::Plan;
use super::play;
use super::rules::Rules;

/// Histories played at most.
const MOST: usize = 2_000;

/// The shortest history found that breaks the same promise, and how it breaks it.
pub(super) fn shrink(
    mut plan: Plan,
    mut breach: Breach,
    rules: &dyn Fn() -> Box<dyn Rules>,
) -> (Plan, Breach) {
    let mut played = 0;
    let mut piece = plan.events.len().div_ceil(2);
    while piece > 0 && played < MOST {
        let (mut at, mut shorter) = (0, false);
        while at < plan.events.len() && played < MOST {
            let mut tried = plan.clone();
            let end = (at + piece).min(tried.events.len());
            tried.events.drain(at..end);
            played += 1;
            match play(&tried, rules).1 {
                Err(found) if found.promise == breach.promise => {
                    (plan, breach, shorter) = (tried, found, true);
                }
                _ => at += piece,
            }
        }
        if !shorter || piece > 1 {
            piece /= 2;
        }
    }
    (plan, breach)
}
