//! Orders within the bounds of messages.

use crate::messages::{MESSAGE_BYTES_MAX, Order, encode_orders};
use crate::names::InstanceId;

/// Messages of these orders, divided where they are longer than a message may be.
pub(super) fn encode_in_parts(gateway: InstanceId, orders: &[Order]) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    if encode_orders(gateway, orders, &mut message).is_ok() {
        debug_assert!(message.len() <= MESSAGE_BYTES_MAX);
        return vec![message];
    }
    let (left, right) = orders.split_at(orders.len() / 2);
    if left.is_empty() {
        return Vec::new();
    }
    let left = encode_in_parts(gateway, left);
    left.into_iter()
        .chain(encode_in_parts(gateway, right))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{OrderKind, decode_orders};
    use engine::RequestUpdate;

    #[test]
    fn long_orders_are_divided() {
        let update = RequestUpdate {
            inject: vec![u32::MAX; 1024],
            ..RequestUpdate::default()
        };
        let order = |sequence| Order {
            handle: 1,
            attempt: 1,
            sequence,
            kind: OrderKind::Update(Box::new(update.clone())),
        };
        let orders: Vec<_> = (0..500).map(order).collect();
        let messages = encode_in_parts(InstanceId(1), &orders);
        assert!(messages.len() > 1);
        let decoded = messages.iter().flat_map(|m| decode_orders(m).unwrap().1);
        assert_eq!(decoded.collect::<Vec<_>>(), orders);
    }
}
