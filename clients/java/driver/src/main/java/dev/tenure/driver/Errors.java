package dev.tenure.driver;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.ClosedException;
import dev.tenure.client.FenceException;
import dev.tenure.client.InvalidRequestException;
import dev.tenure.client.LostException;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import dev.tenure.client.TimedOutException;
import dev.tenure.client.UnavailableException;
import dev.tenure.client.UnknownOutcomeException;
import java.util.Locale;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Writes exceptions of the library in the words of the protocol. */
final class Errors {
  private Errors() {}

  static ObjectNode shown(Throwable thrown) {
    Throwable error = thrown;
    if ((thrown instanceof ExecutionException || thrown instanceof CompletionException) && thrown.getCause() != null) {
      error = thrown.getCause();
    }
    ObjectNode shown = JsonNodeFactory.instance.objectNode();
    shown.put("kind", kind(error)).put("message", String.valueOf(error.getMessage()));
    if (error instanceof TenureException it) {
      shown.put("effect", it.effect().name().toLowerCase(Locale.ROOT));
      if (!(it instanceof UnavailableException)) {
        shown.put("reason", it.reason());
      }
    }
    if (error instanceof LostException it) {
      shown.remove("reason");
      shown.put("cause", it.lost().cause().word());
      it.lost().by().ifPresent(by -> shown.put("by", by));
      it.lost().reason().ifPresent(reason -> shown.put("reason", reason));
    }
    if (kind(error).equals("failed")) {
      error.printStackTrace();
    }
    return shown;
  }

  private static String kind(Throwable error) {
    if (error instanceof RefusedException) {
      return "refused";
    } else if (error instanceof LostException) {
      return "lost";
    } else if (error instanceof UnavailableException) {
      return "unavailable";
    } else if (error instanceof UnknownOutcomeException) {
      return "unknown";
    } else if (error instanceof TimedOutException) {
      return "timeout";
    } else if (error instanceof InterruptedException || error instanceof CancellationException) {
      return "cancelled";
    } else if (error instanceof FenceException) {
      return "fence";
    } else if (error instanceof InvalidRequestException) {
      return "invalid";
    } else if (error instanceof ClosedException) {
      return "closed";
    } else if (error instanceof UnsupportedOperationException) {
      return "unsupported";
    }
    return "failed";
  }
}
