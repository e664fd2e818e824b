package dev.tenure.client.internal;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Base64;
import java.util.Optional;
import java.util.OptionalInt;

/** Reads and writes the JSON of the session: numbers that do not fit a double are decimal strings. */
public final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  public static ObjectNode object() {
    return JsonNodeFactory.instance.objectNode();
  }

  static String text(JsonNode node) {
    try {
      return MAPPER.writeValueAsString(node);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException("a tree that was built here cannot be written", error);
    }
  }

  static Optional<JsonNode> parse(String text) {
    try {
      JsonNode read = MAPPER.readTree(text);
      return read.isObject() ? Optional.of(read) : Optional.empty();
    } catch (JsonProcessingException error) {
      return Optional.empty();
    }
  }

  /** Reads a token, revision or id; 0 if it is absent. */
  public static long decimal(JsonNode object, String field) {
    JsonNode found = object.path(field);
    if (!found.isTextual()) {
      return 0;
    }
    try {
      return Long.parseUnsignedLong(found.textValue());
    } catch (NumberFormatException error) {
      return 0;
    }
  }

  public static String decimal(long number) {
    return Long.toUnsignedString(number);
  }

  public static String string(JsonNode object, String field) {
    return object.path(field).asText("");
  }

  /** Reads a text; nothing if it is absent or empty. */
  public static Optional<String> optional(JsonNode object, String field) {
    return Optional.of(string(object, field)).filter(text -> !text.isEmpty());
  }

  /** Reads a time in milliseconds, which may be absent. */
  public static Optional<Duration> millis(JsonNode object, String field) {
    return object.hasNonNull(field) ? Optional.of(Duration.ofMillis(object.path(field).asLong())) : Optional.empty();
  }

  /** Reads a time of the wall clock, which may be absent. One that cannot be read is none: such times are labels. */
  public static Optional<Instant> time(JsonNode object, String field) {
    try {
      return optional(object, field).map(Instant::parse);
    } catch (DateTimeParseException unreadable) {
      return Optional.empty();
    }
  }

  /** Reads a small number, which may be absent. */
  public static OptionalInt number(JsonNode object, String field) {
    return object.hasNonNull(field) ? OptionalInt.of(object.path(field).asInt()) : OptionalInt.empty();
  }

  /** Reads an object, which may be absent. */
  public static Optional<JsonNode> child(JsonNode object, String field) {
    return Optional.of(object.path(field)).filter(JsonNode::isObject);
  }

  /** Reads content, which may be absent, as text. */
  public static Optional<String> content(JsonNode object, String field) {
    boolean is = object.hasNonNull(field) || object.hasNonNull(field + "_base64");
    return is ? Optional.of(new String(bytes(object, field), StandardCharsets.UTF_8)) : Optional.empty();
  }

  /** Writes bytes as text if they are, else as base64 beside it. */
  public static void putBytes(ObjectNode object, String field, byte[] bytes) {
    try {
      object.put(field, StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString());
    } catch (CharacterCodingException binary) {
      object.put(field + "_base64", Base64.getEncoder().encodeToString(bytes));
    }
  }

  /** Reads bytes that are text or base64; none if neither is there. */
  public static byte[] bytes(JsonNode object, String field) {
    JsonNode binary = object.path(field + "_base64");
    if (binary.isTextual()) {
      return Base64.getDecoder().decode(binary.textValue());
    }
    return object.path(field).asText("").getBytes(StandardCharsets.UTF_8);
  }
}
