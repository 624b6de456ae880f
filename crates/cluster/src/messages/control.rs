//! Orders of a gateway for the requests on one engine.

use super::MessageError;
use super::bytes::{Reader, push_varint};

/// Orders in one message.
pub const ORDERS_MAX: usize = 4096;
const VERSION: u8 = 1;

/// What an engine is to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKind {
    /// End the request.
    Cancel,
    /// Compute no further tokens until resumed.
    Pause,
    /// Compute on after a pause.
    Resume,
    /// The gateway accepted the tokens of a choice below this index: the engine may compute on.
    Credit {
        /// Number of the choice within the request.
        choice: u32,
        /// Tokens of the choice that were accepted.
        accepted: u32,
    },
}

/// An order for one attempt of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The gateway counts how often it placed the request; an order for another attempt is stale.
    pub attempt: u32,
    /// Counts the orders of this attempt: an order whose number was already applied is ignored.
    pub sequence: u32,
    /// What is to be done.
    pub kind: OrderKind,
}

/// Appends the message of these orders to `out`, whose capacity is reused.
///
/// # Errors
/// There are more than [`ORDERS_MAX`] orders; `out` is unchanged.
pub fn encode_orders(orders: &[Order], out: &mut Vec<u8>) -> Result<(), MessageError> {
    if orders.len() > ORDERS_MAX {
        return Err(MessageError::TooMany("orders", ORDERS_MAX));
    }
    out.push(VERSION);
    push_varint(out, orders.len() as u64);
    for order in orders {
        push_varint(out, order.handle);
        push_varint(out, order.attempt.into());
        push_varint(out, order.sequence.into());
        match order.kind {
            OrderKind::Cancel => out.push(0),
            OrderKind::Pause => out.push(1),
            OrderKind::Resume => out.push(2),
            OrderKind::Credit { choice, accepted } => {
                out.push(3);
                push_varint(out, choice.into());
                push_varint(out, accepted.into());
            }
        }
    }
    Ok(())
}

/// Reads the orders of a message.
///
/// # Errors
/// The version is another one, a count is above [`ORDERS_MAX`], or bytes are missing, unknown or left over.
pub fn decode_orders(message: &[u8]) -> Result<Vec<Order>, MessageError> {
    let mut reader = Reader(message);
    match reader.take_u8() {
        Some(VERSION) => {}
        Some(other) => return Err(MessageError::Version(other)),
        None => return Err(MessageError::Malformed("orders")),
    }
    let malformed = MessageError::Malformed("orders");
    let count = reader.take_u64().ok_or(malformed)?;
    if count > ORDERS_MAX as u64 {
        return Err(MessageError::TooMany("orders", ORDERS_MAX));
    }
    let orders: Option<Vec<_>> = (0..count).map(|_| take_order(&mut reader)).collect();
    orders.filter(|_| reader.0.is_empty()).ok_or(malformed)
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
    use proptest::prelude::*;

    use super::*;

    fn orders() -> impl Strategy<Value = Vec<Order>> {
        let kind = prop_oneof![
            Just(OrderKind::Cancel),
            Just(OrderKind::Pause),
            Just(OrderKind::Resume),
            (any::<u32>(), any::<u32>())
                .prop_map(|(choice, accepted)| OrderKind::Credit { choice, accepted }),
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
            encode_orders(&orders, &mut message).unwrap();
            prop_assert_eq!(decode_orders(&message), Ok(orders));
            for cut in 0..message.len() {
                prop_assert!(decode_orders(&message[..cut]).is_err());
            }
            message.push(0);
            prop_assert!(decode_orders(&message).is_err());
        }

        #[test]
        fn any_bytes_are_orders_or_an_error(bytes: Vec<u8>) {
            if let Ok(orders) = decode_orders(&bytes) {
                prop_assert!(orders.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn counts_above_the_bound_and_other_versions_are_rejected() {
        let mut message = vec![VERSION];
        push_varint(&mut message, u64::MAX);
        let too_many = Err(MessageError::TooMany("orders", ORDERS_MAX));
        assert_eq!(decode_orders(&message), too_many);
        assert_eq!(decode_orders(&[2, 0]), Err(MessageError::Version(2)));
        let order = Order {
            handle: 1,
            attempt: 0,
            sequence: 0,
            kind: OrderKind::Cancel,
        };
        let mut out = Vec::new();
        assert!(encode_orders(&vec![order; ORDERS_MAX + 1], &mut out).is_err());
        assert!(out.is_empty());
    }
}
