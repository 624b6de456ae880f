//! Orders of a gateway for the requests on one engine.

use super::bytes::{Reader, push_varint};
use super::update::{push_update, take_update};
use super::{MESSAGE_BYTES_MAX, MessageError, VERSION, open_message};
use crate::names::InstanceId;
use engine::RequestUpdate;

/// Orders in one message.
pub const ORDERS_MAX: usize = 4096;

/// Order to an engine about a request.
#[derive(Clone, Debug, PartialEq)]
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
    Update(Box<RequestUpdate>),
    /// The gateway has all tokens and ends, or no interest: nothing has to be kept for a read.
    Forget,
}

/// An order for one attempt of a request.
#[derive(Clone, Debug, PartialEq)]
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
    let start = out.len();
    out.push(VERSION);
    push_varint(out, gateway.0);
    push_varint(out, orders.len() as u64);
    orders.iter().for_each(|order| push_order(out, order));
    if out.len() - start > MESSAGE_BYTES_MAX {
        out.truncate(start);
        return Err(MessageError::TooMany("bytes", MESSAGE_BYTES_MAX));
    }
    Ok(())
}

fn push_order(out: &mut Vec<u8>, order: &Order) {
    push_varint(out, order.handle);
    push_varint(out, order.attempt.into());
    push_varint(out, order.sequence.into());
    match &order.kind {
        OrderKind::Cancel => out.push(0),
        OrderKind::Pause => out.push(1),
        OrderKind::Resume => out.push(2),
        OrderKind::Credit { choice, accepted } => {
            out.push(3);
            push_varint(out, u64::from(*choice));
            push_varint(out, u64::from(*accepted));
        }
        OrderKind::Update(update) => {
            out.push(4);
            push_update(out, update);
        }
        OrderKind::Forget => out.push(5),
    }
}

/// Reads the gateway and the orders of a message.
///
/// # Errors
/// The version is another one, a count is above its bound, or bytes are missing, unknown or left over.
pub fn decode_orders(message: &[u8]) -> Result<(InstanceId, Vec<Order>), MessageError> {
    let mut reader = open_message(message, "orders", MESSAGE_BYTES_MAX)?;
    let mut take = || {
        let gateway = InstanceId(reader.take_u64()?);
        let count = reader.take_count(ORDERS_MAX, 4)?;
        let orders = (0..count).map(|_| take_order(&mut reader));
        Some((gateway, orders.collect::<Option<Vec<_>>>()?))
    };
    let orders = take();
    orders
        .filter(|_| reader.0.is_empty())
        .ok_or(MessageError::Malformed("orders"))
}

fn take_order(reader: &mut Reader<'_>) -> Option<Order> {
    let (handle, attempt) = (reader.take_u64()?, reader.take_u32()?);
    let sequence = reader.take_u32()?;
    let kind = match reader.take_u8()? {
        0 => OrderKind::Cancel,
        1 => OrderKind::Pause,
        2 => OrderKind::Resume,
        3 => OrderKind::Credit {
            choice: reader.take_u32()?,
            accepted: reader.take_u32()?,
        },
        4 => OrderKind::Update(Box::new(take_update(reader)?)),
        5 => OrderKind::Forget,
        _ => return None,
    };
    Some(Order {
        handle,
        attempt,
        sequence,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::tests::updates;
    use super::*;
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
        proptest::collection::vec(order, 0..40)
    }

    proptest! {
        #[test]
        fn orders_are_read_back_and_no_prefix_is_accepted(orders in orders()) {
            let mut message = Vec::new();
            encode_orders(GATEWAY, &orders, &mut message).unwrap();
            prop_assert_eq!(decode_orders(&message), Ok((GATEWAY, orders)));
            for cut in 0..message.len() {
                prop_assert!(decode_orders(&message[..cut]).is_err());
            }
            message.push(0);
            prop_assert!(decode_orders(&message).is_err());
        }

        #[test]
        fn any_bytes_are_orders_or_an_error(orders in orders(), at: prop::sample::Index, byte: u8) {
            let mut message = Vec::new();
            encode_orders(GATEWAY, &orders, &mut message).unwrap();
            let at = at.index(message.len());
            message[at] = byte;
            if let Ok((_, orders)) = decode_orders(&message) {
                prop_assert!(orders.len() <= message.len());
            }
        }
    }

    #[test]
    fn counts_above_the_bound_and_other_versions_are_rejected() {
        let mut message = vec![VERSION, 0];
        push_varint(&mut message, u64::MAX);
        let malformed = Err(MessageError::Malformed("orders"));
        assert_eq!(decode_orders(&message), malformed);
        assert_eq!(decode_orders(&[2, 0]), Err(MessageError::Version(2)));
        let order = Order {
            handle: 1,
            attempt: 0,
            sequence: 0,
            kind: OrderKind::Cancel,
        };
        let mut out = Vec::new();
        let many = vec![order.clone(); ORDERS_MAX + 1];
        assert!(encode_orders(GATEWAY, &many, &mut out).is_err());
        let long = Order {
            kind: OrderKind::Update(Box::new(RequestUpdate {
                inject: vec![u32::MAX; 1024],
                ..RequestUpdate::default()
            })),
            ..order
        };
        assert!(encode_orders(GATEWAY, &vec![long; 1000], &mut out).is_err());
        assert!(out.is_empty());
    }
}
