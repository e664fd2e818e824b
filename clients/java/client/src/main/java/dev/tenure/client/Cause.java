package dev.tenure.client;

/** Why a lease or a lock was lost. */
public enum Cause {
  /** The cluster ended the lease because it was not renewed in time. */
  EXPIRED("expired", "the lease was not renewed in time"),
  /** Another client revoked the lease. */
  REVOKED("revoked", "the lease was revoked by another caller"),
  /** An operator or another client took the lock away. */
  FORCED("forced", "taken away by force"),
  /** The lock was held for its maximum hold time. */
  MAX_HOLD("max_hold", "held as long as max_hold allows"),
  /** The holder did not report a larger number in the time that it promised. */
  NO_PROGRESS("no_progress", "no progress in the promised time"),
  /** The cluster no longer has the lease or the grant, and this client does not know why. */
  GONE("gone", "the cluster does not have it any more"),
  /** No member acknowledged a renewal in time. */
  CLUSTER_UNREACHABLE("cluster_unreachable", "cluster unreachable"),
  /** The members refused the client's credentials, so no renewal was acknowledged in time. */
  CREDENTIALS_REFUSED("credentials_refused", "the credentials are refused"),
  /** This process did not run in time. */
  LOCAL_STALL("local_stall", "this process did not run"),
  /** The machine was suspended. */
  SUSPENDED("suspended", "this machine slept"),
  /** The holder released the lock. */
  RELEASED("released", "given back by its holder");

  private final String word;
  private final String sentence;

  Cause(String word, String sentence) {
    this.word = word;
    this.sentence = sentence;
  }

  /**
   * Returns the stable word for programs and logs, the same in every client.
   *
   * @return for example {@code forced}
   */
  public String word() {
    return word;
  }

  String sentence() {
    return sentence;
  }

  /**
   * Returns the cause that the cluster names on the wire; a word that this version does not know is {@link #GONE}.
   *
   * @param word the word of the cluster
   * @return the cause
   */
  public static Cause ofWire(String word) {
    return switch (word) {
      case "expired" -> EXPIRED;
      case "revoked" -> REVOKED;
      case "forced" -> FORCED;
      case "max_hold" -> MAX_HOLD;
      case "no_progress" -> NO_PROGRESS;
      default -> GONE;
    };
  }
}
