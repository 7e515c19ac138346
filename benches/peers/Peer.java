import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.zip.CRC32C;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own log of one partition, without a broker around it, asked to do what the benches of offsetfs do.
 *
 * <pre>
 * Peer append FOLDER VALUES VALUE_BYTES PER_BATCH BATCHES   from values: a batch is built and given to the log, as the leader of a partition does
 * Peer read PARTITION_DIRECTORY COUNT                       recovery of the segment, COUNT look-ups of each kind, all records
 * </pre>
 *
 * Each line of the output is a figure: its name, a tab, its value, and what was done (how many, bytes, a sum), with a tab before each. What is
 * measured runs several times before, until it is compiled.
 */
public class Peer {
    private static final long BASE_MS = 1_700_000_000_000L;
    /** As the benches give the engine so many batches a call, whose values follow one another. */
    private static final int BATCHES_A_CALL = 64;
    private static final LogConfig CONFIG =
        new LogConfig(Map.of("retention.ms", "-1", "segment.ms", String.valueOf(Long.MAX_VALUE)));
    private static final ProducerStateManagerConfig PRODUCERS = new ProducerStateManagerConfig(Integer.MAX_VALUE, false);
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true);

    public static void main(String[] arguments) throws IOException {
        SCHEDULER.startup();
        int[] numbers = new int[arguments.length];
        for (int i = arguments[0].equals("append") ? 3 : 2; i < arguments.length; i++) numbers[i] = Integer.parseInt(arguments[i]);
        if (arguments[0].equals("append")) {
            append(Path.of(arguments[1]), Files.readAllBytes(Path.of(arguments[2])), numbers[3], numbers[4], numbers[5]);
        } else {
            read(Path.of(arguments[1]), numbers[2]);
        }
        System.out.flush();
        System.exit(0);
    }

    private static void told(String figure, double value, long count, long bytes, long sum) {
        System.out.println(figure + "\t" + value + "\t" + count + "\t" + bytes + "\t" + Long.toUnsignedString(sum));
    }

    private static UnifiedLog open(Path directory) throws IOException {
        Files.createDirectories(directory);
        return UnifiedLog.create(directory.toFile(), CONFIG, 0L, Long.MAX_VALUE, SCHEDULER, new BrokerTopicStats(), Time.SYSTEM,
            Integer.MAX_VALUE, PRODUCERS, Integer.MAX_VALUE, FAILURES, true, Optional.empty());
    }

    private static void remove(Path directory) throws IOException {
        if (!Files.exists(directory)) return;
        try (var paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    private static void append(Path folder, byte[] values, int valueBytes, int perBatch, int batches) throws IOException {
        Path directory = folder.resolve("kafka-0");
        ByteBuffer buffer = ByteBuffer.allocate(1 << 18);
        int many = values.length / valueBytes;
        ByteBuffer[] slices = new ByteBuffer[many];
        for (int i = 0; i < many; i++) slices[i] = ByteBuffer.wrap(values, i * valueBytes, valueBytes).slice();
        double seconds = 0;
        for (int pass = 0; pass < 5; pass++) {
            remove(directory);
            UnifiedLog log = open(directory);
            long begin = System.nanoTime();
            for (int n = 0; n < batches; n++) {
                buffer.clear();
                var builder = MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, 0L);
                int from = n % BATCHES_A_CALL * perBatch;
                for (int i = from; i < from + perBatch; i++) {
                    builder.append(BASE_MS + i, null, slices[i % many].duplicate(), Record.EMPTY_HEADERS);
                }
                log.appendAsLeader(builder.build(), 0);
            }
            seconds = (System.nanoTime() - begin) / 1e9;
            if (pass == 4) {
                Sum sum = all(log);
                told("kafka append", (double) batches * perBatch * valueBytes / 1e6 / seconds, sum.count, sum.bytes, sum.crc.getValue());
            }
            // A close would sync, which nobody else does here.
            log.closeHandlers();
        }
        remove(directory);
    }

    private static final class Sum {
        private final CRC32C crc = new CRC32C();
        private long count;
        private long bytes;
        private double seconds;
    }

    /** All values, the CRC of each batch verified, a newline behind each value, as a range of values has it. */
    private static Sum range(UnifiedLog log, boolean sums) throws IOException {
        Sum sum = new Sum();
        byte[] out = new byte[128 << 10];
        int filled = 0;
        long begin = System.nanoTime();
        for (long at = 0; at < log.logEndOffset();) {
            for (RecordBatch batch : log.read(at, 1 << 20, FetchIsolation.LOG_END, true).records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    int size = record.valueSize();
                    if (filled + size + 1 > out.length) {
                        if (sums) sum.crc.update(out, 0, filled);
                        filled = 0;
                    }
                    record.value().get(out, filled, size);
                    filled += size;
                    out[filled++] = '\n';
                    sum.count++;
                    sum.bytes += size;
                }
                at = batch.nextOffset();
            }
        }
        if (sums) sum.crc.update(out, 0, filled);
        sum.seconds = (System.nanoTime() - begin) / 1e9;
        return sum;
    }

    /** All values, one behind the other. */
    private static Sum all(UnifiedLog log) throws IOException {
        Sum sum = new Sum();
        for (long at = 0; at < log.logEndOffset();) {
            for (RecordBatch batch : log.read(at, 1 << 20, FetchIsolation.LOG_END, true).records.batches()) {
                for (Record record : batch) {
                    sum.crc.update(record.value());
                    sum.count++;
                    sum.bytes += record.valueSize();
                }
                at = batch.nextOffset();
            }
        }
        return sum;
    }

    private interface LookUp {
        long at(long offset) throws IOException;
    }

    private static void lookUps(String figure, long end, int count, LookUp lookUp) throws IOException {
        long state = 0x2545_f491_4f6c_dd1dL;
        long[] targets = new long[count];
        for (int i = 0; i < count; i++) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            targets[i] = Long.remainderUnsigned(state, end);
        }
        long sum = 0;
        double value = 0;
        for (int pass = 0; pass < 6; pass++) {
            sum = 0;
            long begin = System.nanoTime();
            for (long target : targets) sum += lookUp.at(target);
            value = (System.nanoTime() - begin) / (double) count;
        }
        told(figure, value, count, 0, sum);
    }

    private static void read(Path directory, int count) throws IOException {
        TopicPartition name = new TopicPartition("bench", 0);
        LogSegment segment = LogSegment.open(directory.toFile(), 0L, CONFIG, Time.SYSTEM, true, 0, false, "");
        ProducerStateManager state = new ProducerStateManager(name, directory.toFile(), Integer.MAX_VALUE, PRODUCERS, Time.SYSTEM);
        LeaderEpochFileCache epochs = UnifiedLog.createLeaderEpochCache(directory.toFile(), name, FAILURES, Optional.empty(), SCHEDULER);
        double seconds = 0;
        for (int pass = 0; pass < 5; pass++) {
            long begin = System.nanoTime();
            if (segment.recover(state, epochs) != 0) throw new IllegalStateException("bytes were cut");
            seconds = (System.nanoTime() - begin) / 1e9;
        }
        told("kafka recover", segment.size() / 1e6 / seconds, 0, segment.size(), 0);
        segment.close();

        UnifiedLog log = open(directory);
        long end = log.logEndOffset();
        lookUps("kafka batch", end, count, offset -> {
            FetchDataInfo found = log.read(offset, 1, FetchIsolation.LOG_END, true);
            return found.fetchOffsetMetadata.relativePositionInSegment;
        });
        lookUps("kafka value", end, count, offset -> {
            for (Record record : log.read(offset, 1, FetchIsolation.LOG_END, true).records.records()) {
                if (record.offset() == offset) return record.valueSize() + (record.value().get() & 0xff);
            }
            throw new IllegalStateException("no record at " + offset);
        });
        lookUps("kafka time", end, count, offset -> {
            var found = log.fetchOffsetByTimestamp(BASE_MS + offset, Optional.empty()).timestampAndOffsetOpt();
            return found.orElseThrow().offset;
        });
        for (int pass = 0; pass < 4; pass++) range(log, false);
        Sum sum = range(log, true);
        double measured = range(log, false).seconds;
        told("kafka range", sum.bytes / 1e6 / measured, sum.count, sum.bytes + sum.count, sum.crc.getValue());
        log.closeHandlers();
    }
}
