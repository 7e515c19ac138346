import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own log of one partition, behind standard input and output, so that one JVM judges many directories.
 *
 * A command is a line of words with tabs between them; its answer is any number of lines and then a line with a dot. A line that begins with
 * {@code fail} says what Kafka threw.
 *
 * <pre>
 * open DIR SETTINGS clean|unclean LOG_START   opens a partition directory; SETTINGS is name=value,name=value with ; for a comma in a value
 * append HEX...                               each a batch, appended as a follower does: its offsets and bytes stay as they are
 * roll                                        begins a new segment
 * read TIMES OFFSETS                          everything in it, and the answers for times and offsets (numbers with commas; - for none)
 * clock NOW EXPIRATION                        sets the time and how long producers are known without a batch, both in ms; else the system's, and for ever
 * clean BYTES                                 lets the cleaner look for work once, with a map of keys of so many bytes, and says what it did
 * retain                                      lets retention look once, and says from which offset on the log is there
 * close                                       as a clean stop does
 * </pre>
 */
public class Judge {
    /**
     * It is never started: files are flushed by closing, and what Kafka deletes stays under its new name. Only what becomes of leader epochs is written
     * at once.
     */
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true) {
        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (name.startsWith("leader-epoch-cache-flush")) task.run();
            return super.schedule(name, task, delayMs, periodMs);
        }
    };
    private static final ProducerStateManagerConfig PRODUCERS = new ProducerStateManagerConfig(Integer.MAX_VALUE, false);
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);
    private static final Clock CLOCK = new Clock();
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private static UnifiedLog log;

    /** The system's time until it is set. */
    private static final class Clock implements Time {
        private Long now;

        @Override
        public long milliseconds() {
            return now == null ? System.currentTimeMillis() : now;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException("nothing here is slowed down");
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException("nothing here waits");
        }
    }

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
                    case "clock" -> {
                        CLOCK.now = Long.parseLong(words[1]);
                        PRODUCERS.setProducerIdExpirationMs(Integer.parseInt(words[2]));
                    }
                    case "clean" -> clean(Integer.parseInt(words[1]));
                    case "retain" -> retain();
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
        for (String setting : settings.split(",")) config.put(setting.split("=", 2)[0], setting.split("=", 2)[1].replace(';', ','));
        log = UnifiedLog.create(dir, new LogConfig(config), logStart, 0L, SCHEDULER, new BrokerTopicStats(), CLOCK, Integer.MAX_VALUE,
            PRODUCERS, Integer.MAX_VALUE, FAILURES, clean, Optional.empty());
    }

    private static void append(String[] words) {
        for (int i = 1; i < words.length; i++) {
            MemoryRecords batch = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[i])));
            log.appendAsFollower(batch, batch.batches().iterator().next().partitionLeaderEpoch());
        }
    }

    /** One loop of the cleaner's thread, and nothing of its threads. */
    private static void clean(int bytes) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        log.removeExpiredProducers(CLOCK.milliseconds());
        File data = log.parentDirFile();
        TopicPartition partition = log.topicPartition();
        LogCleanerManager manager = new LogCleanerManager(List.of(data), new ConcurrentHashMap<>(Map.of(partition, log)), FAILURES);
        try {
            Optional<LogToClean> found = manager.grabFilthiestCompactedLog(CLOCK, new PreCleanStats());
            if (found.isEmpty()) return;
            LogToClean what = found.get();
            say("cleaning", what.firstDirtyOffset(), what.firstUncleanableOffset(), what.cleanBytes(), what.cleanableBytes());
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", CLOCK);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(bytes), 1 << 18, 1 << 20, 0.9, throttler, CLOCK, ignored -> { });
            long end = what.firstDirtyOffset();
            try {
                end = cleaner.doClean(what, CLOCK.milliseconds()).getKey();
            } finally {
                manager.doneCleaning(partition, data, end);
            }
            say("cleaned", end);
        } finally {
            manager.removeMetrics();
        }
    }

    private static void retain() throws IOException {
        log.updateHighWatermark(log.logEndOffset());
        log.deleteOldSegments();
        say("start", log.logStartOffset());
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
