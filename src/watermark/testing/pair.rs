//! A table with two writers, for the tests of what they come to together.

use super::super::contract::{self, BadValue, state_property};
use super::super::*;
use super::{TOPIC, Table, at, identity, news, policy};

/// The writer that joins.
pub(in crate::watermark) const OTHER: &str = "shop.west";

pub(in crate::watermark) fn stands(table: &Table, writer: &str) -> Result<Standing, Obstacle> {
    stand(&Asker::new(writer, at("23:00")), &table.view())
}

pub(in crate::watermark) fn unreadable() -> PeerUnreadable {
    PeerUnreadable {
        writer: OTHER.to_owned(),
        source: BadValue::Packed {
            name: state_property(OTHER),
            source: Unreadable::Damaged,
        },
    }
}

pub(in crate::watermark) fn going_on(table: &Table, writer: &str) -> GoingOn {
    match stands(table, writer) {
        Ok(Standing::GoesOn(going_on)) => *going_on,
        other => panic!("{other:?}"),
    }
}

/// What a writer begins anew on once the owner of the table has agreed to it as it is.
pub(in crate::watermark) fn accepted(table: &Table, writer: &str) -> State {
    let mut asker = Asker::new(writer, at("23:00"));
    asker.accept.snapshot_id = table
        .lineage
        .snapshots
        .first()
        .map(|newest| newest.snapshot_id);
    let Ok(Standing::Begins(beginning)) = stand(&asker, &table.view()) else {
        panic!("{writer} does not begin");
    };
    beginning.state(identity(), TOPIC, policy(), at("23:00"))
}

/// What a worker of this writer goes on from.
pub(in crate::watermark) fn base(table: &Table, writer: &str) -> State {
    match stands(table, writer).unwrap() {
        Standing::GoesOn(going_on) => going_on.state,
        Standing::Begins(beginning) => {
            let identity = Identity {
                writer: writer.to_owned(),
                ..identity()
            };
            beginning.state(identity, TOPIC, policy(), at("00:00"))
        }
    }
}

pub(in crate::watermark) fn commit(
    table: &mut Table,
    writer: &str,
    news: Contribution,
) -> Advanced {
    table.state = base(table, writer);
    let next = table.commit(news);
    match read_claim(&table.view()) {
        Reading::Claim(read) => assert_eq!(read.claim, next.claim, "readers see it so"),
        other => panic!("{other:?}"),
    }
    next
}

pub(in crate::watermark) fn order(
    table: &mut Table,
    writer: &str,
    now: &str,
    order: Order,
) -> Advanced {
    let order = Some(order);
    commit(table, writer, Contribution { order, ..news(now) })
}

pub(in crate::watermark) fn claimed(next: &Advanced) -> Option<String> {
    next.claim.finalized_before_us.map(contract::iso)
}

pub(in crate::watermark) fn flow(
    table: &mut Table,
    writer: &str,
    rows: [(&str, &str); 2],
    partitions: i32,
) -> Advanced {
    let mut last = None;
    for (now, time) in rows {
        for partition in 0..partitions {
            let known = base(table, writer);
            let offset = known.partition(TOPIC, partition).unwrap().next_offset;
            let rows = news(now).rows(partition, offset, &[time]);
            last = Some(commit(table, writer, rows.asked(now, partitions)));
        }
    }
    last.unwrap()
}

/// `flowing` up to 10:00, and a second writer up to 11:00.
pub(in crate::watermark) fn two() -> Table {
    let mut table = Table::flowing();
    commit(&mut table, OTHER, news("10:50").anchor(0, 0));
    flow(
        &mut table,
        OTHER,
        [("11:20", "11:10"), ("11:21", "11:11")],
        1,
    );
    table
}
