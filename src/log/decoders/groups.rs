//! The records of `__consumer_offsets`. A key begins with the number of its type, a value with its version.

use super::schema::Kind::{Array, Bytes, Int8, Int16, Int32, Int64, Protocol, ProtocolType, Struct, Text, Uint16, Uuid};
use super::schema::{Field, NEVER, Schema, field};

/// A type of record.
struct Type {
    number: i16,
    key: Schema,
    value: Schema,
}

/// The fields of a key of this type.
pub(super) fn key(number: i16) -> Option<&'static Schema> {
    find(number).map(|found| &found.key)
}

/// The fields of the value that belongs to a key of this type.
pub(super) fn value(number: i16) -> Option<&'static Schema> {
    find(number).map(|found| &found.value)
}

fn find(number: i16) -> Option<&'static Type> {
    TYPES.iter().find(|found| found.number == number)
}

/// Keys have no flexible form and no versions.
const fn keyed(fields: &'static [Field]) -> Schema {
    Schema { versions: (0, 0), flexible_from: NEVER, fields }
}

/// A value of which there is version 0 only, which is flexible.
const fn flexible(fields: &'static [Field]) -> Schema {
    Schema { versions: (0, 0), flexible_from: 0, fields }
}

const OWNED_PARTITIONS: &[Field] = &[field("topic", Text).since(1), field("partitions", Array(&Int32)).since(1)];
const ASSIGNED_PARTITIONS: &[Field] = &[field("topic", Text), field("partitions", Array(&Int32))];
/// What a consumer tells its group.
static SUBSCRIPTION: Schema = Schema {
    versions: (0, 3),
    flexible_from: NEVER,
    fields: &[
        field("topics", Array(&Text)),
        field("userData", Bytes).nullable(0),
        field("ownedPartitions", Array(&Struct(OWNED_PARTITIONS))).since(1),
        field("generationId", Int32).since(2),
        field("rackId", Text).since(3).nullable(3),
    ],
};
/// What a consumer is given.
static ASSIGNMENT: Schema = Schema {
    versions: (0, 3),
    flexible_from: NEVER,
    fields: &[field("assignedPartitions", Array(&Struct(ASSIGNED_PARTITIONS))), field("userData", Bytes).nullable(0)],
};
const MEMBER: &[Field] = &[
    field("memberId", Text),
    field("groupInstanceId", Text).since(3).nullable(3),
    field("clientId", Text),
    field("clientHost", Text),
    field("rebalanceTimeout", Int32).since(1),
    field("sessionTimeout", Int32),
    field("subscription", Protocol(&SUBSCRIPTION)),
    field("assignment", Protocol(&ASSIGNMENT)),
];
const PARTITION_RACKS: &[Field] = &[field("partition", Int32), field("racks", Array(&Text))];
const TOPIC_RACKS: &[Field] = &[
    field("topicId", Uuid),
    field("topicName", Text),
    field("numPartitions", Int32),
    field("partitionMetadata", Array(&Struct(PARTITION_RACKS))),
];
const CLASSIC_PROTOCOL: &[Field] = &[field("name", Text), field("metadata", Bytes)];
const CLASSIC_MEMBER: &[Field] = &[field("sessionTimeoutMs", Int32), field("supportedProtocols", Array(&Struct(CLASSIC_PROTOCOL)))];
const TOPIC_PARTITIONS: &[Field] = &[field("topicId", Uuid), field("partitions", Array(&Int32))];
const TOPIC_PARTITION_EPOCHS: &[Field] =
    &[field("topicId", Uuid), field("partitions", Array(&Int32)), field("assignmentEpochs", Array(&Int32)).nullable(0).tagged(0)];
const NAMED_TOPIC_PARTITIONS: &[Field] = &[field("topicId", Uuid), field("topicName", Text), field("partitions", Array(&Int32))];
const NAMED_TOPIC: &[Field] = &[field("topicId", Uuid), field("topicName", Text)];
const KEY_VALUE: &[Field] = &[field("key", Text), field("value", Text)];
const ENDPOINT: &[Field] = &[field("host", Text), field("port", Uint16)];
const TASKS: &[Field] = &[field("subtopologyId", Text), field("partitions", Array(&Int32))];
const TASK_EPOCHS: &[Field] =
    &[field("subtopologyId", Text), field("partitions", Array(&Int32)), field("assignmentEpochs", Array(&Int32)).nullable(0).tagged(0)];
const STREAMS_TOPIC: &[Field] =
    &[field("name", Text), field("partitions", Int32), field("replicationFactor", Int16), field("topicConfigs", Array(&Struct(KEY_VALUE)))];
const COPARTITION_GROUP: &[Field] =
    &[field("sourceTopics", Array(&Int16)), field("sourceTopicRegex", Array(&Int16)), field("repartitionSourceTopics", Array(&Int16))];
const SUBTOPOLOGY: &[Field] = &[
    field("subtopologyId", Text),
    field("sourceTopics", Array(&Text)),
    field("sourceTopicRegex", Array(&Text)),
    field("stateChangelogTopics", Array(&Struct(STREAMS_TOPIC))),
    field("repartitionSinkTopics", Array(&Text)),
    field("repartitionSourceTopics", Array(&Struct(STREAMS_TOPIC))),
    field("copartitionGroups", Array(&Struct(COPARTITION_GROUP))),
];

static TYPES: &[Type] = &[
    // LegacyOffsetCommit
    Type {
        number: 0,
        key: keyed(&[field("group", Text), field("topic", Text), field("partition", Int32)]),
        value: keyed(&[field("offset", Int64), field("metadata", Text), field("commitTimestamp", Int64)]),
    },
    // OffsetCommit
    Type {
        number: 1,
        key: keyed(&[field("group", Text), field("topic", Text), field("partition", Int32)]),
        value: Schema {
            versions: (0, 4),
            flexible_from: 4,
            fields: &[
                field("offset", Int64),
                field("leaderEpoch", Int32).since(3),
                field("metadata", Text),
                field("commitTimestamp", Int64),
                field("expireTimestamp", Int64).since(1).until(1),
                field("topicId", Uuid).since(4).tagged(0),
            ],
        },
    },
    // GroupMetadata
    Type {
        number: 2,
        key: keyed(&[field("group", Text)]),
        value: Schema {
            versions: (0, 4),
            flexible_from: 4,
            fields: &[
                field("protocolType", ProtocolType),
                field("generation", Int32),
                field("protocol", Text).nullable(0),
                field("leader", Text).nullable(0),
                field("currentStateTimestamp", Int64).since(2),
                field("members", Array(&Struct(MEMBER))),
            ],
        },
    },
    // ConsumerGroupMetadata
    Type {
        number: 3,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[field("epoch", Int32), field("metadataHash", Int64).tagged(0)]),
    },
    // ConsumerGroupPartitionMetadata
    Type { number: 4, key: keyed(&[field("groupId", Text)]), value: flexible(&[field("topics", Array(&Struct(TOPIC_RACKS)))]) },
    // ConsumerGroupMemberMetadata
    Type {
        number: 5,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("instanceId", Text).nullable(0),
            field("rackId", Text).nullable(0),
            field("clientId", Text),
            field("clientHost", Text),
            field("subscribedTopicNames", Array(&Text)),
            field("subscribedTopicRegex", Text).nullable(0),
            field("rebalanceTimeoutMs", Int32),
            field("serverAssignor", Text).nullable(0),
            field("classicMemberMetadata", Struct(CLASSIC_MEMBER)).nullable(0).tagged(0),
        ]),
    },
    // ConsumerGroupTargetAssignmentMetadata
    Type {
        number: 6,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[field("assignmentEpoch", Int32), field("assignmentTimestamp", Int64).tagged(0)]),
    },
    // ConsumerGroupTargetAssignmentMember
    Type {
        number: 7,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[field("topicPartitions", Array(&Struct(TOPIC_PARTITIONS)))]),
    },
    // ConsumerGroupCurrentMemberAssignment
    Type {
        number: 8,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("memberEpoch", Int32),
            field("previousMemberEpoch", Int32),
            field("state", Int8),
            field("assignedPartitions", Array(&Struct(TOPIC_PARTITION_EPOCHS))),
            field("partitionsPendingRevocation", Array(&Struct(TOPIC_PARTITION_EPOCHS))),
        ]),
    },
    // ShareGroupMemberMetadata
    Type {
        number: 10,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("rackId", Text).nullable(0),
            field("clientId", Text),
            field("clientHost", Text),
            field("subscribedTopicNames", Array(&Text)),
        ]),
    },
    // ShareGroupMetadata
    Type { number: 11, key: keyed(&[field("groupId", Text)]), value: flexible(&[field("epoch", Int32), field("metadataHash", Int64)]) },
    // ShareGroupTargetAssignmentMetadata
    Type {
        number: 12,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[field("assignmentEpoch", Int32), field("assignmentTimestamp", Int64).tagged(0)]),
    },
    // ShareGroupTargetAssignmentMember
    Type {
        number: 13,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[field("topicPartitions", Array(&Struct(TOPIC_PARTITIONS)))]),
    },
    // ShareGroupCurrentMemberAssignment
    Type {
        number: 14,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("memberEpoch", Int32),
            field("previousMemberEpoch", Int32),
            field("state", Int8),
            field("assignedPartitions", Array(&Struct(TOPIC_PARTITIONS))),
        ]),
    },
    // ShareGroupStatePartitionMetadata
    Type {
        number: 15,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[
            field("initializingTopics", Array(&Struct(NAMED_TOPIC_PARTITIONS))),
            field("initializedTopics", Array(&Struct(NAMED_TOPIC_PARTITIONS))),
            field("deletingTopics", Array(&Struct(NAMED_TOPIC))),
        ]),
    },
    // ConsumerGroupRegularExpression
    Type {
        number: 16,
        key: keyed(&[field("groupId", Text), field("regularExpression", Text)]),
        value: flexible(&[field("topics", Array(&Text)), field("version", Int64), field("timestamp", Int64)]),
    },
    // StreamsGroupMetadata
    Type {
        number: 17,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[
            field("epoch", Int32),
            field("metadataHash", Int64),
            field("validatedTopologyEpoch", Int32).tagged(0),
            field("lastAssignmentConfigs", Array(&Struct(KEY_VALUE))).nullable(0).tagged(1),
        ]),
    },
    // StreamsGroupMemberMetadata
    Type {
        number: 19,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("instanceId", Text).nullable(0),
            field("rackId", Text).nullable(0),
            field("clientId", Text),
            field("clientHost", Text),
            field("rebalanceTimeoutMs", Int32),
            field("topologyEpoch", Int32),
            field("processId", Text),
            field("userEndpoint", Struct(ENDPOINT)).nullable(0),
            field("clientTags", Array(&Struct(KEY_VALUE))),
        ]),
    },
    // StreamsGroupTargetAssignmentMetadata
    Type {
        number: 20,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[field("assignmentEpoch", Int32), field("assignmentTimestamp", Int64).tagged(0)]),
    },
    // StreamsGroupTargetAssignmentMember
    Type {
        number: 21,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("activeTasks", Array(&Struct(TASKS))),
            field("standbyTasks", Array(&Struct(TASKS))),
            field("warmupTasks", Array(&Struct(TASKS))),
        ]),
    },
    // StreamsGroupCurrentMemberAssignment
    Type {
        number: 22,
        key: keyed(&[field("groupId", Text), field("memberId", Text)]),
        value: flexible(&[
            field("memberEpoch", Int32),
            field("previousMemberEpoch", Int32),
            field("state", Int8),
            field("activeTasks", Array(&Struct(TASK_EPOCHS))),
            field("standbyTasks", Array(&Struct(TASK_EPOCHS))),
            field("warmupTasks", Array(&Struct(TASK_EPOCHS))),
            field("activeTasksPendingRevocation", Array(&Struct(TASK_EPOCHS))),
            field("standbyTasksPendingRevocation", Array(&Struct(TASK_EPOCHS))),
            field("warmupTasksPendingRevocation", Array(&Struct(TASK_EPOCHS))),
        ]),
    },
    // StreamsGroupTopology
    Type {
        number: 23,
        key: keyed(&[field("groupId", Text)]),
        value: flexible(&[field("epoch", Int32), field("subtopologies", Array(&Struct(SUBTOPOLOGY)))]),
    },
];
