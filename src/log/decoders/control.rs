//! The values of the control records of `__cluster_metadata`: of its elections, snapshots and voters.

use super::schema::Kind::{Array, Int16, Int32, Int64, Struct, Text, Uint16, Uuid};
use super::schema::{Field, Schema, field};

/// The fields of the value of a control record of this type.
pub(super) fn value(control_type: i16) -> Option<&'static Schema> {
    match control_type {
        2 => Some(&LEADER_CHANGE),
        3 => Some(&SNAPSHOT_HEADER),
        4 => Some(&SNAPSHOT_FOOTER),
        5 => Some(&KRAFT_VERSION),
        6 => Some(&KRAFT_VOTERS),
        _ => None,
    }
}

const ELECTOR: &[Field] = &[field("voterId", Int32), field("voterDirectoryId", Uuid).since(1)];
const ENDPOINT: &[Field] = &[field("name", Text), field("host", Text), field("port", Uint16)];
const KRAFT_VERSION_FEATURE: &[Field] = &[field("minSupportedVersion", Int16), field("maxSupportedVersion", Int16)];
const VOTER: &[Field] = &[
    field("voterId", Int32),
    field("voterDirectoryId", Uuid),
    field("endpoints", Array(&Struct(ENDPOINT))),
    field("kRaftVersionFeature", Struct(KRAFT_VERSION_FEATURE)),
];
static LEADER_CHANGE: Schema = Schema {
    versions: (0, 1),
    flexible_from: 0,
    fields: &[
        field("version", Int16),
        field("leaderId", Int32),
        field("voters", Array(&Struct(ELECTOR))),
        field("grantingVoters", Array(&Struct(ELECTOR))),
    ],
};
static SNAPSHOT_HEADER: Schema =
    Schema { versions: (0, 0), flexible_from: 0, fields: &[field("version", Int16), field("lastContainedLogTimestamp", Int64)] };
static SNAPSHOT_FOOTER: Schema = Schema { versions: (0, 0), flexible_from: 0, fields: &[field("version", Int16)] };
static KRAFT_VERSION: Schema =
    Schema { versions: (0, 0), flexible_from: 0, fields: &[field("version", Int16), field("kRaftVersion", Int16)] };
static KRAFT_VOTERS: Schema =
    Schema { versions: (0, 0), flexible_from: 0, fields: &[field("version", Int16), field("voters", Array(&Struct(VOTER)))] };
