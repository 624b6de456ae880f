//! Orders of a gateway for the requests on one engine, the encoding of control updates, and requests for tokens that
//! did not arrive, whose answer is a [`super::TokenBatch`].

use super::encoding::{InstanceNumber, at_most, decode_message, push_bounded};
use super::{MESSAGE_BYTES_MAX, MessageError};
use crate::names::InstanceId;
use engine::{CHOICES_MAX, INJECT_TOKENS_MAX, RequestUpdate, UPDATES_MAX};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Orders in one message.
pub const ORDERS_MAX: usize = 4096;

/// Order to an engine about a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OrderKind {
    /// End the request.
    Cancel,
    /// Compute no further tokens until resumed.
    Pause,
    /// Compute on after a pause.
    Resume,
    /// The gateway accepted the items of a choice's log below this index: the engine may compute on.
    Credit {
        /// Number of the choice within the request.
        choice: u32,
        /// Items of the log that were accepted.
        accepted: u32,
    },
    /// Change the sampling parameters, inject tokens.
    Update(#[serde(with = "boxed_update")] Box<RequestUpdate>),
    /// The gateway has all tokens and ends, or no interest: nothing has to be kept for a read.
    Forget,
}

/// An order for one attempt of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The gateway counts how often it placed the request; an order for another attempt is stale.
    pub attempt: u32,
    /// Counts the orders of this attempt from 1 on: an engine applies only the one after the last that it applied. 0 for
    /// `Credit` and `Forget`, which are applied when they arrive.
    pub sequence: u32,
    /// Kind of the order.
    pub kind: OrderKind,
}

/// Appends the message of these orders to `out`, whose capacity is reused.
///
/// # Errors
/// There are more than [`ORDERS_MAX`] orders, or the message is longer than [`MESSAGE_BYTES_MAX`]; `out` is unchanged.
pub fn encode_orders(
    gateway: InstanceId,
    orders: &[Order],
    out: &mut Vec<u8>,
) -> Result<(), MessageError> {
    if orders.len() > ORDERS_MAX {
        return Err(MessageError::TooMany("orders", ORDERS_MAX));
    }
    push_bounded(out, &(gateway.0, orders), MESSAGE_BYTES_MAX)
}

#[derive(Deserialize)]
struct Orders {
    #[serde(with = "InstanceNumber")]
    gateway: InstanceId,
    #[serde(deserialize_with = "at_most::<_, _, ORDERS_MAX>")]
    orders: Vec<Order>,
}

/// Reads the gateway and the orders of a message.
///
/// # Errors
/// The version is another one, a count is above its bound, or bytes are missing, unknown or left over.
pub fn decode_orders(message: &[u8]) -> Result<(InstanceId, Vec<Order>), MessageError> {
    let Orders { gateway, orders } = decode_message(message, "orders", MESSAGE_BYTES_MAX)?;
    Ok((gateway, orders))
}

/// The fields of [`RequestUpdate`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestUpdate")]
struct Fields {
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(deserialize_with = "at_most::<_, _, INJECT_TOKENS_MAX>")]
    inject: Vec<u32>,
}

#[derive(Serialize)]
struct Encoded<'a>(#[serde(with = "Fields")] &'a RequestUpdate);

#[derive(Deserialize)]
struct Decoded(#[serde(with = "Fields")] RequestUpdate);

/// One update: `#[serde(with = "boxed_update")]`.
pub(super) mod boxed_update {
    use super::*;

    pub(in crate::messages) fn serialize<S: Serializer>(
        update: &RequestUpdate,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Fields::serialize(update, serializer)
    }

    pub(in crate::messages) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<RequestUpdate>, D::Error> {
        Fields::deserialize(deserializer).map(Box::new)
    }
}

/// At most [`UPDATES_MAX`] updates: `#[serde(with = "update_list")]`.
pub(super) mod update_list {
    use super::*;

    pub(in crate::messages) fn serialize<S: Serializer>(
        updates: &[RequestUpdate],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(updates.iter().map(Encoded))
    }

    pub(in crate::messages) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<RequestUpdate>, D::Error> {
        let updates = at_most::<_, Decoded, UPDATES_MAX>(deserializer)?;
        Ok(updates.into_iter().map(|update| update.0).collect())
    }
}

/// Requests in one message.
pub const READS_MAX: usize = 1024;

/// The tokens that arrived of one attempt of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadEntry {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt that is read.
    pub attempt: u32,
    /// By choice: items of the log that arrived.
    #[serde(deserialize_with = "at_most::<_, _, CHOICES_MAX>")]
    pub have: Vec<u32>,
}

/// A gateway asks an engine for the tokens after those that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// The gateway.
    #[serde(with = "InstanceNumber")]
    pub gateway: InstanceId,
    /// At most [`READS_MAX`].
    #[serde(deserialize_with = "at_most::<_, _, READS_MAX>")]
    pub entries: Vec<ReadEntry>,
}

impl ReadRequest {
    /// Bytes.
    ///
    /// # Errors
    /// There are more than [`READS_MAX`] entries or [`super::MESSAGE_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.entries.len() > READS_MAX {
            return Err(MessageError::TooMany("reads", READS_MAX));
        }
        let mut out = Vec::new();
        push_bounded(&mut out, self, MESSAGE_BYTES_MAX)?;
        Ok(out)
    }

    /// The request of these bytes.
    ///
    /// # Errors
    /// The bytes are no such request, one of another version, or above a bound.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        decode_message(message, "read request", MESSAGE_BYTES_MAX)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::VERSION;
    use super::super::encoding::push_message;
    use super::super::encoding::tests::assert_checked;
    use super::*;
    use engine::{INJECT_TOKENS_MAX, RequestUpdate};
    use proptest::prelude::*;

    const GATEWAY: InstanceId = InstanceId(u64::MAX);

    fn orders() -> impl Strategy<Value = Vec<Order>> {
        let kind = prop_oneof![
            Just(OrderKind::Cancel),
            Just(OrderKind::Pause),
            Just(OrderKind::Resume),
            Just(OrderKind::Forget),
            (any::<u32>(), any::<u32>())
                .prop_map(|(choice, accepted)| OrderKind::Credit { choice, accepted }),
            updates().prop_map(|update| OrderKind::Update(Box::new(update))),
        ];
        let order = (any::<u64>(), any::<u32>(), any::<u32>(), kind).prop_map(
            |(handle, attempt, sequence, kind)| Order {
                handle,
                attempt,
                sequence,
                kind,
            },
        );
        proptest::collection::vec(order, 0..12)
    }

    fn encoded(orders: &[Order]) -> Result<Vec<u8>, MessageError> {
        let mut message = Vec::new();
        encode_orders(GATEWAY, orders, &mut message)?;
        Ok(message)
    }

    proptest! {
        #[test]
        fn orders_are_read_back_and_other_bytes_are_checked(orders in orders()) {
            let message = encoded(&orders).unwrap();
            assert_checked(&message, decode_orders, |(_, orders)| encoded(orders));
            prop_assert_eq!(decode_orders(&message), Ok((GATEWAY, orders)));
        }
    }

    fn order(kind: OrderKind) -> Order {
        Order {
            handle: 1,
            attempt: 0,
            sequence: 0,
            kind,
        }
    }

    fn injection(tokens: usize) -> Order {
        order(OrderKind::Update(Box::new(RequestUpdate {
            inject: vec![u32::MAX; tokens],
            ..RequestUpdate::default()
        })))
    }

    #[test]
    fn counts_above_the_bound_and_other_versions_are_rejected() {
        let malformed = Err(MessageError::Malformed("orders"));
        let huge = [&[VERSION, 0][..], &[0xff; 9], &[1]].concat();
        assert_eq!(decode_orders(&huge), malformed);
        assert_eq!(decode_orders(&[1, 0]), Err(MessageError::Version(1)));
        let many = vec![order(OrderKind::Cancel); ORDERS_MAX + 1];
        let mut message = Vec::new();
        push_message(&mut message, &(0_u64, &many));
        assert_eq!(decode_orders(&message), malformed);
        let too_many = Err(MessageError::TooMany("orders", ORDERS_MAX));
        assert_eq!(encoded(&many), too_many);
        let most = [injection(INJECT_TOKENS_MAX)];
        assert!(decode_orders(&encoded(&most).unwrap()).is_ok());
        let more = [injection(INJECT_TOKENS_MAX + 1)];
        assert_eq!(decode_orders(&encoded(&more).unwrap()), malformed);
        let long = Err(MessageError::TooMany("bytes", MESSAGE_BYTES_MAX));
        assert_eq!(encoded(&vec![injection(1024); 1000]), long);
    }

    pub(in crate::messages) fn updates() -> impl Strategy<Value = RequestUpdate> {
        let float = || proptest::option::of(-9.0_f32..9.0);
        let floats = (float(), float(), float(), float(), float(), float());
        let ids = proptest::collection::vec(any::<u32>(), 0..5);
        (floats, any::<Option<u32>>(), ids).prop_map(|(floats, top_k, inject)| RequestUpdate {
            temperature: floats.0,
            top_k,
            top_p: floats.1,
            min_p: floats.2,
            repetition_penalty: floats.3,
            presence_penalty: floats.4,
            frequency_penalty: floats.5,
            inject,
        })
    }

    proptest! {
        #[test]
        fn read_requests_are_read_back_and_other_bytes_are_checked(
            gateway: u64,
            entries in proptest::collection::vec((any::<u64>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..4)), 0..9),
        ) {
            let entries = entries.into_iter();
            let entries = entries.map(|(handle, attempt, have)| ReadEntry { handle, attempt, have });
            let request = ReadRequest { gateway: InstanceId(gateway), entries: entries.collect() };
            let bytes = request.encode().unwrap();
            assert_checked(&bytes, ReadRequest::decode, ReadRequest::encode);
            prop_assert_eq!(ReadRequest::decode(&bytes), Ok(request));
        }
    }

    #[test]
    fn too_many_entries_are_rejected() {
        let request = ReadRequest {
            entries: vec![ReadEntry::default(); READS_MAX + 1],
            ..ReadRequest::default()
        };
        let too_many = MessageError::TooMany("reads", READS_MAX);
        assert_eq!(request.encode(), Err(too_many));
        let mut message = Vec::new();
        push_message(&mut message, &request);
        let malformed = Err(MessageError::Malformed("read request"));
        assert_eq!(ReadRequest::decode(&message), malformed);
    }
}
