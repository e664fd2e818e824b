package dev.tenure.client.internal;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.function.Supplier;

/**
 * The settings of a client, checked.
 *
 * @param addresses where members listen, without a scheme
 * @param name what others see
 * @param timeout how long a request may take
 * @param ttl the ttl of leases that name none
 * @param window how long leases are relied on; null for half of the ttl
 * @param grace how long the work takes to stop
 * @param ca the authority that signed the members' certificates; null for plain text
 * @param certificate the client's certificate; null for none
 * @param key the key of that certificate
 * @param credentials what proves who the client is
 * @param insecureCredentials whether credentials may leave this machine in plain text
 * @param traceparent returns the W3C {@code traceparent} of the calling thread, or null; null for none at all
 */
public record Settings(
    List<String> addresses,
    String name,
    Duration timeout,
    Duration ttl,
    Duration window,
    Duration grace,
    Path ca,
    Path certificate,
    Path key,
    Credentials credentials,
    boolean insecureCredentials,
    Supplier<String> traceparent) {

  long timeoutMicros() {
    return micros(timeout);
  }

  boolean underTls() {
    return ca != null;
  }

  /** Returns whether the credentials, if there are any, may be sent to this address. */
  public boolean mayGoTo(String address) {
    return credentials.isNone() || underTls() || insecureCredentials || isLoopback(address);
  }

  private static boolean isLoopback(String address) {
    int colon = address.lastIndexOf(':');
    String host = colon < 0 ? address : address.substring(0, colon);
    return host.equals("localhost") || host.equals("[::1]") || host.matches("127\\.\\d+\\.\\d+\\.\\d+");
  }

  public static long micros(Duration time) {
    return time.compareTo(Duration.ofDays(365)) >= 0 ? Duration.ofDays(365).toMillis() * 1_000 : time.toNanos() / 1_000;
  }
}
