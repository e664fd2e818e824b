package dev.tenure.client.internal;

import java.util.Locale;

/**
 * Bugs that the conformance driver plants to show that the vectors and scenarios catch them. Only its start selects
 * one; nothing else does.
 */
public enum Plant {
  /** A renewal counts from its answer instead of its sending. */
  RENEWAL_FROM_ANSWER,
  /** A late acknowledgement revives a lost lease. */
  LOSS_NOT_FINAL,
  /** A repeated request has a new id. */
  RETRY_WITHOUT_ID,
  /** A lost lock is given back while its work still runs. */
  RELEASE_WHILE_WORKING,
  /** A check believes the last timer instead of the clock. */
  CHECK_BY_TIMER;

  private static volatile Plant selected;

  /** Plants the bug of this name, as in {@code renewal_from_answer}; null for none. */
  public static void select(String name) {
    if (name == null || name.isEmpty()) {
      selected = null;
    } else if (name.equals("count_from_answer")) {
      selected = RENEWAL_FROM_ANSWER;
    } else {
      selected = valueOf(name.toUpperCase(Locale.ROOT));
    }
  }

  boolean isPlanted() {
    return selected == this;
  }
}
