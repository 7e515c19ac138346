//! The records of `__cluster_metadata`. A value begins with three unsigned varints: the version of this frame (1), the number of the type,
//! and the message's version. There are no keys.

use super::schema::Kind::{Array, Bool, Bytes, Float64, Int8, Int16, Int32, Int64, Struct, Text, Uint16, Uuid};
use super::schema::{Field, Schema, field, unsigned_varint};
use super::{Message, Type};

/// A type of record.
struct Record {
    number: u32,
    name: &'static str,
    schema: Schema,
}

/// The message in a value.
pub(super) fn value(value: &[u8]) -> Message<'_> {
    let mut at = 0;
    let mut next = || unsigned_varint(value, &mut at);
    let (frame, number, version) = (next(), next(), next());
    let record = number.and_then(|number| RECORDS.iter().find(|record| record.number == number));
    let message_type = record.map(|record| Type::Name(record.name)).or(number.map(|number| Type::Number(i64::from(number))));
    let schema = record.filter(|_| frame == Some(1)).map(|record| &record.schema);
    let schema_version = version.and_then(|version| i16::try_from(version).ok()).unwrap_or(-1);
    Message::new(message_type, version.map(i64::from), value, schema.zip(value.get(at..)), schema_version)
}

const fn versions_to(last: i16, fields: &'static [Field]) -> Schema {
    Schema { versions: (0, last), flexible_from: 0, fields }
}

const ENDPOINT: &[Field] = &[field("name", Text), field("host", Text), field("port", Uint16), field("securityProtocol", Int16)];
const FEATURE: &[Field] = &[field("name", Text), field("minSupportedVersion", Int16), field("maxSupportedVersion", Int16)];
const QUOTA_ENTITY: &[Field] = &[field("entityType", Text), field("entityName", Text).nullable(0)];

static RECORDS: &[Record] = &[
    Record {
        number: 0,
        name: "REGISTER_BROKER_RECORD",
        schema: versions_to(
            4,
            &[
                field("brokerId", Int32),
                field("isMigratingZkBroker", Bool).since(2),
                field("incarnationId", Uuid),
                field("brokerEpoch", Int64),
                field("endPoints", Array(&Struct(ENDPOINT))),
                field("features", Array(&Struct(FEATURE))),
                field("rack", Text).nullable(0),
                field("fenced", Bool),
                field("inControlledShutdown", Bool).since(1),
                field("logDirs", Array(&Uuid)).since(3).tagged(0),
                field("cordonedLogDirs", Array(&Uuid)).since(4).nullable(4).tagged(1),
            ],
        ),
    },
    Record {
        number: 1,
        name: "UNREGISTER_BROKER_RECORD",
        schema: versions_to(0, &[field("brokerId", Int32), field("brokerEpoch", Int64)]),
    },
    Record { number: 2, name: "TOPIC_RECORD", schema: versions_to(0, &[field("name", Text), field("topicId", Uuid)]) },
    Record {
        number: 3,
        name: "PARTITION_RECORD",
        schema: versions_to(
            2,
            &[
                field("partitionId", Int32),
                field("topicId", Uuid),
                field("replicas", Array(&Int32)),
                field("isr", Array(&Int32)),
                field("removingReplicas", Array(&Int32)),
                field("addingReplicas", Array(&Int32)),
                field("leader", Int32),
                field("leaderRecoveryState", Int8).tagged(0),
                field("leaderEpoch", Int32),
                field("partitionEpoch", Int32),
                field("directories", Array(&Uuid)).since(1),
                field("eligibleLeaderReplicas", Array(&Int32)).since(2).nullable(2).tagged(1),
                field("lastKnownElr", Array(&Int32)).since(2).nullable(2).tagged(2),
            ],
        ),
    },
    Record {
        number: 4,
        name: "CONFIG_RECORD",
        schema: versions_to(
            0,
            &[field("resourceType", Int8), field("resourceName", Text), field("name", Text), field("value", Text).nullable(0)],
        ),
    },
    Record {
        number: 5,
        name: "PARTITION_CHANGE_RECORD",
        schema: versions_to(
            2,
            &[
                field("partitionId", Int32),
                field("topicId", Uuid),
                field("isr", Array(&Int32)).nullable(0).tagged(0),
                field("leader", Int32).tagged(1),
                field("replicas", Array(&Int32)).nullable(0).tagged(2),
                field("removingReplicas", Array(&Int32)).nullable(0).tagged(3),
                field("addingReplicas", Array(&Int32)).nullable(0).tagged(4),
                field("leaderRecoveryState", Int8).tagged(5),
                field("directories", Array(&Uuid)).since(1).nullable(1).tagged(8),
                field("eligibleLeaderReplicas", Array(&Int32)).since(2).nullable(2).tagged(6),
                field("lastKnownElr", Array(&Int32)).since(2).nullable(2).tagged(7),
            ],
        ),
    },
    Record { number: 7, name: "FENCE_BROKER_RECORD", schema: versions_to(0, &[field("id", Int32), field("epoch", Int64)]) },
    Record { number: 8, name: "UNFENCE_BROKER_RECORD", schema: versions_to(0, &[field("id", Int32), field("epoch", Int64)]) },
    Record { number: 9, name: "REMOVE_TOPIC_RECORD", schema: versions_to(0, &[field("topicId", Uuid)]) },
    Record {
        number: 10,
        name: "DELEGATION_TOKEN_RECORD",
        schema: versions_to(
            0,
            &[
                field("owner", Text),
                field("requester", Text),
                field("renewers", Array(&Text)),
                field("issueTimestamp", Int64),
                field("maxTimestamp", Int64),
                field("expirationTimestamp", Int64),
                field("tokenId", Text),
            ],
        ),
    },
    Record {
        number: 11,
        name: "USER_SCRAM_CREDENTIAL_RECORD",
        schema: versions_to(
            0,
            &[
                field("name", Text),
                field("mechanism", Int8),
                field("salt", Bytes),
                field("storedKey", Bytes),
                field("serverKey", Bytes),
                field("iterations", Int32),
            ],
        ),
    },
    Record { number: 12, name: "FEATURE_LEVEL_RECORD", schema: versions_to(0, &[field("name", Text), field("featureLevel", Int16)]) },
    Record {
        number: 14,
        name: "CLIENT_QUOTA_RECORD",
        schema: versions_to(
            0,
            &[field("entity", Array(&Struct(QUOTA_ENTITY))), field("key", Text), field("value", Float64), field("remove", Bool)],
        ),
    },
    Record {
        number: 15,
        name: "PRODUCER_IDS_RECORD",
        schema: versions_to(0, &[field("brokerId", Int32), field("brokerEpoch", Int64), field("nextProducerId", Int64)]),
    },
    Record {
        number: 17,
        name: "BROKER_REGISTRATION_CHANGE_RECORD",
        schema: versions_to(
            3,
            &[
                field("brokerId", Int32),
                field("brokerEpoch", Int64),
                field("fenced", Int8).tagged(0),
                field("inControlledShutdown", Int8).since(1).tagged(1),
                field("logDirs", Array(&Uuid)).since(2).tagged(2),
                field("cordonedLogDirs", Array(&Uuid)).since(3).nullable(3).tagged(3),
            ],
        ),
    },
    Record {
        number: 18,
        name: "ACCESS_CONTROL_ENTRY_RECORD",
        schema: versions_to(
            0,
            &[
                field("id", Uuid),
                field("resourceType", Int8),
                field("resourceName", Text),
                field("patternType", Int8),
                field("principal", Text),
                field("host", Text),
                field("operation", Int8),
                field("permissionType", Int8),
            ],
        ),
    },
    Record { number: 19, name: "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", schema: versions_to(0, &[field("id", Uuid)]) },
    Record { number: 20, name: "NO_OP_RECORD", schema: versions_to(0, &[]) },
    Record { number: 21, name: "ZK_MIGRATION_STATE_RECORD", schema: versions_to(0, &[field("zkMigrationState", Int8)]) },
    Record {
        number: 22,
        name: "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
        schema: versions_to(0, &[field("name", Text), field("mechanism", Int8)]),
    },
    Record { number: 23, name: "BEGIN_TRANSACTION_RECORD", schema: versions_to(0, &[field("name", Text).nullable(0).tagged(0)]) },
    Record { number: 24, name: "END_TRANSACTION_RECORD", schema: versions_to(0, &[]) },
    Record { number: 25, name: "ABORT_TRANSACTION_RECORD", schema: versions_to(0, &[field("reason", Text).nullable(0).tagged(0)]) },
    Record { number: 26, name: "REMOVE_DELEGATION_TOKEN_RECORD", schema: versions_to(0, &[field("tokenId", Text)]) },
    Record {
        number: 27,
        name: "REGISTER_CONTROLLER_RECORD",
        schema: versions_to(
            0,
            &[
                field("controllerId", Int32),
                field("incarnationId", Uuid),
                field("zkMigrationReady", Bool),
                field("endPoints", Array(&Struct(ENDPOINT))),
                field("features", Array(&Struct(FEATURE))),
            ],
        ),
    },
    Record { number: 28, name: "CLEAR_ELR_RECORD", schema: versions_to(0, &[field("topicName", Text)]) },
];
