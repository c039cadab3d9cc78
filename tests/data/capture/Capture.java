import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.embedded.EmbeddedEngineChangeEvent;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import java.io.Writer;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import javax.management.ObjectName;
import org.apache.kafka.common.utils.Utils;

/**
 * Runs one Debezium connector, then one SQL command beside it, and appends every message to a file of JSON lines.
 *
 * <p>{@code Capture SETTINGS OUT FINISH COMMAND…}: the command starts once the connector streams; the run is over a moment
 * after a row was created in the table FINISH. Keys and values are the bytes that Kafka Connect's JsonConverter gives a
 * producer, unchanged. Partition and timestamp are what Kafka's own producer would take: murmur2 of the key, and the
 * instant of sending.
 */
public class Capture {
    private static final int DATA_PARTITIONS = 2;
    private static final long LIMIT_SECONDS = 120;

    private final ObjectMapper mapper = new ObjectMapper();
    private final Map<String, Long> nextOffset = new HashMap<>();
    private final CountDownLatch finished = new CountDownLatch(1);
    private final String finish;
    private final Writer out;

    private Capture(Path file, String finish) throws Exception {
        this.finish = "\"table\":\"" + finish + "\"";
        if (Files.exists(file)) {
            for (String line : Files.readAllLines(file)) {
                var message = mapper.readTree(line);
                String at = message.get("topic").asText() + "/" + message.get("partition").asInt();
                nextOffset.put(at, message.get("offset").asLong() + 1);
            }
        }
        out = Files.newBufferedWriter(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(args[0]))) {
            settings.load(reader);
        }
        Capture capture = new Capture(Path.of(args[1]), args[2]);
        capture.run(settings, List.of(args).subList(3, args.length));
    }

    private void run(Properties settings, List<String> command) throws Exception {
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
                        .using(settings)
                        .notifying(this::take)
                        .using((success, message, error) -> {
                            if (!success) {
                                System.err.println("connector: " + message);
                                if (error != null) {
                                    error.printStackTrace();
                                }
                                System.exit(1);
                            }
                        })
                        .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        await("the connector streams", Capture::streams);
        Process sql = new ProcessBuilder(command).inheritIO().start();
        if (!sql.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS) || sql.exitValue() != 0) {
            throw new IllegalStateException("the SQL command failed");
        }
        if (!finished.await(LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no row in " + finish);
        }
        Thread.sleep(1500); // the heartbeat that follows the last change
        engine.close();
        thread.shutdown();
        thread.awaitTermination(LIMIT_SECONDS, TimeUnit.SECONDS);
        out.close();
        System.exit(0); // some connector threads are no daemons
    }

    private void take(
            List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
            throws InterruptedException {
        try {
            for (var event : events) {
                write(event);
                committer.markProcessed(event);
                if (event.value() != null && event.value().contains(finish) && event.value().contains("\"op\":\"c\"")) {
                    finished.countDown();
                }
            }
            out.flush();
            committer.markBatchFinished();
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private void write(ChangeEvent<String, String> event) throws java.io.IOException {
        String topic = event.destination();
        int partition = 0;
        boolean data = topic.chars().filter(c -> c == '.').count() == 2 && !topic.startsWith("__");
        if (data && event.key() != null) {
            int hash = Utils.toPositive(Utils.murmur2(event.key().getBytes(StandardCharsets.UTF_8)));
            partition = hash % DATA_PARTITIONS;
        }
        ObjectNode line = mapper.createObjectNode();
        line.put("topic", topic).put("partition", partition);
        line.put("offset", nextOffset.merge(topic + "/" + partition, 1L, Long::sum) - 1);
        Long own = ((EmbeddedEngineChangeEvent<?, ?, ?>) event).sourceRecord().timestamp();
        line.put("timestamp", own == null ? System.currentTimeMillis() : own);
        line.put("key", event.key()).put("value", event.value());
        ObjectNode headers = line.putObject("headers");
        for (var header : event.<String>headers()) {
            headers.put(header.getKey(), header.getValue());
        }
        out.write(mapper.writeValueAsString(line));
        out.write('\n');
    }

    /** Whether the connector is past its snapshot and reads the log. */
    private static boolean streams() {
        try {
            var server = ManagementFactory.getPlatformMBeanServer();
            var names = server.queryNames(new ObjectName("debezium.*:type=connector-metrics,context=streaming,*"), null);
            for (ObjectName name : names) {
                if (Boolean.TRUE.equals(server.getAttribute(name, "Connected"))) {
                    return true;
                }
            }
            return false;
        } catch (javax.management.JMException error) {
            return false;
        }
    }

    private static void await(String what, java.util.function.BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not within " + LIMIT_SECONDS + " s: " + what);
            }
            Thread.sleep(100);
        }
    }
}
