package dev.tenure.client;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The leader of an election.
 *
 * @param client the name of the leader's client
 * @param value the value it leads with
 * @param token the fencing token of its grant
 */
public record Leader(String client, byte[] value, long token) {
  /**
   * Returns the value as text.
   *
   * @return its bytes read as UTF-8
   */
  public String text() {
    return new String(value, StandardCharsets.UTF_8);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Leader it
        && client.equals(it.client)
        && Arrays.equals(value, it.value)
        && token == it.token;
  }

  @Override
  public int hashCode() {
    return Long.hashCode(token) + Arrays.hashCode(value);
  }

  @Override
  public String toString() {
    return client + " (token " + Long.toUnsignedString(token) + "): " + text();
  }
}
