//! Real servers and foreign readers for the tests: started once a run, a topic and a table for each test.
//!
//! What is needed is laid into a cache outside the checkout by `tests/servers/lay`; `tests/servers/run` runs a server and ends it when
//! the test process does, however that ends.

pub(crate) mod agent;
pub(crate) mod catalog;
pub(crate) mod certificates;
pub(crate) mod judge;
pub(crate) mod kafka;
pub(crate) mod kube;
pub(crate) mod kubelet;
pub(crate) mod ledger;
pub(crate) mod operator;
pub(crate) mod pipeline;
pub(crate) mod proxy;
pub(crate) mod readers;
pub(crate) mod server;
pub(crate) mod spark;
pub(crate) mod store;
pub(crate) mod trial;
pub(crate) mod wait;
pub(crate) mod worker;
