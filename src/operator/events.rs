//! Kubernetes Events: what happened to a pipeline, for whoever describes it.
//!
//! Comes in: the status before and after. Goes out: a notice for each condition whose answer has changed, and for a claim that was
//! taken back; never one for a claim that rises, which would be ten thousand an hour. They are sent by the leader, a bounded number
//! a second, and what is too much is left out and counted: an Event is a hint, the status is the truth.

use std::{fmt, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use strum::{EnumMessage, IntoEnumIterator};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Key, counts::Counts, lease::Leadership, status};
use crate::{
    api::{
        condition::{ConditionType, Course, Reason},
        schema::ConditionStatus,
        status::IngestionPipelineStatus,
    },
    process::clock::Clock,
    sensor::chain,
};

/// How many notices may wait: all that a fleet has to say when its broker goes away, for ten seconds.
const MOST_WAITING: usize = 1_000;

/// How far apart two are sent: twenty a second.
const APART: Duration = Duration::from_millis(50);

/// How long one may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest note that an Event may have, in bytes.
const NOTE_BYTES: usize = 1_024;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is as it should be.
    pub is_normal: bool,
    /// Which kind: a reason, as in the condition.
    pub reason: String,
    /// What it is about: a condition, or the claim.
    pub action: &'static str,
    /// The message.
    pub note: String,
}

/// What happened between two statuses. `old` is none for a pipeline that had none.
#[must_use]
pub fn notices(
    old: Option<&IngestionPipelineStatus>,
    new: &IngestionPipelineStatus,
) -> Vec<Notice> {
    let changes = ["Accepted", "Ready", "Advancing", "Reopened", "Suspended"];
    let told = changes.into_iter().filter_map(|kind| {
        let after = status::condition(new, kind)?;
        let before = old.and_then(|old| status::condition(old, kind));
        let is_good = is_good(kind, after.status);
        match before {
            Some(before) if before.status == after.status => return None,
            // A pipeline that begins has nothing to tell but what is wrong with it; that it starts is no news.
            None if is_good || kind != "Accepted" => return None,
            _ => {}
        }
        // What follows from another condition is said by that one.
        if kind == "Advancing" && status::condition(new, "Ready")?.reason == after.reason {
            return None;
        }
        if kind == "Ready" && after.reason == Reason::Suspended.label() {
            return None;
        }
        let is_usual = Reason::of_label(&after.reason).course() == Course::Usual;
        Some(Notice {
            is_normal: is_good || is_usual,
            reason: if is_good {
                format!("{kind}{:?}", after.status)
            } else {
                after.reason.clone()
            },
            action: kind,
            note: if after.message.is_empty() {
                meaning(kind, after.status)
            } else {
                after.message.clone()
            },
        })
    });
    let withdrawn = old
        .and_then(|old| old.finalized_before.as_ref())
        .filter(|_| new.finalized_before.is_none());
    let withdrawn = withdrawn.map(|before| Notice {
        is_normal: false,
        reason: "ClaimWithdrawn".to_owned(),
        action: "Claim",
        note: format!("the claim up to {} does not count any more", before.0),
    });
    told.chain(withdrawn).collect()
}

/// What an answer means that has nothing to add: an Event without words says little to whoever reads it.
fn meaning(kind: &str, answer: ConditionStatus) -> String {
    let known = ConditionType::iter().find(|known| <&str>::from(*known) == kind);
    let meant = match (known, answer) {
        (Some(known), ConditionStatus::True) => known.get_documentation(),
        (Some(ConditionType::Suspended), ConditionStatus::False) => Some("The pipeline goes on."),
        (Some(ConditionType::Reopened), ConditionStatus::False) => {
            Some("The claim is back where it was.")
        }
        _ => None,
    };
    meant.unwrap_or_default().to_owned()
}

/// Whether an answer is what one hopes for.
fn is_good(kind: &str, answer: ConditionStatus) -> bool {
    match kind {
        "Reopened" => answer == ConditionStatus::False,
        // Standing still is asked for.
        "Suspended" => true,
        _ => answer == ConditionStatus::True,
    }
}

/// Hands notices in. Clones share one list.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<(ObjectReference, Notice)>,
    counts: Counts,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// The other end of the list: sends what was handed in.
pub struct Sender {
    receiver: mpsc::Receiver<(ObjectReference, Notice)>,
    counts: Counts,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl Events {
    /// An empty list, with the end that sends.
    #[must_use]
    pub fn new(counts: Counts) -> (Self, Sender) {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        let events = Self {
            sender,
            counts: counts.clone(),
        };
        (events, Sender { receiver, counts })
    }

    /// Hands a notice about a pipeline in; where too many wait it is left out.
    pub fn tell(&self, key: &Key, uid: &str, notice: Notice) {
        let about = ObjectReference {
            api_version: Some("tidemark.dev/v1alpha1".to_owned()),
            kind: Some("IngestionPipeline".to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        if self.sender.try_send((about, notice)).is_err() {
            self.counts.event(false);
        }
    }
}

impl Sender {
    /// Sends until `stop`, as this pod of the operator, while it leads.
    pub async fn run(
        mut self,
        client: Client,
        (leadership, clock, pod): (Leadership, Clock, String),
        stop: CancellationToken,
    ) {
        let reporter = Reporter {
            controller: "tidemark".to_owned(),
            instance: Some(pod),
        };
        let recorder = Recorder::new(client, reporter);
        loop {
            let (about, notice) = tokio::select! {
                () = stop.cancelled() => return,
                next = self.receiver.recv() => match next {
                    Some(next) => next,
                    None => return,
                },
            };
            if !leadership.may_start(SEND_TIMEOUT) {
                self.counts.event(false);
                continue;
            }
            let event = event(notice);
            let sent = timeout(clock.real(SEND_TIMEOUT), recorder.publish(&event, &about)).await;
            if let Ok(Err(error)) = &sent {
                debug!(error = chain(error), "an Event was not sent");
            }
            self.counts.event(matches!(sent, Ok(Ok(()))));
            clock.sleep(APART).await;
        }
    }
}

fn event(notice: Notice) -> Event {
    let mut note = notice.note;
    while note.len() > NOTE_BYTES {
        note.pop();
    }
    Event {
        type_: if notice.is_normal {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: notice.reason,
        note: (!note.is_empty()).then_some(note),
        action: notice.action.to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{pipeline::InstantText, schema::StatusCondition};

    fn status(conditions: &[(&str, ConditionStatus, &str)]) -> IngestionPipelineStatus {
        let conditions = conditions
            .iter()
            .map(|(kind, status, reason)| StatusCondition {
                kind: (*kind).to_owned(),
                status: *status,
                reason: (*reason).to_owned(),
                message: format!("{reason} says why"),
                last_transition_time: String::new(),
                observed_generation: None,
            });
        IngestionPipelineStatus {
            conditions: conditions.collect(),
            finalized_before: Some(InstantText("2026-11-30T12:00:00Z".into())),
            ..IngestionPipelineStatus::default()
        }
    }

    fn reasons(
        old: Option<&IngestionPipelineStatus>,
        new: &IngestionPipelineStatus,
    ) -> Vec<(bool, String)> {
        notices(old, new)
            .into_iter()
            .map(|notice| (notice.is_normal, notice.reason))
            .collect()
    }

    const YES: ConditionStatus = ConditionStatus::True;
    const NO: ConditionStatus = ConditionStatus::False;

    #[test]
    fn only_a_change_of_an_answer_is_told() {
        let well = status(&[
            ("Accepted", YES, "AsExpected"),
            ("Ready", YES, "AsExpected"),
            ("Advancing", YES, "AsExpected"),
        ]);
        assert_eq!(reasons(Some(&well), &well), []);
        let mut risen = well.clone();
        risen.finalized_before = Some(InstantText("2026-11-30T13:00:00Z".into()));
        assert_eq!(reasons(Some(&well), &risen), [], "a claim rises every hour");
        let down = status(&[
            ("Accepted", YES, "AsExpected"),
            ("Ready", NO, "BrokerUnreachable"),
            ("Advancing", NO, "BrokerUnreachable"),
        ]);
        assert_eq!(
            reasons(Some(&well), &down),
            [(false, "BrokerUnreachable".into())]
        );
        let other = status(&[
            ("Accepted", YES, "AsExpected"),
            ("Ready", NO, "TopicNotFound"),
            ("Advancing", NO, "TopicNotFound"),
        ]);
        assert_eq!(
            reasons(Some(&down), &other),
            [],
            "another reason for the same answer"
        );
        // Advancing goes on with Ready, for the same reason.
        assert_eq!(reasons(Some(&other), &well), [(true, "ReadyTrue".into())]);
    }

    #[test]
    fn good_news_has_words_too() {
        let mut well = status(&[("Ready", YES, "AsExpected")]);
        well.conditions[0].message.clear();
        let down = status(&[("Ready", NO, "BrokerUnreachable")]);
        let told = notices(Some(&down), &well);
        assert_eq!(told[0].note, "Rows are read and committed.");
    }

    /// A warning for what somebody asked for, or for each turn of a wave, is one that nobody reads any more.
    #[test]
    fn what_was_asked_for_is_no_warning() {
        let well = status(&[
            ("Ready", YES, "AsExpected"),
            ("Suspended", NO, "AsExpected"),
        ]);
        let still = status(&[("Ready", NO, "Suspended"), ("Suspended", YES, "Suspended")]);
        assert_eq!(
            reasons(Some(&well), &still),
            [(true, "SuspendedTrue".into())]
        );
        let starting = status(&[("Ready", NO, "Starting"), ("Suspended", NO, "AsExpected")]);
        assert_eq!(reasons(Some(&well), &starting), [(true, "Starting".into())]);
        let mut goes_on = well.clone();
        goes_on.conditions[1].message.clear();
        let told = notices(Some(&still), &goes_on);
        assert_eq!(told[1].note, "The pipeline goes on.");
    }

    #[test]
    fn claim_that_is_taken_back_is_told() {
        let well = status(&[("Ready", YES, "AsExpected")]);
        let mut void = status(&[("Ready", NO, "LineageUnknown")]);
        void.finalized_before = None;
        let told = notices(Some(&well), &void);
        assert_eq!(told[1].reason, "ClaimWithdrawn");
        assert_eq!(
            told[1].note,
            "the claim up to 2026-11-30T12:00:00Z does not count any more"
        );
    }

    #[test]
    fn new_pipeline_is_told_of_only_where_it_is_refused() {
        let starting = status(&[("Accepted", YES, "AsExpected"), ("Ready", NO, "Starting")]);
        assert_eq!(reasons(None, &starting), []);
        let refused = status(&[
            ("Accepted", NO, "SpecInvalid"),
            ("Ready", NO, "SpecInvalid"),
        ]);
        assert_eq!(reasons(None, &refused), [(false, "SpecInvalid".into())]);
    }
}
