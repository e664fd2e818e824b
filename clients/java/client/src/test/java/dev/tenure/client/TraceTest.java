package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The span of the calling thread goes with each of its requests. */
@Timeout(30)
class TraceTest {
  private static final String SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  private static Server server;
  private final ThreadLocal<String> span = new ThreadLocal<>();

  @BeforeAll
  static void start() {
    server = Server.start(1);
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  /** Counts the requests with this text, and those of them with the span. */
  private static List<Long> sent(Proxy proxy, String text) {
    return Stream.of("", SPAN)
        .map(also -> proxy.asked().stream().filter(it -> it.contains(text) && it.contains(also)).count())
        .toList();
  }

  @Test
  void requestsCarryTheSpanOfTheirThread() throws Exception {
    try (Proxy proxy = new Proxy(server.address());
        Client client = Client.builder().addresses(proxy.address()).traceparent(span::get).connect()) {
      client.key("plain").put("v");
      span.set(SPAN);
      client.key("traced").put("v");
      try (Guard guard = client.lock("own")) {
        guard.update("v2");
      }
      client.lockAsync("async").get(5, TimeUnit.SECONDS).release();
      try (Lease lease = client.lease(Duration.ofSeconds(15))) {
        lease.request("under").acquire().release();
      }
      assertEquals(List.of(1L, 0L), sent(proxy, "plain"));
      assertEquals(List.of(1L, 1L), sent(proxy, "traced"));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"acquire\":{\"lock\":\"own\""));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"update\""));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"acquire\":{\"lock\":\"async\""));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"grant_lease\""));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"acquire\":{\"lock\":\"under\""));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"release\""));
    }
  }

  @Test
  void renewalsCarryNoSpan() throws Exception {
    try (Proxy proxy = new Proxy(server.address());
        Client client = Client.builder().addresses(proxy.address()).traceparent(() -> SPAN).connect();
        Guard guard = client.request("renewed").ttl(Duration.ofSeconds(1)).acquire()) {
      while (sent(proxy, "\"renew\"").get(0) == 0) {
        guard.check();
        Thread.sleep(20);
      }
      assertEquals(0, sent(proxy, "\"renew\"").get(1));
      assertEquals(List.of(1L, 1L), sent(proxy, "\"acquire\""));
    }
  }

  @Test
  void aSpanThatCannotBeReadStopsNoRequest() throws Exception {
    try (Client client = Client.builder().addresses(server.address()).traceparent(() -> {
      throw new IllegalStateException("no context");
    }).connect()) {
      client.lock("untraced").release();
    }
  }
}
