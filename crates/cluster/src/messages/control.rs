//! Orders of a gateway for the requests on one engine.

use super::encoding::{InstanceNumber, at_most, decode_message, push_bounded};
use super::update::boxed_update;
use super::{MESSAGE_BYTES_MAX, MessageError};
use crate::names::InstanceId;
use engine::RequestUpdate;
use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::super::VERSION;
    use super::super::encoding::push_message;
    use super::super::encoding::tests::assert_checked;
    use super::super::update::tests::updates;
    use super::*;
    use engine::INJECT_TOKENS_MAX;
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
}
