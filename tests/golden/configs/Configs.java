// Asks Kafka's own classes what they make of settings, and prints what a test compares with.
//
//   java -cp "$(../../peer/peer classpath)" Configs.java keys   > keys.jsonl     one setting at a time, every broker key
//   java -cp "$(../../peer/peer classpath)" Configs.java topics > topics.jsonl   one setting at a time, every topic key
//   java -cp "$(../../peer/peer classpath)" Configs.java files  > files.jsonl    the files of files.txt

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class Configs {
    static final ObjectMapper JSON = new ObjectMapper();
    static final List<String> VALUES = List.of(
        "", " ", "x", "-2", "-1", "0", "1", "7", " 12 ", "+3", "1.5", "1e3", "true", "TRUE", "no",
        "a, b,,c", "100000", "2147483648", "9223372036854775808");

    public static void main(String[] args) throws Exception {
        org.apache.log4j.Logger.getRootLogger().setLevel(org.apache.log4j.Level.OFF);
        switch (args[0]) {
            case "keys": keys(); break;
            case "topics": topics(); break;
            case "files": files(); break;
            default: throw new IllegalArgumentException(args[0]);
        }
    }

    static void print(Map<String, Object> line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
    }

    static void keys() throws Exception {
        for (ConfigDef.ConfigKey key : new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys()).values()) {
            Map<String, Object> cases = new LinkedHashMap<>();
            for (String value : VALUES) {
                Properties properties = new Properties();
                properties.setProperty("zookeeper.connect", "127.0.0.1:2181");
                properties.setProperty(key.name, value);
                cases.put(value, answer(() -> {
                    Object parsed = KafkaConfig.fromProps(properties, false).valuesFromThisConfig().get(key.name);
                    return ConfigDef.convertToString(parsed, key.type);
                }));
            }
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("key", key.name);
            line.put("cases", cases);
            print(line);
        }
    }

    static void topics() throws Exception {
        Properties broker = new Properties();
        broker.setProperty("zookeeper.connect", "127.0.0.1:2181");
        Map<String, Object> defaults = KafkaConfig.fromProps(broker, false).extractLogConfigMap();
        for (ConfigDef.ConfigKey key : new TreeMap<>(LogConfig.configKeys()).values()) {
            Map<String, Object> cases = new LinkedHashMap<>();
            for (String value : VALUES) {
                Properties properties = new Properties();
                properties.setProperty(key.name, value);
                cases.put(value, answer(() -> {
                    LogConfig.validate(Collections.emptyMap(), properties, defaults, false, true);
                    Object parsed = LogConfig.fromProps(defaults, properties).values().get(key.name);
                    return ConfigDef.convertToString(parsed, key.type);
                }));
            }
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("key", key.name);
            line.put("cases", cases);
            print(line);
        }
    }

    static void files() throws Exception {
        for (String file : Files.readString(Path.of("files.txt")).split("\n---\n")) {
            Properties properties = new Properties();
            properties.load(new StringReader(file));
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("file", file.strip());
            line.put("answer", answer(() -> {
                KafkaConfig config = KafkaConfig.fromProps(properties, false);
                return "listeners " + config.listeners().mkString(" ")
                    + " advertised " + config.effectiveAdvertisedBrokerListeners().mkString(" ")
                    + " between " + config.interBrokerListenerName().value()
                    + " " + config.interBrokerSecurityProtocol().name
                    + " dirs " + config.logDirs().mkString(",")
                    + " topic " + new TreeMap<>(config.extractLogConfigMap());
            }));
            print(line);
        }
    }

    interface Question {
        String ask() throws Exception;
    }

    static Map<String, Object> answer(Question question) {
        try {
            return Collections.singletonMap("value", question.ask());
        } catch (Throwable error) {
            return Collections.singletonMap("error", String.valueOf(error.getMessage()));
        }
    }
}
