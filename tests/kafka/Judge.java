import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own log of one partition, behind standard input and output, so that one JVM judges many directories.
 *
 * A command is a line of words with tabs between them; its answer is any number of lines and then a line with a dot. A line that begins with
 * {@code fail} says what Kafka threw.
 *
 * <pre>
 * open DIR SETTINGS clean|unclean LOG_START   opens a partition directory; SETTINGS is name=value,name=value
 * append HEX...                               each a batch, appended as a follower does: its offsets and bytes stay as they are
 * roll                                        begins a new segment
 * read TIMES OFFSETS                          everything in it, and the answers for times and offsets (numbers with commas; - for none)
 * close                                       as a clean stop does
 * </pre>
 */
public class Judge {
    /** It is never started: files are flushed by closing, and what Kafka deletes stays under its new name. */
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true);
    private static final ProducerStateManagerConfig PRODUCERS = new ProducerStateManagerConfig(Integer.MAX_VALUE, false);
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private static UnifiedLog log;

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            try {
                switch (words[0]) {
                    case "open" -> open(new File(words[1]), words[2], words[3].equals("clean"), Long.parseLong(words[4]));
                    case "append" -> append(words);
                    case "roll" -> log.roll();
                    case "read" -> read(numbers(words[1]), numbers(words[2]));
                    case "close" -> close();
                    default -> throw new IllegalArgumentException(line);
                }
            } catch (Exception | InternalError | OutOfMemoryError e) {
                say("fail", e.getClass().getSimpleName(), e.getMessage());
            }
            OUT.println(".");
            OUT.flush();
        }
    }

    private static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) line.append(line.isEmpty() ? "" : "\t").append(String.valueOf(word).replaceAll("[\t\n]", " "));
        OUT.println(line);
    }

    private static long[] numbers(String words) {
        return words.equals("-") ? new long[0] : java.util.Arrays.stream(words.split(",")).mapToLong(Long::parseLong).toArray();
    }

    private static void open(File dir, String settings, boolean clean, long logStart) throws IOException {
        Map<String, String> config = new HashMap<>();
        for (String setting : settings.split(",")) config.put(setting.split("=")[0], setting.split("=")[1]);
        log = UnifiedLog.create(dir, new LogConfig(config), logStart, 0L, SCHEDULER, new BrokerTopicStats(), Time.SYSTEM, Integer.MAX_VALUE,
            PRODUCERS, Integer.MAX_VALUE, new LogDirFailureChannel(1), clean, Optional.empty());
    }

    private static void append(String[] words) {
        for (int i = 1; i < words.length; i++) {
            MemoryRecords batch = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[i])));
            log.appendAsFollower(batch, batch.batches().iterator().next().partitionLeaderEpoch());
        }
    }

    private static void close() {
        try {
            log.close();
        } finally {
            log.removeLogMetrics();
        }
    }

    private static void read(long[] times, long[] offsets) throws IOException {
        log.updateHighWatermark(log.logEndOffset());
        long start = log.logStartOffset();
        long end = log.logEndOffset();
        say("bounds", start, end, log.lastStableOffset(), log.latestEpoch().map(String::valueOf).orElse("-"));
        records(start, end);
        for (var aborted : log.collectAbortedTransactions(start, end))
            say("aborted", aborted.producerId(), aborted.firstOffset(), aborted.lastOffset());
        for (long time : times) say("time", time, firstAt(time));
        for (long offset : offsets) say("offset", offset, firstFrom(offset));
    }

    /** All records as a consumer of everything reads them; the first thing that stops it ends the list. */
    private static void records(long start, long end) {
        long next = start;
        try {
            while (next < end) {
                long before = next;
                for (RecordBatch batch : log.read(next, 1 << 20, FetchIsolation.LOG_END, true).records.batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        if (record.offset() < next) continue;
                        record.ensureValid();
                        say("record", record.offset(), batch.timestampType().name, batch.isControlBatch(), batch.isTransactional(),
                            batch.producerId(), record.timestamp(), hex(record.hasKey() ? record.key() : null),
                            hex(record.hasValue() ? record.value() : null), headers(record));
                    }
                    next = Math.max(next, batch.nextOffset());
                }
                if (next == before) return;
            }
        } catch (RuntimeException | IOException | OutOfMemoryError e) {
            say("stopped", next, e.getClass().getSimpleName(), e.getMessage());
        }
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) return "-";
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return "x" + HEX.formatHex(copy);
    }

    private static String headers(Record record) {
        StringBuilder text = new StringBuilder("=");
        for (Header header : record.headers()) {
            ByteBuffer value = header.value() == null ? null : ByteBuffer.wrap(header.value());
            text.append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8))).append(':').append(hex(value)).append(';');
        }
        return text.toString();
    }

    private static String firstAt(long time) {
        try {
            OffsetResultHolder found = log.fetchOffsetByTimestamp(time, Optional.empty());
            return found.timestampAndOffsetOpt().map(place -> String.valueOf(place.offset)).orElse("-");
        } catch (RuntimeException e) {
            return e.getClass().getSimpleName();
        }
    }

    private static String firstFrom(long offset) {
        try {
            for (Record record : log.read(offset, 1, FetchIsolation.LOG_END, true).records.records())
                if (record.offset() >= offset) return String.valueOf(record.offset());
            return "-";
        } catch (RuntimeException | IOException e) {
            return e.getClass().getSimpleName();
        }
    }
}
