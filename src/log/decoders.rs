//! The messages that Kafka itself keeps in `__consumer_offsets`, `__transaction_state` and `__cluster_metadata`, and in control records.
//!
//! A [`Message`] is found by its type and version in tables of the fields that Kafka 4.3.1 knows, checked as a whole, and then told field by
//! field to a [`Visitor`]; nothing is copied and nothing is kept. What is of a type or version that the tables do not have, or is broken, is a
//! message without fields, of which only the bytes can be shown. How fields are printed is not decided here.

mod control;
mod groups;
mod metadata;
mod schema;
mod transactions;

pub use schema::Visitor;

use schema::Schema;

/// A topic whose records have a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// `__consumer_offsets`: committed offsets and the state of groups.
    ConsumerOffsets,
    /// `__transaction_state`: the transactions of each transactional id.
    TransactionState,
    /// `__cluster_metadata`, and the snapshots (`.checkpoint`) of it.
    ClusterMetadata,
}

/// What names a message's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Its number.
    Number(i64),
    /// The name that Kafka has for the number.
    Name(&'static str),
}

/// A key or a value of a record.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its type, where the message itself tells.
    pub message_type: Option<Type>,
    /// Its version, where the message itself tells.
    pub version: Option<i64>,
    /// All of its bytes, the type and version included.
    pub bytes: &'a [u8],
    /// The fields, and the bytes that hold them; `None` where they cannot be told.
    body: Option<(&'static Schema, &'a [u8])>,
}

impl Topic {
    /// The topic of a name; `None` for all topics whose records Kafka does not know.
    pub fn of(name: &str) -> Option<Topic> {
        match name {
            "__consumer_offsets" => Some(Topic::ConsumerOffsets),
            "__transaction_state" => Some(Topic::TransactionState),
            "__cluster_metadata" => Some(Topic::ClusterMetadata),
            _ => None,
        }
    }

    /// The message in a record's key. Records of `__cluster_metadata` have none.
    pub fn key(self, key: &[u8]) -> Message<'_> {
        let number = first_i16(key);
        let schema = match self {
            Topic::ConsumerOffsets => number.and_then(groups::key),
            Topic::TransactionState => number.and_then(transactions::key),
            Topic::ClusterMetadata => None,
        };
        let message_type = number.map(|number| Type::Number(i64::from(number)));
        Message::new(message_type, None, key, schema.zip(key.get(2..)), 0)
    }

    /// The message in a record's value; `key` tells its type in the topics that have keys.
    pub fn value<'a>(self, key: Option<&[u8]>, value: &'a [u8]) -> Message<'a> {
        if self == Topic::ClusterMetadata {
            return metadata::value(value);
        }
        let version = first_i16(value);
        let number = key.and_then(first_i16);
        let schema = number.and_then(|number| match self {
            Topic::ConsumerOffsets => groups::value(number),
            _ => transactions::value(number),
        });
        Message::new(None, version.map(i64::from), value, schema.zip(value.get(2..)), version.unwrap_or(-1))
    }
}

/// The message in the value of a control record other than the markers of transactions; `control_type` is the number in its key.
pub fn control(control_type: i16, value: &[u8]) -> Message<'_> {
    // The version of these messages is one of their fields; Kafka 4.3.1 reads all of them as version 0.
    Message::new(None, None, value, control::value(control_type).map(|schema| (schema, value)), 0)
}

impl<'a> Message<'a> {
    fn new(
        message_type: Option<Type>,
        version: Option<i64>,
        bytes: &'a [u8],
        body: Option<(&'static Schema, &'a [u8])>,
        schema_version: i16,
    ) -> Message<'a> {
        let body = body.filter(|(schema, body)| schema.is_sound(body, schema_version));
        Message { message_type, version, bytes, body }
    }

    /// Whether the fields are known.
    pub fn has_fields(&self) -> bool {
        self.body.is_some()
    }

    /// Tells the fields to a visitor, as one object; nothing where they are not known.
    pub fn visit(&self, visitor: &mut dyn Visitor) {
        if let Some((schema, body)) = self.body {
            schema.visit(body, i16::try_from(self.version.unwrap_or(0)).unwrap_or(0), visitor);
        }
    }
}

fn first_i16(bytes: &[u8]) -> Option<i16> {
    bytes.first_chunk().copied().map(i16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what it is told in a short form.
    #[derive(Default)]
    struct Words(String);

    impl Words {
        fn word(&mut self, word: &str) {
            self.0.push_str(word);
            self.0.push(' ');
        }
    }

    impl Visitor for Words {
        fn begin_object(&mut self) {
            self.word("{");
        }
        fn end_object(&mut self) {
            self.word("}");
        }
        fn begin_list(&mut self) {
            self.word("[");
        }
        fn end_list(&mut self) {
            self.word("]");
        }
        fn member(&mut self, name: &str) {
            self.word(&format!("{name}:"));
        }
        fn null(&mut self) {
            self.word("null");
        }
        fn boolean(&mut self, value: bool) {
            self.word(&value.to_string());
        }
        fn integer(&mut self, value: i64) {
            self.word(&value.to_string());
        }
        fn float(&mut self, value: f64) {
            self.word(&value.to_string());
        }
        fn text(&mut self, bytes: &[u8]) {
            self.word(&String::from_utf8_lossy(bytes));
        }
        fn bytes(&mut self, bytes: &[u8]) {
            self.word(&format!("{bytes:?}"));
        }
        fn uuid(&mut self, bytes: &[u8; 16]) {
            self.word(&format!("uuid{}", bytes[15]));
        }
    }

    fn told(message: &Message<'_>) -> String {
        let mut words = Words::default();
        message.visit(&mut words);
        words.0.trim_end().to_owned()
    }

    const COMMIT_KEY: &[u8] = b"\0\x01\0\x01g\0\x01t\0\0\0\x07";

    #[test]
    fn a_committed_offset_is_told_in_every_version() {
        let key = Topic::ConsumerOffsets.key(COMMIT_KEY);
        assert_eq!((key.message_type, told(&key).as_str()), (Some(Type::Number(1)), "{ group: g topic: t partition: 7 }"));
        let of = |value: &[u8]| told(&Topic::ConsumerOffsets.value(Some(COMMIT_KEY), value));
        let (offset, time) = (9_i64.to_be_bytes(), 5_i64.to_be_bytes());
        let version = |number: u8, parts: &[&[u8]]| [&[0, number], parts.concat().as_slice()].concat();
        assert_eq!(of(&version(0, &[&offset, b"\0\x01m", &time])), "{ offset: 9 metadata: m commitTimestamp: 5 }");
        let expiring = version(1, &[&offset, b"\0\0", &time, &time]);
        assert_eq!(of(&expiring), "{ offset: 9 metadata:  commitTimestamp: 5 expireTimestamp: 5 }");
        let with_epoch = version(3, &[&offset, &[0, 0, 0, 2], b"\0\0", &time]);
        assert_eq!(of(&with_epoch), "{ offset: 9 leaderEpoch: 2 metadata:  commitTimestamp: 5 }");
        let flexible = version(4, &[&offset, &[0, 0, 0, 2], &[2, b'm'], &time, &[2, 9, 1, 0xFF, 0, 16], &[0; 15], &[3]]);
        assert_eq!(of(&flexible), "{ offset: 9 leaderEpoch: 2 metadata: m commitTimestamp: 5 topicId: uuid3 }");
    }

    #[test]
    fn tagged_fields_are_told_in_their_place_and_only_where_they_are() {
        let key = b"\0\0\0\x01x";
        let plain = [&[0, 1][..], &[0; 8], &[0, 3], &[0, 0, 0, 60], &[1], &[0], &[0; 16]].concat();
        let of = |tags: &[u8]| told(&Topic::TransactionState.value(Some(key), &[&plain[..], tags].concat()));
        let behind = "producerEpoch: 3 transactionTimeoutMs: 60 transactionStatus: 1 transactionPartitions: null \
                      transactionLastUpdateTimestampMs: 0 transactionStartTimestampMs: 0";
        assert_eq!(of(&[0]), format!("{{ producerId: 0 {behind} }}"));
        let tags = [&[2, 0, 8][..], &4_i64.to_be_bytes(), &[2, 2, 0, 2]].concat();
        assert_eq!(of(&tags), format!("{{ producerId: 0 previousProducerId: 4 {behind} clientTransactionVersion: 2 }}"));
    }

    #[test]
    fn members_of_consumer_groups_tell_their_subscription() {
        let key = b"\0\x02\0\x01g";
        let subscription = b"\0\0\0\0\0\x01\0\x01t\xFF\xFF\xFF\xFF";
        let member = [&b"\0\x01m\0\0\0\0\0\0\0\x01\0\0\0"[..], &[subscription.len() as u8], subscription, b"\0\0\0\0"].concat();
        let of = |protocol: &[u8]| {
            let head = [b"\0\0\0", &[protocol.len() as u8][..], protocol, b"\0\0\0\x01\xFF\xFF\xFF\xFF\0\0\0\x01"].concat();
            told(&Topic::ConsumerOffsets.value(Some(key), &[head, member.clone()].concat()))
        };
        assert!(of(b"consumer").contains("subscription: { topics: [ t ] userData: null } assignment: [] } ]"), "{}", of(b"consumer"));
        assert!(of(b"connect").contains("subscription: [0, 0, 0, 0, 0, 1, 0, 1, 116, 255, 255, 255, 255]"), "{}", of(b"connect"));
    }

    #[test]
    fn metadata_records_have_a_frame() {
        let topic = [&[1, 2, 0, 2, b't'][..], &[0; 15], &[8, 0]].concat();
        let message = Topic::ClusterMetadata.value(None, &topic);
        assert_eq!((message.message_type, message.version), (Some(Type::Name("TOPIC_RECORD")), Some(0)));
        assert_eq!(told(&message), "{ name: t topicId: uuid8 }");
        for (unknown, message_type) in
            [([1, 2, 9], Type::Name("TOPIC_RECORD")), ([1, 99, 0], Type::Number(99)), ([2, 20, 0], Type::Name("NO_OP_RECORD"))]
        {
            let message = Topic::ClusterMetadata.value(None, &unknown);
            assert!(!message.has_fields() && message.message_type == Some(message_type) && message.bytes == unknown);
        }
    }

    #[test]
    fn unknown_and_broken_messages_have_no_fields() {
        let value = [&[0, 0][..], &[0; 8], &[0, 0], &[0; 8]].concat();
        assert!(Topic::ConsumerOffsets.value(Some(COMMIT_KEY), &value).has_fields());
        for end in 0..value.len() {
            assert!(!Topic::ConsumerOffsets.value(Some(COMMIT_KEY), &value[..end]).has_fields(), "{end} bytes");
        }
        let newer = [&[0, 5][..], &value[2..]].concat();
        assert_eq!(Topic::ConsumerOffsets.value(Some(COMMIT_KEY), &newer).version, Some(5));
        assert!(!Topic::ConsumerOffsets.value(Some(COMMIT_KEY), &newer).has_fields());
        assert!(!Topic::ConsumerOffsets.value(None, &value).has_fields() && !Topic::ConsumerOffsets.key(b"\x7F\0").has_fields());
        // A count of items that the bytes cannot hold.
        let elections = [&[0, 0, 0, 0, 0, 1][..], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]].concat();
        assert!(!control(2, &elections).has_fields());
        assert_eq!(
            told(&control(2, &[0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 1, 0])),
            "{ version: 0 leaderId: 1 voters: [ { voterId: 1 } ] grantingVoters: [ ] }"
        );
    }
}
