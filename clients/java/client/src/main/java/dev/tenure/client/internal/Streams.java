package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.CompactedException;
import dev.tenure.client.TenureException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Optional;

/** What the streams of watches and observers have in common. */
public final class Streams {
  private Streams() {}

  /** The stream begins anew at another place. */
  public static final class Restart extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public Restart() {
      super(null, null, false, false);
    }
  }

  /** Throws what the event says if it ends the stream. */
  public static void checkEnd(String event, JsonNode data) {
    switch (event) {
      case "compacted" -> throw new CompactedException(Json.decimal(data, "floor"));
      case "closing" -> {
        Meaning meaning = Meaning.of(data.path("error"));
        if (meaning instanceof Meaning.No no) {
          throw no.error();
        }
        throw new Restart();
      }
      default -> {
        // It goes on.
      }
    }
  }

  static Optional<TenureException> compacted(JsonNode error) {
    boolean is = Json.string(error, "reason").equals("COMPACTED");
    return is ? Optional.of(new CompactedException(Json.decimal(error, "revision"))) : Optional.empty();
  }

  /** Writes a name into a query. */
  public static String query(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }

  /** Writes a name into a path; slashes stay. */
  public static String path(String name) {
    return query(name).replace("%2F", "/");
  }
}
