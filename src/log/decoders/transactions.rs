//! The records of `__transaction_state`. A key begins with the number of its type, of which there is one, a value with its version.

use super::schema::Kind::{Array, Int8, Int16, Int32, Int64, Struct, Text};
use super::schema::{Field, NEVER, Schema, field};

/// The fields of a key of this type.
pub(super) fn key(number: i16) -> Option<&'static Schema> {
    (number == 0).then_some(&KEY)
}

/// The fields of the value that belongs to a key of this type.
pub(super) fn value(number: i16) -> Option<&'static Schema> {
    (number == 0).then_some(&VALUE)
}

const PARTITIONS: &[Field] = &[field("topic", Text), field("partitionIds", Array(&Int32))];
static KEY: Schema = Schema { versions: (0, 0), flexible_from: NEVER, fields: &[field("transactionalId", Text)] };
static VALUE: Schema = Schema {
    versions: (0, 1),
    flexible_from: 1,
    fields: &[
        field("producerId", Int64),
        field("previousProducerId", Int64).since(1).tagged(0),
        field("nextProducerId", Int64).since(1).tagged(1),
        field("producerEpoch", Int16),
        field("nextProducerEpoch", Int16).since(1).tagged(3),
        field("transactionTimeoutMs", Int32),
        field("transactionStatus", Int8),
        field("transactionPartitions", Array(&Struct(PARTITIONS))).nullable(0),
        field("transactionLastUpdateTimestampMs", Int64),
        field("transactionStartTimestampMs", Int64),
        field("clientTransactionVersion", Int16).since(1).tagged(2),
    ],
};
