package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.SecureRandom;

/** How the cluster recognises a request that is sent again. */
public sealed interface Identity {
  /** Not recognised: applying it twice has the effect of applying it once. */
  Identity HARMLESS = new Harmless();

  /** Writes the identity into a request. */
  void write(ObjectNode request);

  /** Returns the id under which the caller can repeat the request; null if it cannot. */
  default String requestId() {
    return null;
  }

  record Harmless() implements Identity {
    @Override
    public void write(ObjectNode request) {}
  }

  /** Recognised by a key that the cluster remembers. */
  record Key(String key) implements Identity {
    @Override
    public void write(ObjectNode request) {
      request.put("idempotency_key", Plant.RETRY_WITHOUT_ID.isPlanted() ? random().key : key);
    }

    @Override
    public String requestId() {
      return key;
    }
  }

  /** Recognised by its number under its lease. */
  record Numbered(HeldLease.Seq seq) implements Identity {
    @Override
    public void write(ObjectNode request) {
      request.put("seq", seq.number()).put("done", seq.done());
    }
  }

  static Key random() {
    return new Key(String.format("%016x%016x", Random.SOURCE.nextLong(), Random.SOURCE.nextLong()));
  }

  /** Returns a new lease id: the client chooses it, so that the request can be repeated. */
  static long leaseId() {
    return Math.max(1, Random.SOURCE.nextLong() >>> 1);
  }

  /** The source of ids that cannot be guessed. */
  final class Random {
    private static final SecureRandom SOURCE = new SecureRandom();

    private Random() {}
  }
}
