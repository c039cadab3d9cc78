//! What rdkafka's safe interface lacks, as safe values.
//!
//! rdkafka 0.39 hides four things that a position depends on: topic and offset of an end-of-partition event (its `poll` keeps
//! the partition number only), rebalances as values (it runs them inside `poll`, before the caller could commit), leader
//! epochs, and topic ids. This file takes events from the consumer's queue itself, and asks with librdkafka's admin calls.
//! It is the only one in the house with `unsafe`, and holds nothing else: what the values mean is said by `notice` and `desk`.
//! Every block says why it is sound.
//!
//! What holds everywhere: pointers come from librdkafka 2.12.1 and are used while their owner lives. An event owns its
//! message, the message its topic handle and payload; [`Consumer`] owns all events it has handed out and drops them, then its
//! queue, then the client (fields drop in the order of their declaration), as librdkafka asks.
//!
//! Read in the C source: an end-of-partition event carries the fetch position, set before the event is queued behind the
//! messages (`rdkafka_fetcher.c`), and comes again after every move; what was queued before a move, a pause or a release is
//! dropped when it is taken out, by the partition's version (`rd_kafka_op_version_outdated`), errors of a lost position
//! excepted. A queue reference keeps the queue's memory; the client empties and closes the queue when it is destroyed, and
//! a queue made for one question is closed with its reference, so a late answer is destroyed and never delivered.
#![expect(
    unsafe_code,
    reason = "librdkafka's C interface: end-of-partition offsets, rebalances as values, leader epochs and topic ids have no safe one"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka_sys as rd;
use uuid::Uuid;

use super::log::Context;
use super::{Code, TopicPartition};

/// The same C functions with error codes as plain integers. A broker may send a number that the bindings' enum does not
/// list, and such a value of a Rust enum would be undefined behaviour.
mod plain {
    use super::{c_char, c_int, rd};

    unsafe extern "C" {
        pub(super) fn rd_kafka_event_error(event: *mut rd::rd_kafka_event_t) -> c_int;
        pub(super) fn rd_kafka_error_code(error: *const rd::rd_kafka_error_t) -> c_int;
        pub(super) fn rd_kafka_err2name(code: c_int) -> *const c_char;
        pub(super) fn rd_kafka_commit(
            client: *mut rd::rd_kafka_t,
            offsets: *const rd::rd_kafka_topic_partition_list_t,
            asynchronous: c_int,
        ) -> c_int;
    }
}

/// The name of an error code, as librdkafka writes it.
pub(super) fn name_of(code: Code) -> String {
    // SAFETY: takes any number and returns a string that ends with NUL: a static one, or for unknown numbers one in a buffer of
    // this thread, which is read before any other call.
    unsafe { text(plain::rd_kafka_err2name(code.number())) }
}

/// The version of librdkafka in this binary.
pub(super) fn version() -> String {
    // SAFETY: returns a static string that ends with NUL.
    unsafe { text(rd::rd_kafka_version_str()) }
}

/// # Safety
/// `at` is null or a string that ends with NUL and lives during the call.
unsafe fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: not null, and a string by the contract of this function.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

fn millis(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
}

/// One reference to a queue of librdkafka.
struct Queue(NonNull<rd::rd_kafka_queue_t>);

// SAFETY: librdkafka's queues are locked inside; a reference may be used and dropped on any thread.
unsafe impl Send for Queue {}

impl Queue {
    fn poll(&self, timeout: Duration) -> Option<Occurrence> {
        // SAFETY: the queue is alive, this reference keeps it; the event returned is ours to destroy.
        NonNull::new(unsafe { rd::rd_kafka_queue_poll(self.0.as_ptr(), millis(timeout)) })
            .map(Occurrence)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the one reference that this value stands for, given back once.
        unsafe { rd::rd_kafka_queue_destroy(self.0.as_ptr()) }
    }
}

/// One event taken from a queue, destroyed on drop.
pub(super) struct Occurrence(NonNull<rd::rd_kafka_event_t>);

// SAFETY: an event that left its queue belongs to whoever holds it; nothing in it is bound to a thread, and what it shares
// with the client (topic and partition handles) is counted atomically.
unsafe impl Send for Occurrence {}

impl Drop for Occurrence {
    fn drop(&mut self) {
        // SAFETY: owned by this value and destroyed once; no reference into it outlives it.
        unsafe { rd::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

impl Occurrence {
    pub(super) fn kind(&self) -> rd::rd_kafka_event_type_t {
        // SAFETY: the event is alive.
        unsafe { rd::rd_kafka_event_type(self.0.as_ptr()) }
    }

    pub(super) fn code(&self) -> Code {
        // SAFETY: the event is alive; declared to return the plain integer.
        Code::of(unsafe { plain::rd_kafka_event_error(self.0.as_ptr()) })
    }

    pub(super) fn detail(&self) -> String {
        // SAFETY: the event is alive, and the string lives as long as it.
        unsafe { text(rd::rd_kafka_event_error_string(self.0.as_ptr())) }
    }

    /// The partition an error event speaks of, with its offset. 0 where librdkafka set none.
    pub(super) fn place(&self) -> Option<(TopicPartition, i64)> {
        // SAFETY: the event is alive; the answer is null or an element of our own, read and then destroyed once.
        unsafe {
            let element = NonNull::new(rd::rd_kafka_event_topic_partition(self.0.as_ptr()))?;
            let read = Element::read(element.as_ref());
            rd::rd_kafka_topic_partition_destroy(element.as_ptr());
            Some((read.at, read.offset))
        }
    }

    pub(super) fn partitions(&self) -> Vec<Element> {
        // SAFETY: the event is alive and keeps the list (null for other kinds of events), which is read during the call.
        unsafe { elements(rd::rd_kafka_event_topic_partition_list(self.0.as_ptr())) }
    }

    /// Whether the client is of no use any more, for the kind ERROR.
    pub(super) fn is_fatal(&self) -> bool {
        // SAFETY: the event is alive, and of the kind whose member is read.
        self.kind() == rd::RD_KAFKA_EVENT_ERROR
            && unsafe { rd::rd_kafka_event_error_is_fatal(self.0.as_ptr()) != 0 }
    }

    /// Level (as in syslog), facility and text of a line, for the kind LOG.
    pub(super) fn log_line(&self) -> Option<(c_int, String, String)> {
        let (mut facility, mut message, mut level) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the event is alive; on 0 (for other kinds it is not) both strings are set and live as long as it.
        unsafe {
            let answer = rd::rd_kafka_event_log(
                self.0.as_ptr(),
                &raw mut facility,
                &raw mut message,
                &raw mut level,
            );
            (answer == 0).then(|| (level, text(facility), text(message)))
        }
    }
}

/// One line of a list of partitions, read out.
pub(super) struct Element {
    pub(super) at: TopicPartition,
    pub(super) offset: i64,
    pub(super) code: Code,
}

impl Element {
    /// # Safety
    /// The element's topic is a string that ends with NUL.
    unsafe fn read(element: &rd::rd_kafka_topic_partition_t) -> Self {
        // SAFETY: the string by the contract; the code is read as the integer it is in C, never as a value of the enum.
        unsafe {
            Self {
                at: TopicPartition::new(text(element.topic), element.partition),
                offset: element.offset,
                code: Code::of((&raw const element.err).cast::<i32>().read()),
            }
        }
    }
}

/// # Safety
/// `list` is null or a list that lives during the call.
unsafe fn elements(list: *const rd::rd_kafka_topic_partition_list_t) -> Vec<Element> {
    // SAFETY: checked for null; `elems` holds `cnt` elements, or is null when there are none.
    unsafe {
        let Some(list) = list.as_ref() else {
            return Vec::new();
        };
        let count = usize::try_from(list.cnt).unwrap_or(0);
        if count == 0 {
            return Vec::new();
        }
        slice::from_raw_parts(list.elems, count)
            .iter()
            .map(|element| Element::read(element))
            .collect()
    }
}

/// A list of partitions of our own.
pub(super) struct List(NonNull<rd::rd_kafka_topic_partition_list_t>);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: owned by this value and destroyed once.
        unsafe { rd::rd_kafka_topic_partition_list_destroy(self.0.as_ptr()) }
    }
}

impl List {
    /// Partitions with an offset (or timestamp, or logical offset) and, where known, a leader epoch.
    pub(super) fn of<'p>(
        lines: impl IntoIterator<Item = (&'p TopicPartition, i64, Option<i32>)>,
    ) -> Result<Self, Code> {
        // SAFETY: makes a new list, which aborts the process rather than return null when memory is out.
        let list = Self(
            NonNull::new(unsafe { rd::rd_kafka_topic_partition_list_new(16) })
                .ok_or(Code::INVALID_ARG)?,
        );
        for (at, offset, leader_epoch) in lines {
            let topic = CString::new(&*at.topic).map_err(|_| Code::INVALID_ARG)?;
            // SAFETY: the list is ours; the name is copied; the element returned stays valid until the next one is added.
            unsafe {
                let element = rd::rd_kafka_topic_partition_list_add(
                    list.0.as_ptr(),
                    topic.as_ptr(),
                    at.partition,
                );
                (*element).offset = offset;
                if let Some(leader_epoch) = leader_epoch {
                    rd::rd_kafka_topic_partition_set_leader_epoch(element, leader_epoch);
                }
            }
        }
        Ok(list)
    }

    pub(super) fn elements(&self) -> Vec<Element> {
        // SAFETY: the list is ours and alive.
        unsafe { elements(self.0.as_ptr()) }
    }
}

/// Takes an error object of librdkafka and leaves its code.
///
/// # Safety
/// `error` is null or an error that nobody else destroys.
unsafe fn outcome(error: *mut rd::rd_kafka_error_t) -> Result<(), Code> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, ours to destroy by the contract, and not used after.
    let code = unsafe {
        let code = Code::of(plain::rd_kafka_error_code(error));
        rd::rd_kafka_error_destroy(error);
        code
    };
    if code == Code::OK { Ok(()) } else { Err(code) }
}

/// A message and the event that owns it. The tag is the caller's.
struct Held {
    message: NonNull<rd::rd_kafka_message_t>,
    tag: u32,
    _owner: Occurrence,
}

// SAFETY: the message is part of the event beside it, which may go to another thread; it is only read.
unsafe impl Send for Held {}

/// One record, borrowed from the consumer: nothing is copied.
#[derive(Clone, Copy)]
pub(super) struct RawMessage<'a> {
    message: &'a rd::rd_kafka_message_t,
    pub(super) tag: u32,
}

impl<'a> RawMessage<'a> {
    /// A number that stands for the topic as long as one of its partitions is assigned.
    pub(super) fn topic_handle(self) -> usize {
        self.message.rkt.addr()
    }

    pub(super) fn topic(self) -> &'a str {
        // SAFETY: the message holds a reference to its topic, whose name lives as long; Kafka's topic names are ASCII.
        let name = unsafe { CStr::from_ptr(rd::rd_kafka_topic_name(self.message.rkt)) };
        name.to_str().unwrap_or_default()
    }

    pub(super) fn partition(self) -> i32 {
        self.message.partition
    }

    pub(super) fn offset(self) -> i64 {
        self.message.offset
    }

    pub(super) fn timestamp_ms(self) -> Option<i64> {
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive; the kind is written with one of the three values of the enum.
        let timestamp_ms = unsafe { rd::rd_kafka_message_timestamp(self.message, &raw mut kind) };
        let known = kind != rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        (known && timestamp_ms >= 0).then_some(timestamp_ms)
    }

    pub(super) fn leader_epoch(self) -> Option<i32> {
        // SAFETY: the message is alive and came from a consumer, as the function wants it.
        let leader_epoch = unsafe { rd::rd_kafka_message_leader_epoch(self.message) };
        (leader_epoch >= 0).then_some(leader_epoch)
    }

    pub(super) fn key(self) -> Option<&'a [u8]> {
        // SAFETY: the key is null or `key_len` bytes that live and do not change as long as the message.
        unsafe { bytes(self.message.key, self.message.key_len) }
    }

    pub(super) fn value(self) -> Option<&'a [u8]> {
        // SAFETY: the payload is null or `len` bytes that live and do not change as long as the message.
        unsafe { bytes(self.message.payload, self.message.len) }
    }

    pub(super) fn headers(self) -> Headers<'a> {
        let mut list = ptr::null_mut();
        // SAFETY: the message is alive. Headers are parsed on the first call and kept in the message: that is a write behind
        // a shared reference, but in C's own memory, and a message is only ever used by one thread at a time (not `Sync`).
        let code = unsafe { rd::rd_kafka_message_headers(self.message, &raw mut list) };
        let found = code == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        Headers {
            list: if found { list } else { ptr::null_mut() },
            next: 0,
            message: PhantomData,
        }
    }
}

/// # Safety
/// `at` is null or `length` bytes that live and do not change during `'a`.
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> Option<&'a [u8]> {
    if at.is_null() {
        return None;
    }
    // SAFETY: not null, and the bytes by the contract.
    Some(unsafe { slice::from_raw_parts(at.cast::<u8>(), length) })
}

/// A header of a record: its name, and its value where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name; bytes that are no UTF-8 make it empty.
    pub name: &'a str,
    /// The bytes; `None` is a header without a value.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record in their order, parsed when first asked for.
pub struct Headers<'a> {
    list: *mut rd::rd_kafka_headers_t,
    next: usize,
    message: PhantomData<&'a [u8]>,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.list.is_null() {
            return None;
        }
        let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the list belongs to the message, which lives during 'a; any index may be asked for. On success the name is
        // a string that ends with NUL and the value null or `length` bytes, all of them the message's.
        unsafe {
            let code = rd::rd_kafka_header_get_all(
                self.list,
                self.next,
                &raw mut name,
                &raw mut value,
                &raw mut length,
            );
            if code != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return None;
            }
            self.next += 1;
            let name = CStr::from_ptr(name).to_str().unwrap_or_default();
            Some(Header {
                name,
                value: bytes(value, length),
            })
        }
    }
}

/// What [`Consumer::take`] has taken.
pub(super) enum Taken<T> {
    /// There was nothing.
    Nothing,
    /// A message, held or dropped.
    Message,
    /// Something else, as it was read.
    Other(T),
}

/// A consumer whose queue is read here.
pub(super) struct Consumer {
    held: Vec<Held>,
    queue: Queue,
    client: BaseConsumer<Context>,
}

impl Consumer {
    /// The configuration must name a group: without one librdkafka has no consumer queue.
    pub(super) fn new(config: &ClientConfig) -> Result<Self, KafkaError> {
        let client: BaseConsumer<Context> = config.create_with_context(Context::default())?;
        // SAFETY: the client is alive; null where it has no group, else a reference of our own.
        let queue = unsafe { rd::rd_kafka_queue_get_consumer(client.client().native_ptr()) };
        let queue = NonNull::new(queue).map(Queue);
        let queue = queue.ok_or_else(|| {
            KafkaError::ClientCreation("no consumer queue: group.id is missing".to_owned())
        })?;
        let held = Vec::new();
        Ok(Self {
            held,
            queue,
            client,
        })
    }

    pub(super) fn client(&self) -> &BaseConsumer<Context> {
        &self.client
    }

    fn native(&self) -> *mut rd::rd_kafka_t {
        self.client.client().native_ptr()
    }

    /// Lets go of the messages held.
    pub(super) fn let_go(&mut self) {
        self.held.clear();
    }

    /// Takes one thing from the queue and waits up to `timeout` for it. `sort` gives a message its tag and it is held, or `None`
    /// to drop it; `read` makes a value of anything else.
    pub(super) fn take<T>(
        &mut self,
        timeout: Duration,
        sort: impl FnOnce(RawMessage<'_>) -> Option<u32>,
        read: impl FnOnce(&Occurrence, &BaseConsumer<Context>) -> T,
    ) -> Taken<T> {
        let Some(event) = self.queue.poll(timeout) else {
            return Taken::Nothing;
        };
        if event.kind() == rd::RD_KAFKA_EVENT_FETCH {
            self.hold(event, sort);
            return Taken::Message;
        }
        Taken::Other(read(&event, &self.client))
    }

    fn hold(&mut self, event: Occurrence, sort: impl FnOnce(RawMessage<'_>) -> Option<u32>) {
        // SAFETY: the event is alive and of kind FETCH; it owns the message that it returns, or returns null.
        let message = unsafe { rd::rd_kafka_event_message_next(event.0.as_ptr()) };
        let Some(message) = NonNull::new(message.cast_mut()) else {
            return;
        };
        // SAFETY: the message lives as long as the event, which is alive here.
        let seen = RawMessage {
            message: unsafe { message.as_ref() },
            tag: 0,
        };
        if let Some(tag) = sort(seen) {
            self.held.push(Held {
                message,
                tag,
                _owner: event,
            });
        }
    }

    /// The messages of the last round.
    pub(super) fn held(&self) -> impl ExactSizeIterator<Item = RawMessage<'_>> {
        // SAFETY: each message is owned by the event beside it, and `&self` keeps both where they are.
        self.held.iter().map(|held| RawMessage {
            message: unsafe { held.message.as_ref() },
            tag: held.tag,
        })
    }

    /// Begins with partitions that were not assigned. In a group this answers `Assigned`.
    pub(super) fn incremental_assign(&self, list: &List) -> Result<(), Code> {
        // SAFETY: client and list are alive; the list is copied; the error returned is ours.
        unsafe {
            outcome(rd::rd_kafka_incremental_assign(
                self.native(),
                list.0.as_ptr(),
            ))
        }
    }

    /// Lets partitions go. In a group this answers `Revoked`.
    pub(super) fn incremental_unassign(&self, list: &List) -> Result<(), Code> {
        // SAFETY: client and list are alive; the list is only read; the error returned is ours.
        unsafe {
            outcome(rd::rd_kafka_incremental_unassign(
                self.native(),
                list.0.as_ptr(),
            ))
        }
    }

    /// Moves assigned partitions. Their errors, one by one, are in the list afterwards.
    pub(super) fn seek(&self, list: &List, timeout: Duration) -> Result<(), Code> {
        // SAFETY: client and list are alive, and nobody else has the list; it is done with when the call returns.
        unsafe {
            outcome(rd::rd_kafka_seek_partitions(
                self.native(),
                list.0.as_ptr(),
                millis(timeout),
            ))
        }
    }

    /// Sends group offsets off; the answer comes as a notice.
    pub(super) fn commit(&self, list: &List) -> Result<(), Code> {
        // SAFETY: client and list are alive; the list is copied.
        let code = Code::of(unsafe { plain::rd_kafka_commit(self.native(), list.0.as_ptr(), 1) });
        if code == Code::OK { Ok(()) } else { Err(code) }
    }
}

/// A topic as the cluster describes it.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) id: Option<Uuid>,
    pub(super) internal: bool,
    pub(super) partitions: Vec<i32>,
    pub(super) code: Code,
}

/// Options of one admin request.
struct Options(NonNull<rd::rd_kafka_AdminOptions_t>);

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: owned by this value and destroyed once.
        unsafe { rd::rd_kafka_AdminOptions_destroy(self.0.as_ptr()) }
    }
}

/// Asks with one admin request and waits for the answer on a queue of its own.
fn ask(
    client: &BaseConsumer<Context>,
    operation: rd::rd_kafka_admin_op_t,
    broker: Option<i32>,
    timeout: Duration,
    send: impl FnOnce(
        *mut rd::rd_kafka_t,
        *const rd::rd_kafka_AdminOptions_t,
        *mut rd::rd_kafka_queue_t,
    ),
) -> Result<Occurrence, Code> {
    let native = client.client().native_ptr();
    // SAFETY: the client is alive. Options and queue are ours, and dropped when the function ends; a late answer then goes to
    // a queue that librdkafka has closed, and is destroyed there. The buffer has the length that is told.
    let (options, queue) = unsafe {
        let options = NonNull::new(rd::rd_kafka_AdminOptions_new(native, operation))
            .ok_or(Code::INVALID_ARG)?;
        let options = Options(options);
        let mut problem: [c_char; 128] = [0; 128];
        rd::rd_kafka_AdminOptions_set_request_timeout(
            options.0.as_ptr(),
            millis(timeout).max(1),
            problem.as_mut_ptr(),
            problem.len(),
        );
        if let Some(broker) = broker {
            rd::rd_kafka_AdminOptions_set_broker(
                options.0.as_ptr(),
                broker,
                problem.as_mut_ptr(),
                problem.len(),
            );
        }
        let queue = NonNull::new(rd::rd_kafka_queue_new(native)).ok_or(Code::INVALID_ARG)?;
        (options, Queue(queue))
    };
    send(native, options.0.as_ptr(), queue.0.as_ptr());
    let answer = queue
        .poll(timeout + Duration::from_millis(500))
        .ok_or(Code::TIMED_OUT)?;
    match answer.code() {
        Code::OK => Ok(answer),
        code => Err(code),
    }
}

/// Describes topics by name, all in one request to this broker. Each has its own error.
///
/// Any broker knows; left to itself librdkafka 2.12.1 waits for the controller, which its mock cluster does not have.
pub(super) fn describe_topics(
    client: &BaseConsumer<Context>,
    topics: &[String],
    broker: i32,
    timeout: Duration,
) -> Result<Vec<Described>, Code> {
    let names: Result<Vec<CString>, _> = topics
        .iter()
        .map(|topic| CString::new(topic.as_str()))
        .collect();
    let names = names.map_err(|_| Code::INVALID_ARG)?;
    let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    let answer = ask(
        client,
        operation,
        Some(broker),
        timeout,
        |native, options, queue| {
            let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
            // SAFETY: the names live during the call and are copied into the collection, which is destroyed once, after the call
            // that copies it; options and queue are alive.
            unsafe {
                let collection = rd::rd_kafka_TopicCollection_of_topic_names(
                    pointers.as_mut_ptr(),
                    pointers.len(),
                );
                rd::rd_kafka_DescribeTopics(native, collection, options, queue);
                rd::rd_kafka_TopicCollection_destroy(collection);
            }
        },
    )?;
    // SAFETY: the answer is alive to the end of the function; null if it is no DescribeTopics result, else an array of
    // `count` descriptions that live as long as it.
    unsafe {
        let result = rd::rd_kafka_event_DescribeTopics_result(answer.0.as_ptr());
        if result.is_null() {
            return Err(Code::INVALID_ARG);
        }
        let mut count = 0;
        let array = rd::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        Ok(pointers(array, count)
            .iter()
            .map(|description| described(*description))
            .collect())
    }
}

/// # Safety
/// `array` holds `count` pointers that live during `'a`, or is not looked at because there are none.
unsafe fn pointers<'a, T>(array: *mut *const T, count: usize) -> &'a [*const T] {
    if array.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by the contract of this function.
    unsafe { slice::from_raw_parts(array.cast_const(), count) }
}

/// # Safety
/// `description` lives during the call.
unsafe fn described(description: *const rd::rd_kafka_TopicDescription_t) -> Described {
    // SAFETY: the description is alive and owns its name, id, error and partitions; the error is null where there is none.
    unsafe {
        let error = rd::rd_kafka_TopicDescription_error(description);
        let code = if error.is_null() {
            Code::OK
        } else {
            Code::of(plain::rd_kafka_error_code(error))
        };
        let mut count = 0;
        let array = rd::rd_kafka_TopicDescription_partitions(description, &raw mut count);
        Described {
            name: text(rd::rd_kafka_TopicDescription_name(description)),
            id: topic_id(rd::rd_kafka_TopicDescription_topic_id(description)),
            internal: rd::rd_kafka_TopicDescription_is_internal(description) != 0,
            partitions: pointers(array, count)
                .iter()
                .map(|one| rd::rd_kafka_TopicPartitionInfo_partition(*one))
                .collect(),
            code,
        }
    }
}

/// A cluster older than topic ids (Kafka 2.8) says all zeros.
///
/// # Safety
/// `id` is null or lives during the call.
unsafe fn topic_id(id: *const rd::rd_kafka_Uuid_t) -> Option<Uuid> {
    if id.is_null() {
        return None;
    }
    // SAFETY: not null, alive by the contract.
    let (high, low) = unsafe {
        (
            rd::rd_kafka_Uuid_most_significant_bits(id),
            rd::rd_kafka_Uuid_least_significant_bits(id),
        )
    };
    let id = Uuid::from_u64_pair(high.cast_unsigned(), low.cast_unsigned());
    (!id.is_nil()).then_some(id)
}

/// Asks the leaders for offsets under `read_uncommitted`: −1 for the high watermark, −2 for the start of the log, else the
/// first record of this timestamp (ms) or later. One request a leader; each partition has its own error.
pub(super) fn list_offsets(
    client: &BaseConsumer<Context>,
    list: &List,
    timeout: Duration,
) -> Result<Vec<Element>, Code> {
    let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS;
    let answer = ask(
        client,
        operation,
        None,
        timeout,
        |native, options, queue| {
            // SAFETY: client, list, options and queue are alive; the list is copied. `read_uncommitted` is the isolation level of
            // options that set none.
            unsafe { rd::rd_kafka_ListOffsets(native, list.0.as_ptr(), options, queue) }
        },
    )?;
    // SAFETY: the answer is alive to the end of the function; null if it is no ListOffsets result, else an array of `count`
    // infos that live as long as it, each with an element of its own.
    unsafe {
        let result = rd::rd_kafka_event_ListOffsets_result(answer.0.as_ptr());
        if result.is_null() {
            return Err(Code::INVALID_ARG);
        }
        let mut count = 0;
        let array = rd::rd_kafka_ListOffsets_result_infos(result, &raw mut count);
        let elements = pointers(array, count).iter();
        Ok(elements
            .map(|info| Element::read(&*rd::rd_kafka_ListOffsetsResultInfo_topic_partition(*info)))
            .collect())
    }
}
